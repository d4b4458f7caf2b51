"""What the slash commands do, on every surface alike. Each gives what the person is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hermes.agent.agent import Agent
from hermes.agent.compress import compressor_of, describe
from hermes.agent.lane import LaneDoor
from hermes.agent.stopping import unless_stopped
from hermes.compression.compressor import Request
from hermes.compression.cut import view_tokens
from hermes.db.engine import Tx
from hermes.errors import UsageError
from hermes.memory.notes import FILES
from hermes.scope import OWNER
from hermes.slash.here import Beginning, Console, Here, Word
from hermes.store.memory_rows import hide_title

LONGEST_TITLE, QUOTED = 200, 40
BEGINS = "A new session begins with your next message."
STOPPED, NOT_RUNNING = "Stopped.", "Nothing is running."
NOT_COMPRESSED = "The compression was stopped: nothing was removed, the conversation is as it was."
COMPRESSED = "The compression was done before it could be stopped."
INCOGNITO = "Incognito: from here on nothing is recalled, noted or sent to memory."
REMEMBERED = "Memory is on again. What was said incognito stays out of it for good."
UNCHANGED = "Stopped; memory is as it was."


async def begin_new(here: Here, _: str) -> str:
    return await here.begin_session()


async def title(here: Here, text: str) -> str:
    title, place = " ".join(text.split()), await here.place()
    if len(title) > LONGEST_TITLE:
        raise UsageError(f"a title has at most {LONGEST_TITLE} characters")
    if not title:
        return await _title_of(place) or "(no title)"
    if isinstance(place, Beginning):
        place.title = title
    else:
        await _set_title(place, title)
    return f"Title: {title}"


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


def _console(here: Here) -> Console:
    assert here.console is not None, "the table offers it only where there is one"
    return here.console


async def list_sessions(here: Here, _: str) -> str:
    return await _console(here).list_sessions()


async def resume(here: Here, name: str) -> str:
    if not name:
        raise UsageError("which session?", hint="`/sessions` lists them")
    return await _console(here).resume(name)


async def recent_sessions(here: Here) -> Sequence[Word]:
    return await _console(here).recent_sessions()


async def stop(_here: Here, _: str) -> str:
    """Where something runs, the surface has ended it before this is asked."""
    return NOT_RUNNING


async def compress(here: Here, focus: str) -> str:
    agent = await here.place()
    if isinstance(agent, Beginning):
        raise UsageError("there is nothing to compress yet")
    store, session_id = agent.store, agent.session_id
    before = await store.read(lambda tx: store.compressions.epoch(tx, session_id))
    result = await unless_stopped(compressor_of(agent).compress(session_id, Request(focus=focus)), here.stop)
    if result is not None:
        return describe(result)
    after = await store.read(lambda tx: store.compressions.epoch(tx, session_id))
    return NOT_COMPRESSED if after == before else COMPRESSED


async def memory(here: Here, text: str) -> str:
    word, place = text.lower(), await here.place()
    if word in ("on", "off"):
        return await _set_incognito(place, word == "off", here.stop)
    if word:
        raise UsageError(f"/memory takes on or off, not '{text[:QUOTED]}'")
    read = place.notes.read_all()
    parts = [f"{FILES[target]}\n{note or '(empty)'}" for target, note in sorted(read.texts.items(), reverse=True)]
    tells = place.notes.scope == OWNER  # where files are is the owner's business
    parts += [problem.line() if tells else "A note cannot be read." for problem in read.problems]
    state = "off (incognito)" if await _is_incognito(place) else "on"
    return "\n\n".join([f"Memory is {state}.", *parts])


async def _is_incognito(place: Agent | Beginning) -> bool:
    if isinstance(place, Beginning):
        return place.incognito
    store, session_id = place.store, place.session_id
    return await store.read(lambda tx: store.incognito.is_on(tx, session_id))


async def _set_incognito(place: Agent | Beginning, wanted: bool, stop: asyncio.Event) -> str:
    told = INCOGNITO if wanted else REMEMBERED
    if isinstance(place, Beginning):
        place.incognito = wanted
        return told
    store, session_id = place.store, place.session_id
    change = store.incognito.begin if wanted else store.incognito.end
    # Between turns: a reply that another process is waiting for belongs to the side of its question.
    async with LaneDoor(store, session_id, place.owner, place.policy.lane, lambda tx: change(tx, session_id)) as door:
        async for _ in door.wait(stop):
            pass
        return UNCHANGED if door.entered is None else told


async def memory_words(_: Here) -> Sequence[Word]:
    return [("on", "Recall, note and send again."), ("off", "Incognito from here on.")]


async def status(here: Here, _: str) -> str:
    agent = await here.place()
    if isinstance(agent, Beginning):
        return BEGINS
    view = await agent.store.view(agent.session_id)
    memory, told = agent.memory, agent.scope == OWNER  # how a provider is, is the owner's business
    return (
        f"session {agent.session_id}\nmodel {agent.model.name}\n"
        f"context ~{view_tokens(view):,} of {agent.model.context_length:,} tokens, {view.epoch} compressions\n"
        f"memory notes{'' if memory.state == 'off' or not told else f' + {memory.name} ({memory.state})'}"
    )


async def leave(here: Here, _: str) -> str:
    _console(here).leave()
    return ""
