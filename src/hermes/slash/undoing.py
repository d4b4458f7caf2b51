"""`/undo` and `/retry`: take back what was said last, or have it answered anew."""

from __future__ import annotations

from hermes.agent.undo import MOST_TURNS, undo
from hermes.errors import UsageError
from hermes.slash.here import Again, Beginning, Here, read_number

QUOTED = 40


async def take_back(here: Here, text: str) -> str:
    agent, count = await here.place(), _count(text)
    if isinstance(agent, Beginning):
        raise UsageError("nothing was said yet")
    return await undo(agent, count, here.cause, here.stop, here.may_take_back)


def _count(text: str) -> int:
    count = read_number(text) if text else 1
    if not 1 <= count <= MOST_TURNS:
        raise UsageError(f"/undo takes a number of turns from 1 to {MOST_TURNS}, not '{text[:QUOTED]}'")
    return count


async def retry(here: Here, text: str) -> Again:
    if text:
        raise UsageError("/retry takes nothing after it", hint="`/undo` takes the message back, to say another one")
    agent = await here.place()
    if isinstance(agent, Beginning):
        raise UsageError("nothing was said yet")
    store, session_id = agent.store, agent.session_id
    [last] = await store.read(lambda tx: store.turns.last(tx, session_id))  # refused here rather than in the turn
    if not all(map(here.may_take_back, last.said)):
        raise UsageError("someone else said it: only they or the owner can have it answered anew")
    return Again(here.cause, last.said[-1].content or "")
