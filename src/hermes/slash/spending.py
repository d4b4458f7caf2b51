"""`/usage`: the tokens that a session has spent."""

from __future__ import annotations

from hermes.agent.agent import Agent
from hermes.db.engine import Tx
from hermes.llm.tokens import view_tokens
from hermes.slash.acts import BEGINS
from hermes.slash.here import Beginning, Here
from hermes.store.usage import count_turns, usage_elsewhere, usage_of
from hermes.types import Spent

WHAT_COUNTS = "Counted are its turns, summaries, reviews, sub-agents and title."
NOTHING = "No model was asked in this session yet."


async def usage(here: Here, _: str) -> str:
    agent = await here.place()
    if isinstance(agent, Beginning):
        return BEGINS
    spent, elsewhere, turns = await _counts(agent)
    view = await agent.store.view(agent.session_id)
    window, used = agent.model.context_length, view_tokens(view) + agent.overhead
    lines = [
        f"{turns:,} {'turn' if turns == 1 else 'turns'}, {view.epoch} compressions",
        f"window ~{used:,} of {window:,} tokens ({round(100 * used / window)} %)",
        *(f"{name}: {_describe(one)}" for name, one in spent.items()),
    ]
    if len(spent) > 1:
        lines.append(f"in all: {_describe(sum(spent.values(), Spent()))}")
    if elsewhere is not None:
        lines.append(f"another version counted {elsewhere.prompt_tokens:,} in, {elsewhere.completion_tokens:,} out")
    return "\n".join([*lines, WHAT_COUNTS if spent else NOTHING])


async def _counts(agent: Agent) -> tuple[dict[str, Spent], Spent | None, int]:
    """What was spent by model, here and by another program, and how often somebody spoke."""
    await agent.write_down_spending()
    session_id = agent.session_id

    def count(tx: Tx) -> tuple[dict[str, Spent], Spent | None, int]:
        return usage_of(tx, session_id), usage_elsewhere(tx, session_id), count_turns(tx, session_id)

    return await agent.store.read(count)


def _describe(spent: Spent) -> str:
    about = "~" if spent.estimated else ""
    cached = f" ({spent.cached_tokens:,} of them from its cache)" if spent.cached_tokens else ""
    told = f"{about}{spent.prompt_tokens:,} tokens in{cached}, {about}{spent.completion_tokens:,} out"
    asked = "1 request" if spent.requests == 1 else f"{spent.requests:,} requests"
    if not spent.estimated:
        return f"{asked}, {told}"
    which = "all" if spent.estimated == spent.requests else f"{spent.estimated:,}"
    return f"{asked}, {told}; {which} of them estimated, since the endpoint does not say"
