"""What the slash commands do, on every surface alike. Each gives what the person is told."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.agent.agent import Agent
from hermes.agent.compress import compressor_of, describe
from hermes.agent.stopping import unless_stopped
from hermes.compression.compressor import Request
from hermes.db.engine import Tx
from hermes.errors import UsageError
from hermes.llm.tokens import view_tokens
from hermes.scope import OWNER
from hermes.slash.here import Beginning, Here, Word, console_of
from hermes.store.memory_rows import hide_title

LONGEST_TITLE = 200
NOT_KNOWN = "not chosen yet"
"""Stands for the model's name while the endpoint has not said what it has."""
BEGINS = "A new session begins with your next message."
STOPPED, NOT_RUNNING = "Stopped.", "Nothing is running."
NOT_COMPRESSED = "The compression was stopped: nothing was removed, the conversation is as it was."
COMPRESSED = "The compression was done before it could be stopped."


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


async def list_sessions(here: Here, _: str) -> str:
    return await console_of(here).list_sessions()


async def resume(here: Here, name: str) -> str:
    wanted = name or await console_of(here).choose_session()
    return await console_of(here).resume(wanted) if wanted else ""


async def recent_sessions(here: Here, typed: str) -> Sequence[Word]:
    return await console_of(here).recent_sessions(typed)


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


async def status(here: Here, _: str) -> str:
    agent = await here.place()
    if isinstance(agent, Beginning):
        return BEGINS
    view = await agent.store.view(agent.session_id)
    window, used = agent.model.context_length, view_tokens(view) + agent.overhead
    memory, told = agent.memory, agent.scope == OWNER  # how a provider is, is the owner's business
    return (
        f"session {agent.session_id}\nmodel {agent.model.name or NOT_KNOWN}\n"
        f"context ~{used:,} of {window:,} tokens ({round(100 * used / window)} %), {view.epoch} compressions\n"
        f"memory notes{'' if memory.state == 'off' or not told else f' + {memory.name} ({memory.state})'}"
    )


async def leave(here: Here, _: str) -> str:
    console_of(here).leave()
    return ""
