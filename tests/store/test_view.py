"""The live view: no message after the horizon is ever hidden, in whatever order messages and compressions arrive."""

from __future__ import annotations

import asyncio
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes.errors import HermesError, NotFoundError, StaleError, UsageError
from hermes.store.compressions import grow, live_view
from hermes.store.ids import snapshot_id, snapshot_session
from hermes.store.store import Store
from hermes.types import Compression, Draft, LiveView, Message
from tests.store.still_clock import StillClock

IDS = st.integers(1, 40)
MESSAGES = st.lists(
    st.builds(
        lambda key, own: Message(key, "s" if own else "other", "user", f"m{key}", float(key)), IDS, st.booleans()
    ),
    max_size=30,
)
COMPRESSIONS = st.builds(
    lambda horizon, kept, summary: Compression("s", 1, horizon, horizon, tuple(kept), summary, "x", 1.0),
    st.integers(0, 45),
    st.lists(IDS, max_size=8),
    st.text(max_size=5),
)


@pytest.mark.contract("3.4", "3.5")
@given(MESSAGES, COMPRESSIONS)
def test_every_message_after_the_horizon_is_shown_once_in_order(given: list[Message], made: Compression) -> None:
    own = {message.id for message in given if message.session_id == "s"}
    view = live_view("s", made, given)
    assert [m.id for m in view.tail] == sorted(key for key in own if key > made.horizon_message_id)
    assert {m.id for m in view.head} == {key for key in own & set(made.kept_ids) if key <= made.horizon_message_id}
    assert [m.id for m in view.messages] == sorted({m.id for m in view.messages})
    assert {m.session_id for m in view.messages} <= {"s"}
    assert (view.summary, view.epoch) == (made.summary, made.epoch)


@given(MESSAGES, st.none() | COMPRESSIONS, st.randoms(use_true_random=False))
def test_order_repetition_and_hidden_messages_make_no_difference(
    given: list[Message], made: Compression | None, chance: random.Random
) -> None:
    unique = list({message.id: message for message in given}.values())
    view = live_view("s", made, unique)
    shuffled = unique * 2
    chance.shuffle(shuffled)
    assert live_view("s", made, shuffled) == view
    assert live_view("s", made, view.messages) == view


@given(MESSAGES, st.none() | COMPRESSIONS, IDS)
def test_a_view_that_grew_is_the_view_of_everything(given: list[Message], made: Compression | None, cut: int) -> None:
    own = sorted({m.id: m for m in given if m.session_id == "s"}.values(), key=lambda message: message.id)
    cut = max(cut, made.horizon_message_id if made else 0)
    seen = live_view("s", made, [message for message in own if message.id <= cut])
    assert grow(seen, [message for message in own if message.id > cut]) == live_view("s", made, own)


@dataclass(frozen=True)
class Append:
    count: int
    elsewhere: int


@dataclass(frozen=True)
class Compress:
    horizon: int
    kept: frozenset[int]
    late: int
    """Messages that arrive between the compressor's reading and its commit."""


STEPS = st.lists(
    st.builds(Append, st.integers(1, 3), st.integers(0, 2))
    | st.builds(Compress, st.integers(0, 30), st.frozensets(st.integers(1, 30), max_size=4), st.integers(0, 2)),
    max_size=9,
)


@pytest.mark.contract("1.5", "3.2", "3.5")
@given(STEPS)
def test_snapshots_and_live_view_hold_the_whole_history(steps: list[Append | Compress]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_replay(Path(folder), steps))


async def _replay(folder: Path, steps: list[Append | Compress]) -> None:
    async with await Store.open(folder / "state.db", clock=StillClock(1.0), lock_timeout=10) as store:
        await store.create_session("cli", session_id="s")
        await store.create_session("cli", session_id="other")
        said: list[Message] = []
        before: dict[str, LiveView] = {}
        known = await store.view("s")
        for number, step in enumerate(steps):
            if isinstance(step, Append):
                await store.append("other", *[Draft("user", "noise")] * step.elsewhere)
                said += await store.append("s", *[Draft("user", f"step {number}")] * step.count)
            else:
                seen = await store.view("s")
                made = _compression(step, number, said, await _latest(store))
                said += await store.append("s", *[Draft("user", "late")] * step.late)
                await commit(store, made)
                before[made.snapshot_id] = seen
            await _check(store, said, before)
            known, earlier = await store.view_since(known), known
            assert known == await store.view("s")
            if earlier.tail and known.epoch == earlier.epoch:
                assert known.tail[0] is earlier.tail[0], "what is known was read again"


def _compression(step: Compress, number: int, said: list[Message], latest: Compression | None) -> Compression:
    """Any horizon from the one in force to the newest message, and any of the session's messages kept."""
    floor = latest.horizon_message_id if latest else 0
    upto = said[-1].id if said else 0
    horizon = max(floor, min(step.horizon, upto))
    kept = tuple(message.id for message in said if message.id in step.kept and message.id <= horizon)
    epoch = latest.epoch + 1 if latest else 1
    return Compression("s", epoch, horizon, upto, kept, f"summary {number}", snapshot_id("s", float(number)), 1.0)


async def _latest(store: Store) -> Compression | None:
    return await store.read(lambda tx: store.compressions.latest(tx, "s"))


async def _check(store: Store, said: list[Message], before: dict[str, LiveView]) -> None:
    view, latest = await store.view("s"), await _latest(store)
    assert view == live_view("s", latest, said)
    shown = {message.id for message in view.messages}
    for name, seen in before.items():
        snapshot = await _snapshot(store, name)
        assert snapshot == seen
        assert snapshot_session(name) == "s"
        shown |= {message.id for message in snapshot.messages}
    assert shown == {message.id for message in said}
    assert await store.read(lambda tx: list(store.messages.history(tx, "s"))) == said


async def _snapshot(store: Store, name: str) -> LiveView:
    return await store.read(lambda tx: store.compressions.snapshot(tx, name))


async def commit(store: Store, made: Compression) -> None:
    await store.write(lambda tx: store.compressions.commit(tx, made))


async def three_messages(store: Store) -> tuple[list[Message], Compression]:
    await store.create_session("cli", session_id="s")
    said = await store.append("s", *(Draft("user", word) for word in ("one", "two", "three")))
    made = Compression("s", 1, said[1].id, said[2].id, (said[0].id,), "sum", snapshot_id("s", 1.0), 1.0)
    return said, made


async def refused(store: Store, made: Compression, kind: type[HermesError]) -> None:
    before = await store.view("s"), await store.read(lambda tx: store.compressions.all(tx, "s"))
    with pytest.raises(kind):
        await commit(store, made)
    assert (await store.view("s"), await store.read(lambda tx: store.compressions.all(tx, "s"))) == before


@pytest.mark.contract("3.3")
async def test_stale_compressor_is_refused_and_changes_nothing(store: Store) -> None:
    _, made = await three_messages(store)
    await commit(store, made)
    await refused(store, replace(made, snapshot_id="another"), StaleError)
    await refused(store, replace(made, epoch=3, snapshot_id="another"), StaleError)


async def test_of_two_compressors_at_once_one_wins(store: Store) -> None:
    _, made = await three_messages(store)
    rivals = [replace(made, summary=f"by {name}", snapshot_id=f"s{name}") for name in "abcd"]
    results = await asyncio.gather(*(commit(store, rival) for rival in rivals), return_exceptions=True)
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, StaleError) for result in results) == 3
    winner = rivals[results.index(None)]
    assert (await store.view("s")).summary == winner.summary


@pytest.mark.contract("3.4")
async def test_horizon_cannot_move_back_nor_cover_what_nobody_has_seen(store: Store) -> None:
    said, made = await three_messages(store)
    await refused(store, replace(made, horizon_message_id=said[2].id + 1, upto_message_id=said[2].id + 1), UsageError)
    await refused(store, replace(made, upto_message_id=said[0].id), UsageError)
    await refused(store, replace(made, kept_ids=(said[2].id,)), UsageError)
    await commit(store, made)
    await refused(
        store, replace(made, epoch=2, horizon_message_id=said[0].id, kept_ids=(), snapshot_id="b"), UsageError
    )


async def test_kept_message_that_another_program_rewound_is_hidden(store: Store) -> None:
    said, made = await three_messages(store)
    await commit(store, made)
    await store.write(lambda tx: tx.execute("UPDATE messages SET active = 0 WHERE id = ?", (said[0].id,)).rowcount)
    assert (await store.view("s")).messages == (said[2],)


@pytest.mark.contract("3.2")
async def test_snapshot_is_no_session(store: Store) -> None:
    _, made = await three_messages(store)
    await commit(store, made)
    name = made.snapshot_id
    listed = await store.read(lambda tx: store.sessions.recent(tx, limit=9, everything=True))
    assert [entry.session.id for entry in listed] == ["s"]
    for door in (store.view(name), store.append(name, Draft("user", "x"))):
        with pytest.raises(NotFoundError):
            await door
    with pytest.raises(NotFoundError):
        await store.write(lambda tx: store.routes.bind(tx, "k", name, now=1.0))
    with pytest.raises(UsageError, match="name of a snapshot"):
        await store.create_session("cli", session_id=name)


async def test_view_of_a_session_that_is_not_there_is_an_error_not_empty(store: Store) -> None:
    with pytest.raises(NotFoundError):
        await store.view("nobody")
    with pytest.raises(NotFoundError):
        await _snapshot(store, "nobody.snapshot.20260101T000000Z")
