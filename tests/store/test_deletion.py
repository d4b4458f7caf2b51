"""A deletion announces what it removes, and removes exactly that."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.db import queue
from hermes.db.engine import Tx
from hermes.errors import NotFoundError
from hermes.scope import OWNER
from hermes.store.deletion import Deletion
from hermes.store.store import Store
from hermes.types import Compression, Draft
from tests.store import old_files as old
from tests.store.still_clock import StillClock

BOTH = pytest.mark.parametrize("build", [old.early_file, old.current_file])
CHAIN = (old.PARENT, old.CHILD, old.GRANDCHILD)


async def opened(path: Path) -> Store:
    return await Store.open(path, clock=StillClock(10_000.0), lock_timeout=10)


async def found(store: Store, text: str) -> list[str]:
    hits = await store.read(lambda tx: store.search.find(tx, text, OWNER, limit=50))
    return sorted(hit.message.session_id for hit in hits)


async def delete(store: Store, session_id: str) -> Deletion:
    planned = await store.read(lambda tx: store.deletions.plan(tx, session_id))
    done = await store.write(lambda tx: store.deletions.delete(tx, session_id))
    assert done == planned
    return done


async def fill(store: Store, session_id: str) -> None:
    """Give a session something in every table of ours."""
    stored = await store.append(session_id, Draft("user", "walrus", platform_message_id="p"), Draft("user", "more"))
    snapshot = f"{session_id}.snapshot.20260101T000000Z"
    compression = Compression(session_id, 1, stored[0].id, stored[1].id, (), "walrus summary", snapshot, 1.0)
    await store.write(lambda tx: store.compressions.commit(tx, compression))
    await store.write(lambda tx: store.routes.bind(tx, f"key of {session_id}", session_id, now=1.0))
    await store.write(lambda tx: store.sessions.set_title(tx, session_id, f"title of {session_id}"))
    await store.write(
        lambda tx: queue.enqueue(tx, "inbox", session_id, "telegram:7:42", "walrus", now=1.0, session_id=session_id)
    )
    await store.index()


@pytest.mark.contract("1.8")
@BOTH
async def test_deleting_a_rotated_conversation_takes_its_lineage_and_leaves_no_trace(
    tmp_path: Path, build: old.Builder
) -> None:
    file = build(tmp_path)
    async with await opened(file.path) as store:
        await fill(store, old.GRANDCHILD)
        done = await delete(store, old.CHILD)
        assert (done.session_ids, done.messages, done.snapshots, done.queued) == (CHAIN, 6, 1, 1)
        assert done.routes == (3 if file.schema == 22 else 1)
        assert await found(store, "walrus") == []
        assert await found(store, "tulips") == []
        assert await store.read(lambda tx: store.routes.lookup(tx, old.KEY)) is None
        with pytest.raises(NotFoundError):
            await store.view(old.GRANDCHILD)
    # Lanes keep a name, full-text pages keep words until SQLite merges them: neither can be read as a message.
    passed_over = ("async_delegations", "hermes_lanes", "hermes_search_data", "messages_fts_data")
    for table in old.tables_of(file.path):
        if table.startswith(passed_over) or table.endswith("trigram_data"):
            continue
        rows = repr(old.dump(file.path, [table])[table])
        assert not [key for key in (*CHAIN, "walrus") if key in rows], table


@BOTH
async def test_old_full_text_tables_lose_the_deleted_messages(tmp_path: Path, build: old.Builder) -> None:
    file = build(tmp_path)
    indexes = [name for name in old.tables_of(file.path) if name in ("messages_fts", "messages_fts_trigram")]
    for index in indexes:
        assert file.rows(f"SELECT count(*) FROM {index} WHERE {index} MATCH 'tulips'") == [(2,)]
    async with await opened(file.path) as store:
        await delete(store, old.PARENT)
    for index in indexes:
        assert file.rows(f"SELECT count(*) FROM {index} WHERE {index} MATCH 'tulips'") == [(0,)]
        file.run(f"INSERT INTO {index}({index}) VALUES ('integrity-check')")


@BOTH
async def test_branches_survive_detached(tmp_path: Path, build: old.Builder) -> None:
    async with await opened(build(tmp_path).path) as store:
        await store.index()
        await delete(store, old.PARENT)
        for key in (old.BRANCH, old.SUBAGENT, old.ORPHAN):
            assert await parent(store, key) is None
        assert [message.content for message in (await store.view(old.BRANCH)).messages] == ["branch question"]
        assert await found(store, "branch") == [old.BRANCH]


async def parent(store: Store, session_id: str) -> str | None:
    return (await store.read(lambda tx: store.sessions.get(tx, session_id))).parent_session_id


@BOTH
@pytest.mark.parametrize("key", [old.BRANCH, old.ORPHAN, old.CLIENT])
async def test_deleting_offshoots_leaves_the_conversation(tmp_path: Path, build: old.Builder, key: str) -> None:
    async with await opened(build(tmp_path).path) as store:
        assert (await delete(store, key)).session_ids == (key,)
        assert await store.read(lambda tx: store.sessions.lineage(tx, old.PARENT)) == list(CHAIN)
        assert len((await store.view(old.PARENT)).messages) == 2


async def test_child_left_behind_without_a_mark_does_not_take_the_conversation_with_it(tmp_path: Path) -> None:
    file = old.current_file(tmp_path)
    file.run(f"UPDATE sessions SET end_reason = NULL, ended_at = NULL, started_at = 199.9 WHERE id = '{old.ORPHAN}'")
    file.run(f"UPDATE sessions SET ended_at = 199.8 WHERE id = '{old.PARENT}'")
    async with await opened(file.path) as store:
        assert (await delete(store, old.ORPHAN)).session_ids == (old.ORPHAN,)
        assert await store.read(lambda tx: store.sessions.lineage(tx, old.CHILD)) == list(CHAIN)


@pytest.mark.contract("1.8")
async def test_side_table_values_are_deleted_too(tmp_path: Path) -> None:
    file = old.strange_file(tmp_path)
    async with await opened(file.path) as store:
        await fill(store, old.ODD)
        assert file.rows("SELECT count(*) FROM hermes_message_extra") == [(1,)]
        await delete(store, old.ODD)
    for table in ("hermes_message_extra", "hermes_session_extra", "hermes_search_rows", "sessions", "messages"):
        assert file.rows(f"SELECT count(*) FROM {table}") == [(0,)], table


@pytest.mark.parametrize(
    "change", ["content = 'changed by someone, and now very much longer than it was'", "content = NULL"]
)
async def test_text_that_another_program_changed_does_not_break_deletion_or_search(store: Store, change: str) -> None:
    kept, gone = await store.create_session("cli"), await store.create_session("cli")
    await store.append(kept.id, Draft("user", "kept words"))
    await store.append(gone.id, Draft("user", "gone words"), Draft("user", None))
    await store.index()
    old.OldFile(store.db.path, 0).run(f"UPDATE messages SET {change} WHERE session_id = '{gone.id}'")
    await delete(store, gone.id)
    await store.index()
    assert await found(store, "words") == [kept.id]
    assert await found(store, "gone") == []


async def test_message_that_got_its_text_after_indexing_does_not_break_deletion(store: Store) -> None:
    session = await store.create_session("cli")
    await store.append(session.id, Draft("user", None))
    await store.index()
    old.OldFile(store.db.path, 0).run("UPDATE messages SET content = 'late text'")
    await delete(store, session.id)
    assert await found(store, "late") == []


async def test_deleting_before_the_index_has_seen_a_message_is_fine(store: Store) -> None:
    session = await store.create_session("cli")
    await store.append(session.id, Draft("user", "early bird"))
    await delete(store, session.id)
    await store.index()
    assert await found(store, "bird") == []


async def test_session_that_is_not_there_cannot_be_deleted(store: Store) -> None:
    with pytest.raises(NotFoundError):
        await delete(store, "nobody")


async def test_compression_that_finishes_after_the_deletion_writes_nothing(store: Store) -> None:
    session = await store.create_session("cli")
    (message,) = await store.append(session.id, Draft("user", "secret"))
    late = Compression(session.id, 1, message.id, message.id, (), "secret summary", "s", 1.0)
    await delete(store, session.id)
    with pytest.raises(NotFoundError):
        await store.write(lambda tx: store.compressions.commit(tx, late))
    assert await store.read(lambda tx: store.compressions.all(tx, session.id)) == []


def occupy(tx: Tx, column: str, value: str | int) -> list[str]:
    """Put a row with this value into every table of ours that has the column; returns their names."""
    tables = tx.execute(
        "SELECT t.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table' "
        "AND t.name GLOB 'hermes_*' AND t.name NOT GLOB 'hermes_search*' AND c.name = ?",
        (column,),
    ).fetchall()
    for (table,) in tables:
        info = tx.execute(f"PRAGMA table_info({table})").fetchall()
        needed = [row["name"] for row in info if row["notnull"] and row["dflt_value"] is None]
        values = {**dict.fromkeys(needed, "1"), column: value}
        tx.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", [*values.values()]
        )
    return [table for (table,) in tables]


@pytest.mark.contract("1.8")
async def test_every_table_of_ours_that_is_kept_per_session_is_emptied(store: Store) -> None:
    session = await store.create_session("cli")
    tables = await store.write(lambda tx: occupy(tx, "session_id", session.id))
    assert {"hermes_compressions", "hermes_queue", "hermes_routes"} <= set(tables)
    await delete(store, session.id)
    file = old.OldFile(store.db.path, 0)
    still = [
        table for table in tables if file.rows(f"SELECT count(*) FROM {table} WHERE session_id IS NOT NULL") != [(0,)]
    ]
    assert still == []
    assert file.rows("SELECT payload, lane FROM hermes_queue") == [("null", "")], "only the key stays, against replays"


@pytest.mark.contract("1.8")
async def test_every_table_of_ours_that_is_kept_per_message_is_emptied(store: Store) -> None:
    session = await store.create_session("cli")
    (message,) = await store.append(session.id, Draft("user", "secret"))

    def occupy_both(tx: Tx) -> tuple[list[str], list[str]]:
        return occupy(tx, "session_id", session.id), occupy(tx, "message_id", message.id)

    per_session, per_message = await store.write(occupy_both)
    tables = set(per_message) - set(per_session)
    assert {"hermes_message_extra", "hermes_hidden", "hermes_memory_told"} <= tables
    await delete(store, session.id)
    file = old.OldFile(store.db.path, 0)
    assert [table for table in tables if file.rows(f"SELECT count(*) FROM {table}") != [(0,)]] == []
