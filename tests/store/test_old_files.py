"""Files of older versions open in place: no row is rewritten, and every row keeps its meaning."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes.errors import StoreDamagedError
from hermes.scope import OWNER
from hermes.store.store import Store
from hermes.types import Draft, Session, ToolCall
from tests.store import old_files as old
from tests.store.old_files import OldFile
from tests.store.still_clock import StillClock

every_file = pytest.mark.parametrize("build", old.BUILDERS)
both_schemas = pytest.mark.parametrize("build", [old.early_file, old.current_file])


@asynccontextmanager
async def opened(file: OldFile) -> AsyncIterator[Store]:
    async with await Store.open(file.path, clock=StillClock(10_000.0), lock_timeout=10) as store:
        yield store


async def contents(store: Store, session_id: str) -> list[str | None]:
    return [message.content for message in (await store.view(session_id)).messages]


async def history(store: Store, session_id: str) -> list[str | None]:
    return await store.read(lambda tx: [message.content for message in store.messages.history(tx, session_id)])


async def lineage(store: Store, session_id: str) -> tuple[list[str], str]:
    return await store.read(lambda tx: (store.sessions.lineage(tx, session_id), store.sessions.live_id(tx, session_id)))


@pytest.mark.contract("1.4")
@every_file
async def test_opening_reading_and_indexing_rewrites_nothing(tmp_path: Path, build: old.Builder) -> None:
    file = build(tmp_path)
    tables = old.tables_of(file.path)
    before = old.dump(file.path)
    for _ in range(2):
        async with opened(file) as store:
            listed = await store.read(lambda tx: store.sessions.recent(tx, limit=100, everything=True))
            for entry in listed:
                await store.view(entry.session.id)
                await history(store, entry.session.id)
            await store.index()
            await store.read(lambda tx: store.search.find(tx, "tulips", OWNER, limit=5))
            await store.read(store.routes.all)
    assert len(tables) >= 2
    assert old.dump(file.path, tables) == before


@pytest.mark.contract("1.4")
@both_schemas
async def test_rotated_lineage_is_one_conversation_that_lives_in_its_last_child(
    tmp_path: Path, build: old.Builder
) -> None:
    async with opened(build(tmp_path)) as store:
        chain = [old.PARENT, old.CHILD, old.GRANDCHILD]
        for key in chain:
            assert await lineage(store, key) == (chain, old.GRANDCHILD)


@both_schemas
@pytest.mark.parametrize("key", [old.BRANCH, old.SUBAGENT, old.ORPHAN, old.CLIENT])
async def test_branches_subagents_and_orphans_continue_nothing(tmp_path: Path, build: old.Builder, key: str) -> None:
    async with opened(build(tmp_path)) as store:
        assert await lineage(store, key) == ([key], key)


@both_schemas
async def test_list_hides_what_a_rotation_continued_and_shows_all_else(tmp_path: Path, build: old.Builder) -> None:
    async with opened(build(tmp_path)) as store:
        listed = await store.read(lambda tx: store.sessions.recent(tx, limit=100))
        everything = await store.read(lambda tx: store.sessions.recent(tx, limit=100, everything=True))
        hidden = {entry.session.id for entry in everything} - {entry.session.id for entry in listed}
        assert hidden == {old.PARENT, old.CHILD}
        assert [entry.last_active for entry in listed] == sorted((entry.last_active for entry in listed), reverse=True)
        only = await store.read(lambda tx: store.sessions.recent(tx, limit=100, source="api_server"))
        assert [(entry.session.id, entry.preview) for entry in only] == [(old.CLIENT, "grüße aus Zürich 你好世界")]


async def test_preview_does_not_show_what_was_rewound(tmp_path: Path) -> None:
    async with opened(old.current_file(tmp_path)) as store:
        listed = await store.read(lambda tx: store.sessions.recent(tx, limit=100))
        assert {entry.session.id: entry.preview for entry in listed}[old.REWOUND] == "asked again"


@both_schemas
async def test_messages_of_a_rotated_session_are_its_own(tmp_path: Path, build: old.Builder) -> None:
    async with opened(build(tmp_path)) as store:
        assert await contents(store, old.PARENT) == ["where do the tulips grow?", "beside the wall"]
        assert await contents(store, old.GRANDCHILD) == ["and the roses?"]


async def test_compacted_rows_are_history_but_not_live_and_rewound_rows_are_neither(tmp_path: Path) -> None:
    async with opened(old.current_file(tmp_path)) as store:
        assert await contents(store, old.COMPACTED) == ["[summary] parsnips", "what now?"]
        assert await history(store, old.COMPACTED) == [
            *(f"old talk {number} of parsnips" for number in range(3)),
            "[summary] parsnips",
            "what now?",
        ]
        assert await contents(store, old.REWOUND) == ["asked again"]
        assert await history(store, old.REWOUND) == ["asked again"]


@both_schemas
async def test_null_bytes_and_broken_tool_calls_open(tmp_path: Path, build: old.Builder) -> None:
    async with opened(build(tmp_path)) as store:
        asked, told, broken, odd = (await store.view(old.ODD)).messages
        assert (asked.content, asked.tool_calls) == (None, (ToolCall("c1", "look", '{"at": "sky"}'),))
        assert (told.content, told.tool_name, told.tool_call_id) == ("\ufffd\ufffdbytes of a tool", "look", "c1")
        assert (broken.content, broken.tool_calls) == ("broken calls", ())
        assert odd.tool_calls == (ToolCall("7", "", ""), ToolCall("", "y", ""))


@both_schemas
async def test_fields_of_old_rows_are_read(tmp_path: Path, build: old.Builder) -> None:
    async with opened(build(tmp_path)) as store:
        session = await store.read(lambda tx: store.sessions.get(tx, old.PARENT))
        assert (session.title, session.user_id) == ("garden", "8439114563")
        assert (session.ended_at, session.end_reason, session.message_count) == (200.0, "compression", 2)
        assert (await store.read(lambda tx: store.sessions.get(tx, old.ODD))).message_count == 0
        answer = (await store.view(old.PARENT)).messages[1]
        assert (answer.token_count, answer.finish_reason, answer.reasoning) == (4, "stop", "walls")


@pytest.mark.contract("10.9")
@both_schemas
async def test_each_program_keeps_the_prompt_that_it_gave_a_session(tmp_path: Path, build: old.Builder) -> None:
    file = build(tmp_path)
    async with opened(file) as store:
        session = await store.read(lambda tx: store.sessions.get(tx, old.PARENT))
        assert session.system_prompt is None, "the other's prompt promises tools that we do not have"
        await store.write(lambda tx: store.sessions.set_system_prompt(tx, old.PARENT, "Be brief."))
        assert (await store.read(lambda tx: store.sessions.get(tx, old.PARENT))).system_prompt == "Be brief."
    assert file.rows("SELECT system_prompt FROM sessions WHERE id = ?", (old.PARENT,)) == [("Be kind.",)]


@every_file
async def test_appended_messages_are_seen_by_us_and_by_an_old_reader(tmp_path: Path, build: old.Builder) -> None:
    file = build(tmp_path)
    target = old.ODD if file.schema == 0 else old.GRANDCHILD
    async with opened(file) as store:
        before = await contents(store, target)
        stored = await store.append(
            target,
            Draft("user", "a lantern 灯笼", platform_message_id="p-1"),
            Draft("assistant", None, tool_calls=(ToolCall("c", "look", "{}"),), reasoning="dark", token_count=7),
            Draft("tool", "lit", tool_call_id="c", tool_name="look"),
        )
        view = await store.view(target)
        assert list(view.messages[len(before) :]) == stored
        assert [m.platform_message_id for m in stored] == ["p-1", None, None]
        assert (stored[1].tool_calls, stored[1].reasoning) == ((ToolCall("c", "look", "{}"),), "dark")
        assert (stored[2].tool_name, stored[2].tool_call_id) == ("look", "c")
    live = "active = 1 AND" if file.schema == 22 else ""
    rows = file.rows(f"SELECT id, content FROM messages WHERE {live} session_id = ? ORDER BY id", (target,))
    assert rows[-3:] == [(m.id, m.content) for m in stored]
    for index in [name for name in ("messages_fts", "messages_fts_trigram") if name in old.tables_of(file.path)]:
        assert file.rows(f"SELECT rowid FROM {index} WHERE {index} MATCH 'lantern'") == [(stored[0].id,)]


@every_file
async def test_running_count_goes_on(tmp_path: Path, build: old.Builder) -> None:
    file = build(tmp_path)
    async with opened(file) as store:
        await store.append(old.ODD, Draft("user", "a"), Draft("user", "b"))
        await store.append(old.ODD, Draft("user", "c"))
        assert (await store.read(lambda tx: store.sessions.get(tx, old.ODD))).message_count == 3


@every_file
async def test_title_and_prompt_can_be_set_and_taken_away(tmp_path: Path, build: old.Builder) -> None:
    file = build(tmp_path)
    async with opened(file) as store:
        await store.write(lambda tx: store.sessions.set_title(tx, old.ODD, "Gärten"))
        await store.write(lambda tx: store.sessions.set_system_prompt(tx, old.ODD, "Be brief."))
        await store.write(lambda tx: store.sessions.end(tx, old.ODD, "user_exit", now=5.0))
    async with opened(file) as store:
        session = await store.read(lambda tx: store.sessions.find(tx, "Gärten"))
        assert (session.id, session.system_prompt) == (old.ODD, "Be brief.")
        assert (session.ended_at, session.end_reason) == (5.0, "user_exit")
        await store.write(lambda tx: store.sessions.set_title(tx, old.ODD, None))
        assert (await store.read(lambda tx: store.sessions.get(tx, old.ODD))).title is None


async def test_side_table_value_is_still_read_after_another_program_adds_the_column(tmp_path: Path) -> None:
    file = old.strange_file(tmp_path)
    async with opened(file) as store:
        await store.write(lambda tx: store.sessions.set_title(tx, old.ODD, "beside"))
    file.run("ALTER TABLE sessions ADD COLUMN title TEXT")
    async with opened(file) as store:
        assert (await store.read(lambda tx: store.sessions.get(tx, old.ODD))).title == "beside"
        await store.write(lambda tx: store.sessions.set_title(tx, old.ODD, None))
        assert (await store.read(lambda tx: store.sessions.get(tx, old.ODD))).title is None


@every_file
async def test_new_session_has_every_field_in_every_file(tmp_path: Path, build: old.Builder) -> None:
    async with opened(build(tmp_path)) as store:
        made = await store.write(
            lambda tx: store.sessions.create(
                tx, Session("new", "telegram", 9.0, "u", "k", "c", "dm", "t", "new", "m", "s", old.ODD)
            )
        )
        assert await store.read(lambda tx: store.sessions.get(tx, made.id)) == made


async def test_rotation_is_understood_where_the_parent_is_kept_beside_the_table(tmp_path: Path) -> None:
    async with opened(old.strange_file(tmp_path)) as store:
        await store.write(lambda tx: store.sessions.end(tx, old.ODD, "compression", now=20.0))
        child = await store.write(
            lambda tx: store.sessions.create(tx, Session("child", "cli", 21.0, parent_session_id=old.ODD))
        )
        assert await store.read(lambda tx: store.sessions.live_id(tx, old.ODD)) == old.ODD, "the child holds nothing"
        await store.append(child.id, Draft("user", "[CONTEXT SUMMARY]: so far"))
        assert await store.read(lambda tx: store.sessions.lineage(tx, child.id)) == [old.ODD, child.id]
        listed = await store.read(lambda tx: store.sessions.recent(tx, limit=9))
        assert [entry.session.id for entry in listed] == [child.id]


async def test_file_without_the_columns_everything_needs_is_refused_untouched(tmp_path: Path) -> None:
    file = OldFile(tmp_path / "state.db", 0)
    file.run("CREATE TABLE sessions (id TEXT PRIMARY KEY, title TEXT)", "INSERT INTO sessions VALUES ('a', 'b')")
    before = old.dump(file.path)
    with pytest.raises(StoreDamagedError, match="table sessions has no column source, started_at"):
        await Store.open(file.path, clock=StillClock(1.0), lock_timeout=1)
    assert old.dump(file.path) == before


async def test_lone_surrogates_do_not_lose_a_message(tmp_path: Path) -> None:
    async with opened(old.current_file(tmp_path)) as store:
        (stored,) = await store.append(old.ODD, Draft("assistant", "half \ud83d a face"))
        assert stored.content == "half \ufffd a face"
        assert (await store.view(old.ODD)).messages[-1] == stored
