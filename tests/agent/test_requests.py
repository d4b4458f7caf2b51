"""Requests match the store: the first of a turn reads all of it, later ones what was added."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from hermes.agent.context import build_context
from hermes.errors import NotFoundError
from hermes.events import Failed
from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from hermes.store.hidden import hide_rows
from hermes.store.store import Store
from hermes.types import Compression, Draft, LiveView, ToolCall
from tests.agent.agents import make_agent, take_turn
from tests.llm.scripted import ScriptedModel

Act: TypeAlias = Callable[[sqlite3.Connection, list[int]], object]
"""A change to the file by another program, given the ids of the visible messages."""


def append(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'from afar', 1.0)")


def edit(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("UPDATE messages SET content = content || '!' WHERE id = ?", (ids[0],))


def rewind(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("UPDATE messages SET active = 0 WHERE id >= ? AND session_id = 's'", (ids[-1],))


def compact_in_place(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("UPDATE messages SET active = 0, compacted = 1 WHERE session_id = 's' AND id <= ?", (ids[0],))
    append(db, ids)


def delete(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("DELETE FROM messages WHERE id = ?", (ids[-1],))


def put_in_between(db: sqlite3.Connection, ids: list[int]) -> None:
    values = (ids[-1] - 1, "s", "user", "squeezed in", 1.0)
    db.execute("INSERT INTO messages (id, session_id, role, content, timestamp) VALUES (?, ?, ?, ?, ?)", values)


def name_the_author(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("INSERT OR REPLACE INTO hermes_message_extra (message_id, author_name) VALUES (?, 'Bo')", (ids[0],))


def hide(db: sqlite3.Connection, ids: list[int]) -> None:
    hide_rows(db, ids[:1], "test", now=1.0)


def undo_repairs(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("DELETE FROM hermes_hidden")


def rewrite_the_summary(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("UPDATE hermes_compressions SET summary = summary || '.'")


def compress(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("INSERT INTO hermes_compressions VALUES ('s', 2, ?1, ?1, '[]', 'theirs', 'theirs', 1.0)", (ids[0],))


ACTS: list[Act] = [
    append,
    edit,
    rewind,
    compact_in_place,
    delete,
    put_in_between,
    name_the_author,
    hide,
    undo_repairs,
    rewrite_the_summary,
    compress,
]


async def fill(store: Store) -> list[int]:
    """Create a session with authors, a gap between ids, a hidden message and a compression. Return the ids of its
    tail."""
    await store.create_session("cli", session_id="s")
    await store.create_session("cli", session_id="other")
    said = await store.append("s", *[Draft("user", f"m{n}", author_name="Ada") for n in range(6)])
    await store.append("other", Draft("user", "noise"))
    said += await store.append("s", Draft("user", "last", author_name="Ada"))
    await store.write(lambda tx: tx.execute("DELETE FROM messages WHERE session_id = 'other'"))
    await store.write(lambda tx: hide_rows(tx, [said[3].id], "test", now=1.0))
    made = Compression("s", 1, said[1].id, said[-1].id, (said[0].id,), "summary", "x", 1.0)
    await store.write(lambda tx: store.compressions.commit(tx, made))
    return [message.id for message in (await store.view("s")).tail]


def do(store: Store, act: Act, ids: list[int]) -> None:
    """Change the file as another program would."""
    with closing(sqlite3.connect(store.db.path, timeout=10)) as other, other:
        act(other, ids)


def built(view: LiveView, like: ModelRequest) -> list[object]:
    """Return the messages of a request for this view, with the prompt of another request."""
    return list(build_context(like.messages[0]["content"], view))


@pytest.mark.contract("1.4", "3.5")
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
async def test_whatever_anyone_did_to_a_session_is_in_the_first_request_of_the_next_turn(
    store: Store, act: Act
) -> None:
    ids = await fill(store)
    model = ScriptedModel(lambda _: Reply("well", finish_reason="stop"))
    agent = make_agent(store, "s", model)
    await take_turn(agent, "one")
    before = await store.view("s")
    do(store, act, ids)
    assert await store.view("s") != before, "nothing was done"
    await take_turn(agent, "two")
    after = await store.view("s")
    assert list(model.requests[1].messages) == built(replace(after, tail=after.tail[:-1]), model.requests[1])


@pytest.mark.contract("1.5", "3.5")
@pytest.mark.parametrize("acts", [[append], [compress], [append, compress, append]], ids=["late", "swap", "both"])
async def test_messages_and_compressions_during_a_turn_are_in_its_next_request(store: Store, acts: list[Act]) -> None:
    ids = await fill(store)
    call = ToolCall("c", "nothing", "{}")

    def reply(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply("done", finish_reason="stop")
        for act in acts:
            do(store, act, ids)
        return Reply("", tool_calls=(call,), finish_reason="tool_calls")

    model = ScriptedModel(reply)
    await take_turn(make_agent(store, "s", model), "go")
    after = await store.view("s")
    assert len(model.requests) == 2
    assert [m.content for m in after.tail].count("from afar") == acts.count(append)
    assert list(model.requests[1].messages) == built(replace(after, tail=after.tail[:-1]), model.requests[1])


async def test_a_session_that_is_deleted_in_the_middle_of_a_turn_ends_it(store: Store) -> None:
    ids = await fill(store)
    seen = await store.view("s")

    def reply(_: ModelRequest) -> Reply:
        do(store, lambda db, _: db.execute("DELETE FROM sessions WHERE id = 's'"), ids)
        return Reply("", tool_calls=(ToolCall("c", "nothing", "{}"),), finish_reason="tool_calls")

    model = ScriptedModel(reply)
    events = await take_turn(make_agent(store, "s", model), "go")
    assert isinstance(last := events[-1], Failed)
    assert last.kind == "gone"
    assert len(model.requests) == 1
    with pytest.raises(NotFoundError):
        await store.view_since(seen)


REWIND = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1], timeout=10) as db:
    db.execute("UPDATE messages SET active = 0 WHERE content = 'forget this'")
"""


@pytest.mark.processes
@pytest.mark.contract("1.6")
async def test_messages_undone_by_another_process_between_turns_are_not_sent_again(store: Store) -> None:
    await store.create_session("cli", session_id="s")
    await store.append("s", *[Draft("user", "forget this"), Draft("assistant", "noted")] * 100)
    model = ScriptedModel(lambda _: Reply("well", finish_reason="stop"))
    agent = make_agent(store, "s", model)
    await take_turn(agent, "one")
    await take_turn(agent, "two")
    rewinding = [sys.executable, "-c", REWIND, str(store.db.path)]
    await asyncio.to_thread(subprocess.run, rewinding, check=True)
    await take_turn(agent, "three")
    said = [[m["content"] for m in request.messages[1:]] for request in model.requests]
    assert said[1] == [*["forget this", "noted"] * 100, "one", "well", "two"]
    assert said[2] == [*["noted"] * 100, "one", "well", "two", "well", "three"]
