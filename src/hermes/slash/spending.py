"""`/usage`: the tokens that a session has spent."""

from __future__ import annotations

from hermes.agent.agent import Agent
from hermes.llm.tokens import view_tokens
from hermes.slash.acts import BEGINS
from hermes.slash.here import Beginning, Here
from hermes.store.usage import SessionUsage, read_usage
from hermes.store.usage_lines import describe_length, describe_usage


async def usage(here: Here, _: str) -> str:
    agent = await here.place()
    if isinstance(agent, Beginning):
        return BEGINS
    counted = await _count(agent)
    view = await agent.store.view(agent.session_id)
    window, used = agent.model.context_length, view_tokens(view) + agent.overhead
    share = f"window ~{used:,} of {window:,} tokens ({round(100 * used / window)} %)"
    return "\n".join([describe_length(counted, view.epoch), share, *describe_usage(counted)])


async def _count(agent: Agent) -> SessionUsage:
    await agent.write_down_spending()
    session_id = agent.session_id
    return await agent.store.read(lambda tx: read_usage(tx, session_id))
