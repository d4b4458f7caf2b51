"""Retracted turns are in no view, list or search, and no row of them is lost."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.db.engine import Tx
from hermes.errors import HermesError, StaleError, UsageError
from hermes.scope import OWNER
from hermes.store.held_lease import take, wanted_lease
from hermes.store.hidden import Undoing, find_undoing, restore_rows
from hermes.store.ids import compression_lease, snapshot_id
from hermes.store.last_turns import ConversationTurn, split_turns
from hermes.store.store import Store
from hermes.types import Compression, Draft, Message
from tests.store import old_files as old
from tests.store.still_clock import StillClock


async def undo(store: Store, session_id: str, count: int = 1, cause: str = "c") -> Undoing:
    def run(tx: Tx) -> Undoing:
        return store.turns.undo(tx, cause, store.turns.last(tx, session_id, count), now=store.clock.now())

    return await store.write(run)


async def retried(store: Store, session_id: str, cause: str = "r") -> ConversationTurn:
    def run(tx: Tx) -> ConversationTurn:
        [turn] = store.turns.last(tx, session_id)
        store.turns.undo_reply(tx, cause, turn, now=store.clock.now())
        return turn

    return await store.write(run)


async def live(store: Store, session_id: str = "s") -> list[str | None]:
    return [message.content for message in (await store.view(session_id)).messages]


async def history(store: Store, session_id: str = "s") -> list[str | None]:
    return [m.content for m in await store.read(lambda tx: list(store.messages.history(tx, session_id)))]


async def taken_back(store: Store, session_id: str = "s") -> list[str | None]:
    return [m.content for m in await store.read(lambda tx: list(store.messages.undone(tx, session_id)))]


def turn(text: str) -> list[Draft]:
    return [Draft("user", text), Draft("assistant", f"re: {text}")]


@pytest.mark.contract("10.25")
async def test_retracted_turns_are_in_no_view_list_or_search_but_stay_in_the_file(
    store: Store, clock: StillClock
) -> None:
    await store.create_session("cli", session_id="s")
    for text in ("stamps", "figs", "tulips"):
        await clock.sleep(1)
        await store.append("s", *turn(text))
    await store.index()
    done = await undo(store, "s", 2)
    assert (done.turns, done.messages) == (2, 4)
    assert await live(store) == await history(store) == ["stamps", "re: stamps"]
    assert await taken_back(store) == ["figs", "re: figs", "tulips", "re: tulips"]
    for word, count in (("stamps", 2), ("figs", 0), ("tulips", 0)):
        found = await store.read(lambda tx, word=word: store.search.find(tx, word, OWNER, limit=9))  # type: ignore[misc]
        assert len(found) == count, word
    [listed] = await store.read(lambda tx: store.sessions.recent(tx, limit=9))
    assert listed.session.message_count == 2
    await clock.sleep(1)
    await store.append("s", *turn("roses"))
    assert await live(store) == ["stamps", "re: stamps", "roses", "re: roses"]
    assert await store.read(lambda tx: tx.execute("SELECT count(*) FROM messages").fetchone()[0]) == 8


@pytest.mark.contract("10.25")
async def test_repeated_command_finds_its_earlier_retraction(store: Store) -> None:
    await store.create_session("cli", session_id="s")
    await store.append("s", *turn("stamps"))
    done = await undo(store, "s", cause="item 7")
    assert await store.read(lambda tx: find_undoing(tx, "item 7")) == done
    assert await store.read(lambda tx: find_undoing(tx, "item 8")) is None


@pytest.mark.contract("10.26")
async def test_a_reply_is_taken_back_and_the_person_s_message_stays(store: Store) -> None:
    await store.create_session("cli", session_id="s")
    await store.append("s", *turn("stamps"))
    [again] = (await retried(store, "s")).said
    assert again.content == "stamps"
    assert await live(store) == ["stamps"]
    assert (await retried(store, "s", "r2")).after == ()
    undoing = await store.read(lambda tx: find_undoing(tx, "r"))
    assert undoing is not None
    assert undoing.turns == 0
    assert await store.read(lambda tx: find_undoing(tx, "r2")) is None, "there was nothing to take back"


def message(key: int, role: str, at: float) -> Message:
    return Message(key, "s", role, f"m{key}", at)


def test_messages_of_one_commit_form_one_turn() -> None:
    joined = [message(1, "user", 1.0), message(2, "user", 1.0), message(3, "assistant", 2.0)]
    failed = [message(4, "user", 3.0), message(5, "user", 4.0), message(6, "tool", 4.0), message(7, "assistant", 5.0)]
    before = message(0, "assistant", 0.5)
    assert split_turns([before, *joined, *failed]) == [
        ConversationTurn((joined[0], joined[1]), (joined[2],)),
        ConversationTurn((failed[0],)),
        ConversationTurn((failed[1],), (failed[2], failed[3])),
    ]


@pytest.mark.contract("10.25")
async def test_a_turn_that_is_summarised_is_refused_with_the_reason(store: Store, clock: StillClock) -> None:
    await store.create_session("cli", session_id="s")
    with pytest.raises(UsageError, match="nothing was said yet"):
        await undo(store, "s")
    said = []
    for text in ("one", "two", "three"):
        await clock.sleep(1)
        said += await store.append("s", *turn(text))
    with pytest.raises(UsageError, match="there are only 3 turns to take back"):
        await undo(store, "s", 4)
    made = Compression("s", 1, said[3].id, said[5].id, (said[0].id,), "sum", snapshot_id("s", 1.0), 1.0)
    await store.write(lambda tx: store.compressions.commit(tx, made))
    with pytest.raises(UsageError, match=r"only one turn can be taken back: .* part of a summary"):
        await undo(store, "s", 2)
    await undo(store, "s", 1)
    with pytest.raises(UsageError, match=r"nothing can be taken back: .* part of a summary"):
        await undo(store, "s", 1)
    assert await live(store) == ["one"]


@pytest.mark.contract("10.25")
async def test_turns_that_were_summarised_since_they_were_read_are_refused(store: Store) -> None:
    await store.create_session("cli", session_id="s")
    said = await store.append("s", *turn("one"))
    turns = await store.read(lambda tx: store.turns.last(tx, "s"))
    made = Compression("s", 1, said[1].id, said[1].id, (), "sum", snapshot_id("s", 1.0), 1.0)
    await store.write(lambda tx: store.compressions.commit(tx, made))
    with pytest.raises(UsageError, match="part of a summary"):
        await store.write(lambda tx: store.turns.undo(tx, "c", turns, now=1.0))
    assert await history(store) == ["one", "re: one"]


@pytest.mark.contract("10.25")
async def test_compression_of_turns_retracted_meanwhile_is_refused(store: Store) -> None:
    await store.create_session("cli", session_id="s")
    await store.append("s", *turn("stamps"))
    held = await take(store, wanted_lease(store, "a test", compression_lease("s"), "another process", 60.0))
    assert held is not None
    await undo(store, "s")
    with pytest.raises(StaleError):
        await store.read(held.check)


async def open_old(file: old.OldFile) -> Store:
    return await Store.open(file.path, clock=StillClock(9e8), lock_timeout=10)


@pytest.mark.contract("1.4", "10.9", "10.25")
@pytest.mark.parametrize("build", [old.early_file, old.current_file])
async def test_old_files_are_marked_as_they_mark_a_rewind_or_beside_the_rows(
    tmp_path: Path, build: old.Builder
) -> None:
    async with await open_old(build(tmp_path)) as store:
        before = await history(store, old.CLIENT)
        await store.append(old.CLIENT, *turn("figs"))
        await undo(store, old.CLIENT)
        assert await history(store, old.CLIENT) == before
        assert await taken_back(store, old.CLIENT) == ["figs", "re: figs"]

        def marked(tx: Tx) -> int:
            has = any(row["name"] == "active" for row in tx.execute("PRAGMA table_info(messages)"))
            sql = "SELECT count(*) FROM messages WHERE active = 0 AND compacted = 0 AND content LIKE '%figs'"
            return int(tx.execute(sql).fetchone()[0]) if has else -1

        assert await store.read(marked) == (2 if build is old.current_file else -1)


@pytest.mark.contract("10.25")
async def test_rewound_messages_of_another_version_count_as_retracted(tmp_path: Path) -> None:
    async with await open_old(old.current_file(tmp_path)) as store:
        assert await taken_back(store, old.REWOUND) == ["rewound secret"]
        assert await taken_back(store, old.COMPACTED) == []


@pytest.mark.contract("10.25")
async def test_a_message_that_a_repair_showed_again_can_be_taken_back(store: Store) -> None:
    await store.create_session("cli", session_id="s")
    said = await store.append("s", *turn("stamps"))
    ids = [one.id for one in said]

    def repair(tx: Tx) -> None:
        tx.execute("UPDATE messages SET active = 0, compacted = 1")
        restore_rows(tx, ids, "test", now=1.0)

    await store.write(repair)
    assert await live(store) == ["stamps", "re: stamps"]
    await undo(store, "s")
    assert await live(store) == await history(store) == []
    assert await taken_back(store) == ["stamps", "re: stamps"]


async def test_copies_by_another_versions_compression_cannot_be_retracted(store: Store) -> None:
    await store.create_session("cli", session_id="s")
    await store.append("s", *turn("stamps"))
    await store.write(lambda tx: tx.execute("UPDATE messages SET active = 0, compacted = 1").rowcount)
    summary = Draft("user", "[CONTEXT COMPACTION] stamps")
    await store.append("s", summary, Draft("assistant", "re: stamps"))
    with pytest.raises(UsageError, match=r"nothing can be taken back: .* part of a summary"):
        await undo(store, "s")
    await store.append("s", *turn("figs"))
    await undo(store, "s")
    with pytest.raises(UsageError, match="summary"):
        await undo(store, "s", cause="c2")


@dataclass(frozen=True)
class Say:
    joined: int
    replies: int


@dataclass(frozen=True)
class Undo:
    turns: int


@dataclass(frozen=True)
class Retry:
    replies: int


@dataclass(frozen=True)
class Compress:
    leave: int


Step = Say | Undo | Retry | Compress
STEPS = st.lists(
    st.builds(Say, st.integers(1, 3), st.integers(0, 3))
    | st.builds(Undo, st.integers(1, 3))
    | st.builds(Retry, st.integers(0, 2))
    | st.builds(Compress, st.integers(0, 6)),
    max_size=14,
)


@dataclass
class Expected:
    """A model of the live messages, as three lists: turns, summarized rows, and all rows that ever existed."""

    turns: list[list[int]] = field(default_factory=list)
    summarised: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    @property
    def live(self) -> list[int]:
        return [key for one in self.turns for key in one]


@pytest.mark.contract("10.25", "10.26")
@given(STEPS)
def test_any_order_of_turns_undoings_and_compressions_keeps_order_and_loses_no_row(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_replay(Path(folder), steps))


async def _replay(folder: Path, steps: Sequence[Step]) -> None:
    clock = StillClock(1.0)
    async with await Store.open(folder / "state.db", clock=clock, lock_timeout=10) as store:
        await store.create_session("cli", session_id="s")
        expected = Expected()
        for number, step in enumerate(steps):
            await clock.sleep(1)
            await _take(store, expected, step, str(number))
            everything = await store.read(lambda tx: list(store.messages.history(tx, "s")))
            undone = await store.read(lambda tx: list(store.messages.undone(tx, "s")))
            tail = [message.id for message in (await store.view("s")).tail]
            assert tail == expected.live
            assert [message.id for message in everything] == expected.summarised + expected.live
            assert sorted(message.id for message in [*everything, *undone]) == expected.rows


async def _take(store: Store, expected: Expected, step: Step, cause: str) -> None:
    match step:
        case Say(joined, replies):
            said = await store.append("s", *[Draft("user", "said")] * joined)
            await store.clock.sleep(0.5)
            said += await store.append("s", *[Draft("assistant", "re")] * replies)
            expected.turns.append([one.id for one in said])
            expected.rows += expected.turns[-1]
        case Undo(turns) if turns <= len(expected.turns):
            await undo(store, "s", turns, cause)
            del expected.turns[-turns:]
        case Retry(replies) if expected.turns:
            again = await retried(store, "s", cause)
            said = await store.append("s", *[Draft("assistant", "re")] * replies)
            expected.turns[-1] = [one.id for one in (*again.said, *said)]
            expected.rows += [one.id for one in said]
        case Compress(leave) if expected.rows:
            await _compress(store, expected, leave)
        case Undo(turns):
            with pytest.raises(HermesError):
                await undo(store, "s", turns, cause)
        case Retry():
            with pytest.raises(HermesError):
                await retried(store, "s", cause)


async def _compress(store: Store, expected: Expected, leave: int) -> None:
    """Summarize whole turns, all but the last ones (from index `leave` on)."""
    leaving, expected.turns = expected.turns[:leave], expected.turns[leave:]
    expected.summarised += [key for one in leaving for key in one]
    latest = await store.read(lambda tx: store.compressions.latest(tx, "s"))
    epoch, floor = (latest.epoch + 1, latest.horizon_message_id) if latest else (1, 0)
    horizon = max([floor, *expected.summarised])
    made = Compression("s", epoch, horizon, expected.rows[-1], (), "sum", snapshot_id("s", float(epoch)), 1.0)
    await store.write(lambda tx: store.compressions.commit(tx, made))
