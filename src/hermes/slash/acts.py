"""The slash commands, the same on every surface. Each returns the text for the person.

`/unfold`: show tool calls in full, which a terminal shows as a single row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct

from hermes.agent.agent import Agent
from hermes.agent.compress import compressor_of, describe
from hermes.agent.loop import unless_stopped
from hermes.agent.undo import MAX_UNDO_TURNS, undo
from hermes.compression.compressor import Request
from hermes.db.engine import Tx
from hermes.errors import UsageError
from hermes.llm.tokens import view_tokens
from hermes.scope import OWNER
from hermes.slash.context import Again, Answer, Beginning, CommandContext, Say, Word, agent_of, console_of, read_number
from hermes.store.memory_rows import hide_title
from hermes.store.usage import describe_length, describe_usage, read_usage
from hermes.types import LiveView, Message, ToolCall

MAX_TITLE_CHARS = 200
NOT_KNOWN = "not chosen yet"
OFFLINE_NAME = "none, answers come from memory alone"
"""Replaces the model's name until the endpoint has listed its models."""
BEGINS = "A new session begins with your next message."
KEEPS_NAME = "Memory goes on under the name that it has for this conversation."
STOPPED, NOT_RUNNING = "Stopped.", "Nothing is running."
NOTHING_SAID = "nothing was said yet"
NO_TOOL_CALLED = "no tool was called here yet, or not since the last compression"
SAID_BY_OTHERS = "someone else said it: only they or the owner can have it answered anew"
MAX_QUOTED_CHARS = 40
"""How much of a wrong argument an error repeats."""
EMPTY = "Nothing was sent: the text is empty."
GIVEN_UP = "Nothing was sent: the editor gave up."
UNCHANGED = "Nothing was sent: the text is as it was. `/retry` has the last message answered once more."
NOT_COMPRESSED = "The compression was stopped: nothing was removed, the conversation is as it was."
COMPRESSED = "The compression was done before it could be stopped."


async def begin_new(here: CommandContext, _: str) -> str:
    return await here.begin_session()


async def title(here: CommandContext, text: str) -> str:
    title, place = " ".join(text.split()), await here.place()
    if len(title) > MAX_TITLE_CHARS:
        raise UsageError(f"a title has at most {MAX_TITLE_CHARS} characters")
    if not title:
        return await _title_of(place) or "(no title)"
    if isinstance(place, Beginning):
        place.title = title
        return f"Title: {title}"
    await _set_title(place, title)
    return f"Title: {title}" if place.memory.state == "off" else f"Title: {title}\n{KEEPS_NAME}"


async def _title_of(place: Agent | Beginning) -> str | None:
    if isinstance(place, Beginning):
        return place.title
    store, session_id = place.store, place.session_id
    return (await store.read(lambda tx: store.sessions.get(tx, session_id))).title


async def _set_title(agent: Agent, title: str) -> None:
    store, session_id = agent.store, agent.session_id

    def change(tx: Tx) -> bool:
        store.sessions.set_title(tx, session_id, title)
        is_hidden = store.incognito.is_on(tx, session_id)
        if is_hidden:
            hide_title(tx, session_id, title)
        return is_hidden

    if not await store.write(change):
        await agent.memory.retitled(title)


async def list_sessions(here: CommandContext, _: str) -> str:
    return await console_of(here).list_sessions()


async def resume(here: CommandContext, name: str) -> str:
    wanted = name or await console_of(here).choose_session()
    return await console_of(here).resume(wanted) if wanted else ""


async def recent_sessions(here: CommandContext, typed: str) -> Sequence[Word]:
    return await console_of(here).recent_sessions(typed)


async def stop(_here: CommandContext, _: str) -> str:
    """Report that nothing runs; if something did, the surface has stopped it before."""
    return NOT_RUNNING


async def compress(here: CommandContext, focus: str) -> str:
    agent = await agent_of(here, "there is nothing to compress yet")
    store, session_id = agent.store, agent.session_id
    before = await store.read(lambda tx: store.compressions.epoch(tx, session_id))
    result = await unless_stopped(compressor_of(agent).compress(session_id, Request(focus=focus)), here.stop)
    if result is not None:
        return describe(result)
    after = await store.read(lambda tx: store.compressions.epoch(tx, session_id))
    return NOT_COMPRESSED if after == before else COMPRESSED


async def retract(here: CommandContext, text: str) -> str:
    count = read_number(text) if text else 1
    if not 1 <= count <= MAX_UNDO_TURNS:
        raise UsageError(f"/undo takes a number of turns from 1 to {MAX_UNDO_TURNS}, not '{text[:MAX_QUOTED_CHARS]}'")
    return await undo(await agent_of(here, NOTHING_SAID), count, here.cause, here.stop, here.may_take_back)


async def retry(here: CommandContext, text: str) -> Again:
    if text:
        raise UsageError("/retry takes nothing after it", hint="`/undo` takes the message back, to say another one")
    agent = await agent_of(here, NOTHING_SAID)
    store, session_id = agent.store, agent.session_id
    [last] = await store.read(lambda tx: store.turns.last(tx, session_id))  # refused here rather than in the turn
    if not all(map(here.may_take_back, last.said)):
        raise UsageError(SAID_BY_OTHERS)
    return Again(here.cause, last.said[-1].content or "")


async def edit(here: CommandContext, text: str) -> Answer:
    begun = text or await _last_said(here)
    edited = await console_of(here).edit(begun)
    if edited is None:
        return GIVEN_UP
    if not edited.strip():
        return EMPTY
    return UNCHANGED if not text and edited.strip() == begun.strip() else Say(edited.strip())


async def _last_said(here: CommandContext) -> str:
    """Return the person's last message; "" if no message was sent."""
    place = await here.place()
    if isinstance(place, Beginning):
        return ""
    view = await place.store.view(place.session_id)
    return next((m.content for m in reversed(view.messages) if m.role == "user" and m.content), "")


async def status(here: CommandContext, _: str) -> str:
    agent = await here.place()
    if isinstance(agent, Beginning):
        return BEGINS
    view = await agent.store.view(agent.session_id)
    name = OFFLINE_NAME if agent.answers_from_memory else agent.model.name or NOT_KNOWN
    memory, is_owner = agent.memory, agent.scope == OWNER  # only the owner sees the provider's state
    return (
        f"session {agent.session_id}\nmodel {name}\n"
        f"context {_window(agent, view)}, {view.epoch} {'compression' if view.epoch == 1 else 'compressions'}\n"
        f"memory notes{'' if memory.state == 'off' or not is_owner else f' + {memory.name} ({memory.state})'}"
    )


def _window(agent: Agent, view: LiveView) -> str:
    window, used = agent.model.context_length, view_tokens(view) + agent.overhead
    if agent.answers_from_memory:
        return f"~{used:,} tokens"
    return f"~{used:,} of {window:,} tokens ({round(100 * used / window)} %)"


async def usage(here: CommandContext, _: str) -> str:
    agent = await here.place()
    if isinstance(agent, Beginning):
        return BEGINS
    await agent.write_down_spending()
    session_id = agent.session_id
    counted = await agent.store.read(lambda tx: read_usage(tx, session_id))
    view = await agent.store.view(session_id)
    return "\n".join([describe_length(counted, view.epoch), f"window {_window(agent, view)}", *describe_usage(counted)])


async def leave(here: CommandContext, _: str) -> str:
    console_of(here).leave()
    return ""


MAX_SHOWN_CHARS = 20_000
"""How much of the arguments or of a result is shown."""
MAX_SHOWN_CALLS = 20
"""Calls shown at once."""


class _Made(Struct, frozen=True):
    """A call and its result, None while it runs. `asked` is the id of the message that caused it."""

    call: ToolCall
    result: str | None
    asked: int


async def unfold(here: CommandContext, text: str) -> str:
    place = await here.place()
    view = None if isinstance(place, Beginning) else await place.store.view(place.session_id)
    made = _calls(view.messages) if view is not None else []
    if not made:
        raise UsageError(NO_TOOL_CALLED)
    number = read_number(text)
    if text and not 1 <= number <= len(made):
        raise UsageError(f"/unfold takes a number from 1, the last call, to {len(made)}")
    chosen = [made[-number]] if text else [one for one in made if one.asked == made[-1].asked][-MAX_SHOWN_CALLS:]
    return "\n\n".join(_describe(one) for one in chosen)


def _calls(messages: Sequence[Message]) -> list[_Made]:
    """Return every call of a conversation, the oldest first."""
    results = {message.tool_call_id: message.content or "" for message in messages if message.role == "tool"}
    made: list[_Made] = []
    asked = 0
    for message in messages:
        asked = message.id if message.role == "user" else asked
        made += [_Made(call, results.get(call.id), asked) for call in message.tool_calls]
    return made


def _describe(made: _Made) -> str:
    result = "(no result)" if made.result is None else _bounded(made.result)
    return f"· {made.call.name}\n{_bounded(_pretty(made.call.arguments))}\n→ {result}"


def _pretty(arguments: str) -> str:
    """Return JSON arguments indented; others unchanged."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return arguments


def _bounded(text: str) -> str:
    left = len(text) - MAX_SHOWN_CHARS
    return text if left <= 0 else f"{text[:MAX_SHOWN_CHARS]}\n… and {left:,} characters more"
