"""Reads memory for a conversation that its client keeps, without recording anything."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from hermes.agent.agent import Agent
from hermes.agent.prompt import PromptParts, build_system_prompt, read_soul
from hermes.memory.caller import Recall
from hermes.memory.corrections import Corrections
from hermes.types import Draft, Message


class Reading(Struct, frozen=True):
    """The system prompt, including the person's notes, and the text recalled for their last message."""

    prompt: str
    recalled: str = ""
    notices: Sequence[str] = ()
    """Notices for the owner about memory."""
    found: Recall = Recall()


async def read_memory(agent: Agent, messages: Sequence[Draft]) -> Reading:
    """Recall for the last user message within the deadline of a turn. Neither messages nor a turn are sent to
    memory."""
    people = [draft for draft in messages if draft.role == "user"]
    corrections = await agent.store.read(lambda tx: Corrections.read(tx, agent.scope))
    await agent.memory.ask_only(len(people))
    now = agent.clock.now()
    asked = [Message(id=0, session_id=agent.session_id, timestamp=now, **asdict(draft)) for draft in people[-1:]]
    found = await agent.memory.recall(asked, agent.memory.begin(), is_read=not agent.answers_from_memory)
    agent.memory.after_turn(asked)
    parts = PromptParts(
        soul=read_soul(agent.soul_file),
        started_at=now,
        scope=agent.scope,
        notes=agent.read_notes(),
        corrected=corrections.lines(),
    )
    return Reading(build_system_prompt(parts), corrections.marked(found.text), agent.memory.take_notices(), found)
