"""Slash commands in chats. They take their turn in the lane like any message; only `/stop` overtakes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from hermes.agent.agent import Agent
from hermes.agent.compress import compressor_of, describe
from hermes.agent.lane import LaneDoor
from hermes.agent.stopping import unless_stopped
from hermes.compression.compressor import Request
from hermes.compression.cut import view_tokens
from hermes.db.engine import Tx
from hermes.errors import UsageError
from hermes.gateway.inbox import NOT_RUNNING, Inbox
from hermes.gateway.platform import Inbound
from hermes.scope import OWNER
from hermes.store.store import Store

INCOGNITO = "Incognito: from here on nothing is recalled, noted or sent to memory."
NAMED = "This session has the name that you gave it, so it stays the same one: use another session id for a new one."
REMEMBERED = "Memory is on again. What was said incognito stays out of it for good."
LONGEST_TITLE = 200
NOT_COMPRESSED = "The compression was stopped: nothing was removed, the conversation is as it was."
COMPRESSED = "The compression was done before it could be stopped."


class Asked(Struct, frozen=True):
    """A command, and all it may need. `stop` is set when the person does not want it any more."""

    store: Store
    inbox: Inbox
    agent: Agent
    key: str
    message: Inbound
    rest: str
    stop: asyncio.Event


Run: TypeAlias = Callable[[Asked], Awaitable[str]]


class Command(Struct, frozen=True):
    """One slash command."""

    usage: str
    help: str
    run: Run


def find_command(text: str) -> tuple[Command, str] | None:
    """The command that a message is, with what follows it; None for an ordinary message. `/new@bot` counts too."""
    if not text.startswith("/"):
        return None
    word, _, rest = text.strip().partition(" ")
    command = COMMANDS.get(word[1:].partition("@")[0].lower())
    return None if command is None else (command, rest.strip())


async def _new(asked: Asked) -> str:
    if asked.message.session_id is not None:
        return NAMED

    def begin(tx: Tx) -> str:
        """A session that nobody has spoken in is new enough: a command that a crash repeats begins no second one."""
        now = asked.store.clock.now()
        bound = asked.inbox.open_session(tx, asked.key, asked.message)
        if asked.store.messages.last_id(tx, bound.id) == 0:
            return bound.id
        asked.store.sessions.end(tx, bound.id, "session_reset", now=now)
        session = asked.inbox.new_session(tx, bound.session_key or asked.key, asked.message)
        asked.store.routes.bind(tx, asked.key, session.id, now=now)
        return session.id

    return f"A new session begins: {await asked.store.write(begin)}. What was said before is kept."


async def _title(asked: Asked) -> str:
    session_id = asked.agent.session_id
    title = " ".join(asked.rest.split())
    if not title:
        return (await asked.store.read(lambda tx: asked.store.sessions.get(tx, session_id))).title or "(no title)"
    if len(title) > LONGEST_TITLE:
        raise UsageError(f"a title has at most {LONGEST_TITLE} characters")
    await asked.store.write(lambda tx: asked.store.sessions.set_title(tx, session_id, title))
    if not await asked.store.read(lambda tx: asked.store.incognito.is_on(tx, session_id)):
        await asked.agent.memory.retitled(title)
    return f"Title: {title}"


async def _compress(asked: Asked) -> str:
    session_id, compressor = asked.agent.session_id, compressor_of(asked.agent)
    before = await asked.store.view(session_id)
    result = await unless_stopped(compressor.compress(session_id, Request(focus=asked.rest)), asked.stop)
    if result is not None:
        return describe(result)
    after = await asked.store.view(session_id)
    return NOT_COMPRESSED if after.epoch == before.epoch else COMPRESSED


async def _memory(asked: Asked) -> str:
    session_id, incognito = asked.agent.session_id, asked.store.incognito
    word = asked.rest.lower()
    change = {"off": incognito.begin, "on": incognito.end}.get(word)
    if word and change is None:
        raise UsageError(f"/memory takes on or off, not '{asked.rest}'")
    if change is not None:
        # Between turns: a reply that a terminal is waiting for belongs to the side of its question.
        terms = asked.agent.policy.lane
        async with LaneDoor(
            asked.store, session_id, asked.agent.owner, terms, lambda tx: change(tx, session_id)
        ) as door:
            async for _ in door.wait(asked.stop):
                pass
            if door.entered is None:
                return "Stopped; memory is as it was."
        return INCOGNITO if word == "off" else REMEMBERED
    hidden = await asked.store.read(lambda tx: incognito.is_on(tx, session_id))
    notes = asked.agent.notes.read("user") or "(nothing noted yet)"
    return f"Memory is {'off (incognito)' if hidden else 'on'}.\n{notes}"


async def _status(asked: Asked) -> str:
    view = await asked.store.view(asked.agent.session_id)
    memory, told = asked.agent.memory, asked.agent.scope == OWNER  # how a provider is, is the owner's business
    return (
        f"session {asked.agent.session_id}\nmodel {asked.agent.model.name}\n"
        f"context ~{view_tokens(view):,} of {asked.agent.model.context_length:,} tokens, {view.epoch} compressions\n"
        f"memory notes{'' if memory.state == 'off' or not told else f' + {memory.name} ({memory.state})'}"
    )


async def _help(_: Asked) -> str:
    return "\n".join(f"/{command.usage}: {command.help}" for command in COMMANDS.values())


async def _stop(_: Asked) -> str:
    return NOT_RUNNING


COMMANDS: dict[str, Command] = {
    command.usage.split()[0]: command
    for command in (
        Command("new", "begin a new session", _new),
        Command("title [TEXT]", "show or change the title", _title),
        Command("compress [FOCUS]", "summarise the older part", _compress),
        Command("memory [on|off]", "show the notes; off makes this chat incognito", _memory),
        Command("status", "model, session and memory", _status),
        Command("stop", "end what is under way: a reply, a compression, a wait", _stop),
        Command("help", "this list", _help),
    )
}
