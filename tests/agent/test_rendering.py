"""What is kept of a session between requests is what the store holds, whoever changed it and however."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.agent.context import build_context
from hermes.agent.rendering import Rendering, Renderings
from hermes.compression.cut import view_tokens
from hermes.errors import NotFoundError
from hermes.llm.events import Reply
from hermes.llm.scripted import ScriptedModel
from hermes.llm.tokens import estimate_request
from hermes.store.ids import snapshot_id
from hermes.store.lines import Mark, Reading
from hermes.store.mended import hide_rows, restore_rows
from hermes.store.rewrites import Stamp
from hermes.store.store import Store
from hermes.types import Compression, Draft, Line, LiveView, Message, ToolCall
from tests.agent.agents import make_agent, take_turn
from tests.agent.histories import messages, view
from tests.scale import scale
from tests.store.old_files import MESSAGE_6, SESSION_6
from tests.store.still_clock import StillClock

MARK = Mark("s", Stamp(1, 0), 0, 0)
Own: TypeAlias = Callable[[Store, list[int]], Awaitable[None]]
Foreign: TypeAlias = Callable[[sqlite3.Connection, list[int]], None]
"""What is done, given the ids of the messages that are seen now."""


def line(message: Message) -> Line:
    return Line(
        message.id, message.role, message.content, message.tool_calls, message.tool_call_id, message.author_name
    )


def check_same(rendering: Rendering, seen: LiveView) -> None:
    """A request made of what was kept is the one made of the view itself, and is counted the same."""
    for recalled in ("", "They like tea."):
        built = rendering.request("prompt", recalled)
        assert built.messages == build_context("prompt", seen, recalled)
        assert built.tokens == estimate_request(built.messages)
    assert rendering.view_tokens == view_tokens(seen)


@given(messages(), st.none() | st.text(max_size=9), messages(), st.lists(st.integers(0, 12), max_size=4))
def test_a_view_that_grew_in_any_steps_gives_the_request_of_the_whole_view(
    head: tuple[Message, ...], summary: str | None, tail: tuple[Message, ...], cuts: list[int]
) -> None:
    head = head if summary is not None else ()
    places = [0, *sorted(min(cut, len(tail)) for cut in cuts), len(tail)]
    parts = [tuple(map(line, tail[one:other])) for one, other in pairwise(places)]
    rendering = Rendering.of(Reading(MARK, tuple(map(line, head)), summary, parts[0]))
    for part in parts[1:]:
        rendering = rendering.grown(Reading(MARK, (), None, part))
    check_same(rendering, view(head, summary, tail))


# What our own process does, through the store.


async def say(store: Store, ids: list[int]) -> None:
    call = ToolCall(f"c{len(ids)}", "look", '{"at": "sky"}')
    await store.append(
        "s",
        Draft("user", f"said {len(ids)}", author_id="7", author_name="Ada"),
        Draft("assistant", None, tool_calls=(call,)),
        Draft("tool", "blue", tool_call_id=call.id),
    )


async def begin_a_call(store: Store, ids: list[int]) -> None:
    await store.append("s", Draft("assistant", "hm", tool_calls=(ToolCall("open", "look", "{"),)))


async def say_elsewhere(store: Store, ids: list[int]) -> None:
    await store.append("other", Draft("user", "noise"))


async def compress(store: Store, ids: list[int]) -> None:
    latest = await store.read(lambda tx: store.compressions.latest(tx, "s"))
    epoch, floor = (latest.epoch + 1, latest.horizon_message_id) if latest else (1, 0)
    horizon = max([floor, *ids[: len(ids) // 2]])
    upto = await store.read(lambda tx: store.messages.last_id(tx, "s"))
    made = Compression(
        "s", epoch, min(horizon, upto), upto, tuple(ids[:1]), f"sum {epoch}", snapshot_id("s", float(epoch)), 1.0
    )
    if horizon <= upto and all(key <= made.horizon_message_id for key in made.kept_ids):
        await store.write(lambda tx: store.compressions.commit(tx, made))


async def hide(store: Store, ids: list[int]) -> None:
    await store.write(lambda tx: hide_rows(tx, ids[-1:], "test", now=1.0))


async def restore(store: Store, ids: list[int]) -> None:
    await store.write(lambda tx: restore_rows(tx, ids[:2], "test", now=1.0))


async def begin_anew(store: Store, ids: list[int]) -> None:
    await store.write(lambda tx: store.deletions.delete(tx, "s"))
    await store.create_session("cli", session_id="s")
    await store.append("s", Draft("user", "anew"))


# What others do to the file: an older version, a second process of ours, someone with a database tool.


def foreign_append(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'from afar', 1.0)")


def foreign_edit(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("UPDATE messages SET content = content || '!' WHERE id = ?", (ids[0],))


def foreign_rewind(db: sqlite3.Connection, ids: list[int]) -> None:
    if "active" in {row[1] for row in db.execute("PRAGMA table_info(messages)")}:
        db.execute("UPDATE messages SET active = 0 WHERE id >= ? AND session_id = 's'", (ids[-1],))


def foreign_compaction(db: sqlite3.Connection, ids: list[int]) -> None:
    if "active" in {row[1] for row in db.execute("PRAGMA table_info(messages)")}:
        db.execute("UPDATE messages SET active = 0, compacted = 1 WHERE session_id = 's' AND id <= ?", (ids[0],))
    foreign_append(db, ids)


def foreign_delete(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("DELETE FROM messages WHERE id = ?", (ids[-1],))


def foreign_replace(db: sqlite3.Connection, ids: list[int]) -> None:
    values = (ids[-1], "s", "user", "instead", 1.0)
    db.execute("REPLACE INTO messages (id, session_id, role, content, timestamp) VALUES (?, ?, ?, ?, ?)", values)


def foreign_author(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("INSERT OR REPLACE INTO hermes_message_extra (message_id, author_name) VALUES (?, 'Bo')", (ids[0],))


def foreign_repair(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("INSERT OR REPLACE INTO hermes_mended VALUES (?, 0, 'test', 1.0)", (ids[0],))


def foreign_rename(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("UPDATE hermes_message_extra SET author_name = 'Cy' WHERE message_id = ?", (ids[0],))


def foreign_unname(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("DELETE FROM hermes_message_extra WHERE message_id = ?", (ids[0],))


def foreign_second_thought(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("UPDATE hermes_mended SET shown = 1")


def foreign_undone_repair(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("DELETE FROM hermes_mended")


def foreign_insertion(db: sqlite3.Connection, ids: list[int]) -> None:
    between = db.execute(
        "SELECT min(id) - 1 FROM messages WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM messages WHERE id = ?1 - 1)",
        (ids[-1],),
    )
    if (free := between.fetchone()[0]) is not None:
        values = (free, "s", "user", "squeezed in", 1.0)
        db.execute("INSERT INTO messages (id, session_id, role, content, timestamp) VALUES (?, ?, ?, ?, ?)", values)


def foreign_resumption(db: sqlite3.Connection, ids: list[int]) -> None:
    db.execute("UPDATE hermes_compressions SET summary = summary || '.'")


def foreign_recompression(db: sqlite3.Connection, ids: list[int]) -> None:
    taken = db.execute("SELECT * FROM hermes_compressions").fetchall()
    db.execute("DELETE FROM hermes_compressions")
    marks = "?, ?, ?, ?, ?, ? || '?', ?, ?"
    db.executemany(f"INSERT INTO hermes_compressions VALUES ({marks})", [tuple(row) for row in taken])


def foreign_compression(db: sqlite3.Connection, ids: list[int]) -> None:
    row = (ids[0], ids[0], json.dumps([]), "theirs")
    db.execute(
        "INSERT INTO hermes_compressions SELECT 's', coalesce(max(epoch), 0) + 1, max(?1, "
        "coalesce(max(horizon_message_id), 0)), max(?2, coalesce(max(upto_message_id), 0)), ?3, ?4, "
        "'x' || count(*) || random(), 1.0 FROM hermes_compressions WHERE session_id = 's'",
        row,
    )


OWN: list[Own] = [say, begin_a_call, say_elsewhere, compress, hide, restore, begin_anew]
FOREIGN: list[Foreign] = [
    foreign_append,
    foreign_edit,
    foreign_rewind,
    foreign_compaction,
    foreign_delete,
    foreign_replace,
    foreign_author,
    foreign_rename,
    foreign_unname,
    foreign_repair,
    foreign_second_thought,
    foreign_undone_repair,
    foreign_insertion,
    foreign_compression,
    foreign_resumption,
    foreign_recompression,
]
GENTLE: frozenset[Own] = frozenset({say, begin_a_call, say_elsewhere})
"""What needs no second reading of what was read."""


@dataclass(frozen=True)
class ByUs:
    act: Own


@dataclass(frozen=True)
class ByOthers:
    act: Foreign


@dataclass(frozen=True)
class Look:
    """The next request is made. Several things may have happened since the last one."""


Step: TypeAlias = ByUs | ByOthers | Look
STEPS = st.lists(st.sampled_from(OWN).map(ByUs) | st.sampled_from(FOREIGN).map(ByOthers) | st.just(Look()), max_size=16)


def make_early(path: Path) -> None:
    """A file of an early version, which has none of the columns that came later."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE sessions ({SESSION_6})")
        db.execute(f"CREATE TABLE messages ({MESSAGE_6})")


@pytest.mark.stress
@pytest.mark.contract("1.4", "1.5", "3.5")
@pytest.mark.parametrize("early", [False, True])
@settings(max_examples=scale(20, 1_000))
@given(STEPS)
def test_what_is_kept_equals_what_the_store_holds_after_anything_that_anyone_did(
    early: bool, steps: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        if early:
            make_early(path)
        asyncio.run(_replay(path, steps))


async def _replay(path: Path, steps: list[Step]) -> None:
    renderings = Renderings(least=0)
    async with await Store.open(path, clock=StillClock(1.0), lock_timeout=10) as store:
        for name in ("s", "other"):
            await store.create_session("cli", session_id=name)
            await store.append(name, Draft("user", "first"))
        stamp = await store.look(store.lines.stamp)
        last = await renderings.current(store, "s", stamp)
        gentle = True
        for step in [*steps, Look()]:
            if isinstance(step, Look):
                last, before = await renderings.current(store, "s", stamp), last
                check_same(last, await store.view("s"))
                assert not gentle or before.wire[0] is last.wire[0], "what is known was read again"
                gentle = bool(last.wire)
            else:
                await _act(path, store, step)
                gentle = gentle and isinstance(step, ByUs) and step.act in GENTLE


async def _act(path: Path, store: Store, step: ByUs | ByOthers) -> None:
    ids = [message.id for message in (await store.view("s")).messages] or [1]
    if isinstance(step, ByUs):
        await step.act(store, ids)
        return
    with closing(sqlite3.connect(path, timeout=10)) as other, other:
        step.act(other, ids)


@pytest.mark.parametrize("by_us", [False, True])
@pytest.mark.parametrize("act", FOREIGN, ids=lambda act: act.__name__)
@pytest.mark.parametrize("place", [0, -1])
async def test_any_change_of_a_row_is_seen_by_the_next_request(
    store: Store, act: Foreign, place: int, by_us: bool
) -> None:
    """Our own connection, too, is watched rather than trusted."""
    early = Renderings(least=0)
    ids = await _fill(store)
    stamp = await store.look(store.lines.stamp)
    check_same(await early.current(store, "s", stamp), await store.view("s"))
    if by_us:
        await store.write(lambda tx: act(tx, ids[place:]))
    else:
        with closing(sqlite3.connect(store.db.path, timeout=10)) as other, other:
            act(other, ids[place:])
    late = Renderings(least=0)
    for _ in range(2):  # the second one began to read after the change, with a stamp from before it
        check_same(await early.current(store, "s", stamp), await store.view("s"))
        check_same(await late.current(store, "s", stamp), await store.view("s"))
        await store.append("s", Draft("user", "more"))


async def _fill(store: Store) -> list[int]:
    """A session with authors, a gap between two ids, a hidden message and a compression. Gives the ids of its tail."""
    await store.create_session("cli", session_id="s")
    await store.create_session("cli", session_id="other")
    authors = ["Ada", "Ada", None, "Ada", "Ada", "Ada"]
    said = await store.append("s", *[Draft("user", f"m{n}", author_name=name) for n, name in enumerate(authors)])
    await store.append("other", Draft("user", "noise"))
    said += await store.append("s", Draft("user", "last", author_name="Ada"))
    await store.write(lambda tx: tx.execute("DELETE FROM messages WHERE session_id = 'other'"))
    await store.write(lambda tx: hide_rows(tx, [said[3].id], "test", now=1.0))
    made = Compression("s", 1, said[1].id, said[-1].id, (said[0].id,), "summary", "x", 1.0)
    await store.write(lambda tx: store.compressions.commit(tx, made))
    return [message.id for message in (await store.view("s")).tail]


async def test_a_session_that_was_deleted_is_not_found_though_it_was_kept(store: Store) -> None:
    renderings = Renderings(least=0)
    await store.create_session("cli", session_id="s")
    stamp = await store.look(store.lines.stamp)
    await renderings.current(store, "s", stamp)
    await store.write(lambda tx: store.deletions.delete(tx, "s"))
    with pytest.raises(NotFoundError):
        await renderings.current(store, "s", stamp)


async def test_only_long_views_are_kept_and_never_more_than_the_limit(store: Store) -> None:
    renderings = Renderings(largest=15_000, least=10)
    stamp = await store.look(store.lines.stamp)
    first: dict[str, Rendering] = {}
    for name, count in {"short": 9, "huge": 100, "one": 20, "two": 20, "three": 20}.items():
        await store.create_session("cli", session_id=name)
        await store.append(name, *[Draft("user", f"{n}" * 50) for n in range(count)])
        stamp = await store.look(store.lines.stamp)
        first[name] = await renderings.current(store, name, stamp)
    again = {name: await renderings.current(store, name, stamp) for name in ("three", "two", "one", "short", "huge")}
    kept = {name for name in first if again[name].wire[0] is first[name].wire[0]}
    assert first["two"].size + first["three"].size <= 15_000 < first["huge"].size
    assert kept == {"two", "three"}


REWIND = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1], timeout=10) as db:
    db.execute("UPDATE messages SET active = 0 WHERE content = 'forget this'")
"""


@pytest.mark.processes
@pytest.mark.contract("1.6")
async def test_what_another_process_took_back_between_two_turns_is_not_said_to_the_model_again(store: Store) -> None:
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
    assert model.requests[1].messages[1] is model.requests[0].messages[1], "it was kept between two turns"
