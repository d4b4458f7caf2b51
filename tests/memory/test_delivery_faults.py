"""Deliveries with odd outcomes, a failing store, little time, or many old rows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hermes.db.engine import Tx
from hermes.db.queue_items import items
from hermes.errors import ProviderError, StoreError
from hermes.memory.deliveries import DONE_RETENTION_SECONDS, Deliveries
from hermes.memory.mirror import Mirrored
from hermes.memory.plugin_thread import MAX_SPAWNED_TASKS, Returned
from hermes.memory.provider import DeadLetter, Delivered, Later
from hermes.store.memory_rows import get_health
from tests.compression.hand_clock import HandClock
from tests.memory.delivering import QUEUE, Refusing, left, until, until_empty
from tests.memory.providers import CONVERSATION, PATIENT, Recorder, Troubled
from tests.memory.remembering import active, begin, notes_of, say, turn


@pytest.mark.parametrize(
    "odd",
    [
        Delivered(object()),  # type: ignore[arg-type]
        Delivered("\ud800"),
        Later(None),  # type: ignore[arg-type]
        Later("no", after="soon"),  # type: ignore[arg-type]
        Later("no", after=float("nan")),
        DeadLetter(b"no"),  # type: ignore[arg-type]
    ],
)
async def test_an_outcome_that_cannot_be_recorded_is_a_reported_defect(tmp_path: Path, odd: Any) -> None:
    plugin = Refusing([odd, Delivered()])
    async with active(tmp_path, plugin, PATIENT, clock=HandClock()) as provider:  # which tries nothing again
        memory = await begin(provider)
        await memory.prompt_block(memory.begin())  # its address is known before something waits for it
        await turn(memory)

        async def failed() -> bool:
            found = await provider.store.read(lambda tx: items(tx, QUEUE, "waiting"))
            return [item.crashes for item in found] == [1, 1]

        await until(failed, provider)
        assert "deliver returned" in memory.take_notices()[0]


@pytest.mark.parametrize(("after", "waits"), [(0.0, 0.1), (-5.0, 0.1), (1e12, 86_400.0), (float("inf"), 86_400.0)])
async def test_a_plugin_can_ask_for_no_wait_without_pause_or_end(tmp_path: Path, after: float, waits: float) -> None:
    plugin, clock = Refusing([Later("x" * 100_000, after=after)]), HandClock()
    async with active(tmp_path, plugin, PATIENT, clock=clock) as provider:
        await turn(await begin(provider))

        async def refused() -> bool:
            [first, *_] = await provider.store.read(lambda tx: items(tx, QUEUE, "waiting"))
            return first.reason is not None

        await until(refused, provider)
        [first, _] = await provider.store.read(lambda tx: items(tx, QUEUE, "waiting"))
        assert first.not_before == clock.now() + waits
        assert len(first.reason or "") <= 1000


@pytest.mark.contract("6.4")
@pytest.mark.parametrize(("everyone", "longest"), [(True, 60.0), (False, 300.0)])
async def test_after_a_long_outage_a_new_server_or_key_is_noticed_soon(
    tmp_path: Path, everyone: bool, longest: float
) -> None:
    plugin, clock = Refusing([Later("down", everyone=everyone)]), HandClock()
    async with active(tmp_path, plugin, PATIENT, clock=clock, delivers=False) as provider:
        await turn(await begin(provider))
        await provider.store.write(lambda tx: tx.execute("UPDATE hermes_queue SET attempts = 50"))
        deliveries = Deliveries(provider, "test", 1, chance=lambda: 0.0)
        deliveries.start()

        async def refused() -> bool:
            [first, _] = await provider.store.read(lambda tx: items(tx, QUEUE, "waiting"))
            return first.reason == "down"

        await until(refused, provider)
        [first, _] = await provider.store.read(lambda tx: items(tx, QUEUE, "waiting"))
        assert first.not_before == clock.now() + longest
        await deliveries.finish(0.1)


async def test_rows_delivered_long_ago_are_deleted(tmp_path: Path) -> None:
    plugin, clock = Recorder(), HandClock()
    async with active(tmp_path, plugin, PATIENT, clock=clock) as provider:
        await turn(await begin(provider), "long ago")
        await until_empty(provider)
        clock.advance(DONE_RETENTION_SECONDS + 1)
        await turn(await begin(provider), "now")
        await until_empty(provider)
    async with active(tmp_path, plugin, PATIENT, clock=clock) as provider:

        async def pruned() -> bool:
            return len(await provider.store.read(lambda tx: items(tx, QUEUE, "done"))) == 2

        await until(pruned, provider)
    assert plugin.told("said") == ["long ago", "now"]


async def test_a_lane_that_was_given_back_or_had_nothing_to_send_is_no_success(tmp_path: Path) -> None:
    async with active(tmp_path, Troubled("is_available", asyncio.Event().wait), PATIENT, delivers=False) as provider:
        memory, store = await begin(provider), provider.store
        await say(memory, "hello")
        await store.write(lambda tx: tx.execute("DELETE FROM messages"))
        await store.write(lambda tx: tx.execute("UPDATE hermes_queue SET lane = 's1', not_before = 0"))
        await store.write(lambda tx: tx.execute("UPDATE hermes_lanes SET lane = 's1', due_at = 0"))
        deliveries = Deliveries(provider, "test", 1)
        deliveries.start()
        await until_empty(provider)
        await deliveries.finish(1.0)
        assert (await store.read(lambda tx: get_health(tx, "troubled"))).last_success is None


async def test_the_end_takes_no_longer_than_it_is_given_though_all_hangs(tmp_path: Path) -> None:
    plugin, over = Troubled("deliver", asyncio.Event().wait), asyncio.Event()

    async def linger() -> None:
        await over.wait()

    async with active(tmp_path, plugin, replace(PATIENT, deliver=3600), delivers=False) as provider:
        deliveries = Deliveries(provider, "test", 4)
        deliveries.start()
        await turn(await begin(provider))
        provider.background.begin(linger(), "something slow")
        async with asyncio.timeout(100):
            assert not await deliveries.finish(0.5)
        plugin.troubled = False
        over.set()


@pytest.mark.parametrize("pace", ["async", "turn"])
async def test_a_full_disk_after_the_reply_takes_nothing_away_from_the_person(
    tmp_path: Path, pace: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = Recorder()
    plugin.pace = pace
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory, store = await begin(provider), provider.store
        await turn(memory)
        await say(memory, "again")

        async def full(run: Callable[[Tx], Any]) -> Any:
            raise StoreError("the disk is full")

        with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "hermes.memory"):
            patched.setattr(store, "write", full)
            await memory.turn_over()
            await memory.before_compress([])
        assert "the disk is full" in caplog.text
        assert "said" in await left(provider)


async def test_trouble_reported_in_any_thread_is_shown_once_and_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        await turn(memory)
        with caplog.at_level(logging.WARNING, "hermes.memory"):
            for _ in range(3):
                await asyncio.to_thread(plugin.host.trouble, "config", "the file\nis broken " + "x" * 10_000)
            await asyncio.sleep(0)
        assert [record.message[:60] for record in caplog.records] == [
            "memory provider troubled: the file is broken " + "x" * 15
        ]
        [notice] = memory.take_notices()
        assert len(notice) < 1000
        await asyncio.to_thread(plugin.host.trouble, "config", None)
        await asyncio.sleep(0)
        assert "works again" in memory.take_notices()[0]


async def test_a_note_of_any_length_is_sent_and_delays_no_other(tmp_path: Path) -> None:
    plugin = Recorder()
    notes = tmp_path / "memories" / "USER.md"
    notes.parent.mkdir()
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        await turn(memory)
        await provider.background.settle()
        notes.write_text(f"- {'x' * 200_000}\n- likes figs\n", encoding="utf-8")
        provider.mirror_soon(Mirrored.of(notes_of(provider), CONVERSATION), None)
        await provider.background.settle()
        notes.write_text("- likes figs\n", encoding="utf-8")
        provider.mirror_soon(Mirrored.of(notes_of(provider), CONVERSATION), None)
        await provider.background.settle()
        await memory.delegated("\n" * 200_000, "\x00" * 200_000)
        await until_empty(provider)
    noted = [entry for entry in plugin.entries if entry.kind == "note"]
    told = [(entry.data["action"], len(entry.data["old"]), len(entry.text)) for entry in noted]
    assert told == [("add", 0, 16_000), ("add", 0, 10), ("remove", 16_000, 0)]
    assert [len(text) for text in plugin.told("delegation")] == [16_000]


async def test_a_store_that_cannot_be_read_opens_no_session_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with active(tmp_path, Recorder(), PATIENT, delivers=False) as provider:
        memory = await begin(provider)
        said = await say(memory, "hello")

        async def unreadable(run: Callable[[Tx], Any]) -> Any:
            raise StoreError("the file is locked")

        with monkeypatch.context() as patched:
            patched.setattr(provider.store, "read", unreadable)
            assert (await memory.recall([said], memory.begin())).text == ""
        assert "the file is locked" in memory.take_notices()[0]
        assert (await memory.recall([said], memory.begin())).text == "recalled for hello"


async def test_own_entries_of_concurrent_tasks_arrive_once_and_in_order(tmp_path: Path) -> None:
    tasks, each = 16, 60
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT) as provider:
        await turn(await begin(provider))

        def put(task: int) -> None:
            async def put_all() -> None:
                for number in range(each):
                    await plugin.host.put("s1", f"{task}:{number}", [task, number])
                    await plugin.host.put("s1", f"{task}:{number}", [task, number])

            asyncio.run(put_all())

        await asyncio.gather(*(asyncio.to_thread(put, task) for task in range(tasks)))
        await until_empty(provider)
    told = [tuple(entry.data) for entry in plugin.entries if entry.kind == "own"]
    assert len(told) == tasks * each
    assert [sorted(t for t in told if t[0] == task) for task in range(tasks)] == [
        [t for t in told if t[0] == task] for task in range(tasks)
    ]


async def test_entries_do_not_count_as_tried_when_the_plugin_does_not_start(tmp_path: Path) -> None:
    class Broken(Recorder):
        def is_available(self) -> bool:
            raise RuntimeError("no")

    async with active(tmp_path, Recorder(), PATIENT, delivers=False) as provider:
        await turn(await begin(provider))
    async with active(tmp_path, Broken(), PATIENT) as provider:

        async def put_off() -> bool:
            [first, *_] = await provider.store.read(lambda tx: items(tx, QUEUE, "waiting"))
            return first.reason is not None

        await until(put_off, provider)
        for item in await provider.store.read(lambda tx: items(tx, QUEUE, "waiting")):
            assert (item.tried_at, item.attempts) == (None, 0)


async def test_an_outage_is_reported_when_it_lasts_and_when_it_ends(tmp_path: Path) -> None:
    later = Later("connection refused", after=0.1)
    plugin = Refusing([later], [later], [later])
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        await turn(memory)

        async def said() -> bool:
            return memory.state == "failing"

        await until(said, provider)
        assert len(plugin.called("refused")) == 3
        assert "delivery is put off: connection refused" in memory.take_notices()[0]
        await until_empty(provider)
        assert "works again" in memory.take_notices()[0]


async def test_an_outage_that_turns_into_refusals_is_not_over_until_something_is_delivered(tmp_path: Path) -> None:
    later, parked = Later("connection refused", after=0.1), DeadLetter("no such workspace")
    plugin = Refusing([later], [later], [later], [parked, parked])
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        await turn(memory)
        await until_empty(provider)
        assert len(plugin.called("refused")) == 4
        assert memory.state == "failing"
        assert provider.health.failing()["delivery"] == "delivery is refused: no such workspace"
        await turn(memory, "again")
        await until_empty(provider)
        assert plugin.told() == ["again", "reply to again"]
        assert provider.health.failing() == {}


async def test_an_own_entry_is_delivered_at_once_and_its_lane_before_a_compression(tmp_path: Path) -> None:
    plugin, clock = Recorder(), HandClock()
    plugin.pace = "session"
    async with active(tmp_path, plugin, PATIENT, clock=clock) as provider:
        memory = await begin(provider)
        await turn(memory, "first")
        await provider.background.settle()
        await memory.before_compress([])
        assert plugin.told() == ["first", "reply to first"]
        await plugin.host.put("s1", "k", "own")
        async with asyncio.timeout(60):  # nobody moves the clock
            while not plugin.told("own"):  # noqa: ASYNC110 - another thread is told
                await asyncio.sleep(0.01)


async def test_a_plugin_has_only_so_many_tasks_of_its_own_and_they_end_with_it(tmp_path: Path) -> None:
    plugin, ended = Recorder(), list[int]()

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def spawn_many(_: object) -> str:
        for number in range(MAX_SPAWNED_TASKS):
            plugin.host.spawn(work(number), "work")
        with pytest.raises(ProviderError, match="so one more was not begun"):
            plugin.host.spawn(work(MAX_SPAWNED_TASKS), "one more")
        await asyncio.sleep(0)
        return "done"

    async with active(tmp_path, plugin, PATIENT) as provider:
        await turn(await begin(provider))
        until = provider.within(60)
        assert isinstance(await provider.call("spawn", spawn_many, str, until), Returned)
    assert sorted(ended) == list(range(MAX_SPAWNED_TASKS))


async def test_a_delivery_that_is_late_is_tried_again_for_as_long_as_it_takes(tmp_path: Path) -> None:
    plugin = Troubled("deliver", asyncio.Event().wait)
    async with active(tmp_path, plugin, replace(PATIENT, deliver=0.3)) as provider:
        await turn(await begin(provider))

        async def tried_twice() -> bool:
            return len(plugin.called("deliver")) >= 2

        await until(tried_twice, provider)
        found = await provider.store.read(lambda tx: items(tx, QUEUE, "waiting"))
        assert [item.crashes for item in found] == [0, 0]
        assert all(item.tried_at is not None for item in found)
        plugin.troubled, provider.deadlines = False, PATIENT
        await until_empty(provider)
