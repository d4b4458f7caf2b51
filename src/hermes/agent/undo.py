"""Undo of the last turns, and retry of the last one.

    lane ── last turns ── notes of the memory tool ── commit: messages, outbox entries, undo record ── provider

A running turn ends first: undo holds the session's lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing

from msgspec import Struct

from hermes.agent.agent import Agent
from hermes.agent.memory_tool import SPEC as MEMORY_SPEC
from hermes.agent.memory_tool import NoteDone, read_result
from hermes.agent.turn import answer
from hermes.db.engine import Tx
from hermes.db.queue import Item
from hermes.db.queue_items import find
from hermes.errors import HermesError, NoteError, UsageError
from hermes.events import Accepted, Notice, TurnEvent
from hermes.memory.forgetting import Retraction, retract
from hermes.memory.notes import FILES
from hermes.memory.outbox import queue_name
from hermes.scope import OWNER
from hermes.store.held_lease import LaneDoor
from hermes.store.hidden import Undoing, find_undoing
from hermes.store.last_turns import ConversationTurn
from hermes.store.turns import TurnRecord
from hermes.types import Message

SAID_BY_OTHERS = "someone else said some of it: only they or the owner can take it back"
MAX_UNDO_TURNS = 50
MAX_QUOTE_CHARS = 60
"""Limits quotes in messages to the person."""
UNCHANGED = "Stopped; the conversation is as it was."
STAYS_IN_MEMORY = "Memory has received it and cannot delete it."


class _Found(Struct, frozen=True):
    """The turns to undo. `done` is set if this command undid them before a crash."""

    turns: tuple[ConversationTurn, ...] = ()
    done: Undoing | None = None


async def undo(
    agent: Agent,
    count: int,
    cause: str,
    stop: asyncio.Event,
    may_take_back: Callable[[Message], bool] = lambda _: True,
) -> str:
    """Undo the last turns, once for each `cause`, and return a message for the person. Raises UsageError if there are
    fewer turns or some may not be undone, and SessionBusyError if another process holds the session for too long."""
    store = agent.store
    await agent.cancel_idle_work()
    await agent.memory.undoing()

    def look(tx: Tx, _: float) -> _Found:
        if (done := find_undoing(tx, cause)) is not None:
            return _Found(done=done)
        turns = store.turns.last(tx, agent.session_id, count)
        if not all(may_take_back(message) for turn in turns for message in turn.said):
            raise UsageError(SAID_BY_OTHERS, hint="")
        return _Found(tuple(turns))

    async with LaneDoor(store, agent.session_id, agent.owner, agent.policy.lane, look) as door:
        async for _ in door.wait(stop):
            pass
        if door.entered is None:
            return UNCHANGED
        found = door.entered.begun
        if found.done is not None:
            return _describe(found.done.turns, found.done.messages, "")
        messages = [message for turn in found.turns for message in turn.messages]
        lines = await retract_notes(agent, messages)

        def commit(tx: Tx, now: float) -> tuple[Undoing, list[Retraction]]:
            done = store.turns.undo(tx, cause, found.turns, now=now)
            return done, retract(tx, cause, messages, messages[0].timestamp, now=now)

        done, taken = await door.entered.lane.write(store, commit, last=True)
    agent.title_settled, agent.given_title = False, None  # the title may come from the undone turns
    lines += await settle_memory(agent, taken)
    return "\n".join([_describe(done.turns, done.messages, messages[0].content or ""), *lines])


class RetriedTurn(Struct):
    """The record of a retried turn: the old reply and all after it are undone in the commit that begins the turn.
    Other calls go to `record`, as for any turn."""

    agent: Agent
    cause: str
    record: TurnRecord
    undone: Sequence[Message] = ()
    taken: Sequence[Retraction] = ()

    @property
    def reminder(self) -> str:
        return self.record.reminder

    @property
    def earlier(self) -> Sequence[tuple[str, str]]:
        return self.record.earlier

    def accepted(self, tx: Tx, _: Sequence[Message]) -> Sequence[Message]:
        store, now = self.agent.store, self.agent.clock.now()
        [turn] = store.turns.last(tx, self.agent.session_id)
        store.turns.undo_reply(tx, self.cause, turn, now=now)
        if turn.after:
            self.undone = turn.after
            self.taken = retract(tx, self.cause, turn.after, turn.said[-1].timestamp, now=now)
        self.record.accepted(tx, turn.said[-1:])
        return turn.said

    async def concluding(self) -> None:
        await self.record.concluding()

    def replied(self, tx: Tx, message: Message) -> None:
        self.record.replied(tx, message)


async def retry(agent: Agent, cause: str, stop: asyncio.Event, record: TurnRecord) -> AsyncGenerator[TurnEvent, None]:
    """Answer the last turn again, as a normal turn. The person's message stays as it is."""
    await agent.memory.undoing()
    again = RetriedTurn(agent, cause, record)
    async with aclosing(answer(agent, (), stop, again)) as events:
        begun = False
        async for event in events:
            yield event
            if isinstance(event, Accepted) and not begun:
                begun = True
                for line in [*await retract_notes(agent, again.undone), *await settle_memory(agent, again.taken)]:
                    yield Notice(line)


async def retract_notes(agent: Agent, messages: Iterable[Message]) -> list[str]:
    """Remove notes that the memory tool added in these messages, if they are unchanged; entries that it changed or
    removed stay so. Return lines for the person."""
    results = [m.content or "" for m in messages if m.role == "tool" and m.tool_name == MEMORY_SPEC.name]
    return [await _retract_note(agent, done) for result in results if (done := read_result(result)) is not None]


async def _retract_note(agent: Agent, done: NoteDone) -> str:
    name, text = FILES[done.target], _short(done.text)
    if done.action != "add":
        return f"{name} stays as it was changed ({done.action}): {text}"
    try:
        await asyncio.to_thread(agent.notes.forget, done.target, done.text)
    except NoteError:
        return f"{name} was changed since, and stays as it is; noted was: {text}"
    except HermesError as error:
        return f"{name} still says what was noted ({error.line()}): {text}"
    agent.memory.note_written(done.target, "remove", done.text)
    return f"Removed from {name}: {text}"


async def settle_memory(agent: Agent, taken: Sequence[Retraction]) -> list[str]:
    """Delete retracted entries at the provider now if possible, and return lines for the person. Only the owner sees
    the provider's name and its server's errors."""
    if not taken:
        return []
    await agent.memory.undone([one.lane for each in taken if each.provider == agent.memory.name for one in each.queued])
    tell = _outcome if agent.scope == OWNER else _outcome_for_others
    lines = await agent.store.read(lambda tx: [tell(tx, one) for one in taken])
    return [line for line in lines if line]


def _outcome(tx: Tx, taken: Retraction) -> str:
    """Return the outcome of the retraction at one provider; "" if it had received nothing."""
    if taken.stays:
        return f"{taken.provider} received it and cannot delete it: it stays there."
    items = _undo_entries(tx, taken)
    if reasons := [item.reason or "" for item in items if item.state == "dead"]:
        return f"Something stays at {taken.provider}: {'; '.join(reasons)}"
    if any(item.state == "waiting" for item in items):
        return f"{taken.provider} received it and deletes it as soon as it can be reached."
    return f"The undone messages are deleted at {taken.provider} as well." if items else ""


def _outcome_for_others(tx: Tx, taken: Retraction) -> str:
    return STAYS_IN_MEMORY if taken.stays or any(item.state == "dead" for item in _undo_entries(tx, taken)) else ""


def _undo_entries(tx: Tx, taken: Retraction) -> list[Item]:
    """Return the queued deletions at a provider, finished ones included."""
    found = [find(tx, queue_name(taken.provider), one.ticket) for one in taken.queued]
    return [item for item in found if item is not None]


def _describe(turns: int, messages: int, first: str) -> str:
    what = "the last turn" if turns == 1 else f"the last {turns} turns"
    said = f": “{_short(first)}” and what followed" if first else ""
    return f"Took back {what} ({messages} {'message' if messages == 1 else 'messages'}){said}."


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUOTE_CHARS else f"{line[: MAX_QUOTE_CHARS - 1].rstrip()}…"
