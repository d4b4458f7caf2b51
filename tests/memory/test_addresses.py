"""Addresses of entries: valid and invalid ones, missing ones, and changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.lanes import head_time
from hermes.db.queue import Postponed
from hermes.db.queue_items import items
from hermes.memory.outbox import Destination
from hermes.memory.provider import Address, Conversation, EntryKind, Notebook
from hermes.memory.values import DEFAULT_WANTS
from hermes.store.memory_rows import find_place
from tests.compression.hand_clock import HandClock
from tests.memory.delivering import QUEUE, left, until_empty
from tests.memory.providers import CONVERSATION, OWNER, PATIENT, Recorder
from tests.memory.remembering import active, begin, reply, say, turn


class Moving(Recorder):
    """A plugin whose address changes or is missing, as a test sets."""

    to: str | None = "old"
    asked = 0

    def address(self, place: Conversation | Notebook) -> Address:
        self.asked += 1
        if self.to is None:
            raise RuntimeError("the settings are broken")
        lane = f"{self.to}:{place.session_id}" if isinstance(place, Conversation) else "notes"
        return Address(lane, {"to": self.to}, frozenset(self.wants), self.pace)


@pytest.mark.parametrize(
    ("flaw", "change"),
    [
        ("a lane", {"lane": None}),
        ("a lane", {"lane": ""}),
        ("a lane", {"lane": "?s1"}),
        ("a lane", {"lane": "x" * 10_000}),
        ("a lane", {"lane": "\ud800"}),
        ("data", {"data": Path("there")}),
        ("data", {"data": "x" * 100_000}),
        ("data", {"data": "\ud800"}),
        ("wants", {"wants": {"everything"}}),
        ("wants", {"wants": 7}),
        ("a pace", {"pace": 0}),
        ("a pace", {"pace": -1}),
        ("a pace", {"pace": "sometimes"}),
        ("a pace", {"pace": True}),
        ("a pace", {"pace": 1.5}),
    ],
)
async def test_an_unusable_address_is_reported_and_breaks_no_turn(
    tmp_path: Path, flaw: str, change: dict[str, Any]
) -> None:
    class Odd(Recorder):
        def address(self, place: Conversation | Notebook) -> Address:
            return replace(super().address(place), **change)

    async with active(tmp_path, Odd(), PATIENT) as provider:
        memory = await begin(provider)
        await turn(memory)
        assert f"returned an address with {flaw} that cannot be used" in memory.take_notices()[0]
        await provider.background.settle()
        assert await left(provider) == ["said", "reply"]


async def test_a_delivery_begun_before_its_address_is_known_arrives(tmp_path: Path) -> None:
    plugin = Moving()
    plugin.to = None
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        memory, store = await begin(provider), provider.store
        await say(memory, "hello")
        now = store.clock.now() + 7200
        taken = await store.write(lambda tx: queue.claim(tx, QUEUE, "another process", ttl=60, now=now))
        assert taken is not None
        plugin.to = "there"
        await provider.address_waiting()
        await store.write(lambda tx: queue.settle(tx, taken, [Postponed(0.0)], now=now))
    async with active(tmp_path, plugin, PATIENT) as provider:
        await until_empty(provider)
    assert [(entry.text, entry.address) for entry in plugin.entries] == [("hello", {"to": "there"})]


async def test_a_thousand_places_are_addressed_by_asking_once_for_each(tmp_path: Path) -> None:
    plugin = Moving()
    plugin.to = None
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        await begin(provider)

        def record(tx: Tx) -> None:
            for number in range(1000):
                destination = Destination(f"p{number}", replace(CONVERSATION, session_id=f"p{number}"))
                provider.outbox.put(tx, destination, "own", str(number), "", number, OWNER, now=1.0)

        await provider.store.write(record)
        plugin.to = "there"
        for _ in range(20):
            provider.address_soon()
        await provider.background.settle()
        lanes = {item.lane for item in await provider.store.read(lambda tx: items(tx, QUEUE, "waiting", limit=2000))}
    assert lanes == {f"there:p{number}" for number in range(1000)}
    assert plugin.asked == 1000


async def test_a_note_that_turns_out_unwanted_is_not_sent(tmp_path: Path) -> None:
    plugin = Moving()
    plugin.to = None
    wanted: frozenset[EntryKind] = frozenset({"said"})
    plugin.wants = wanted
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        memory.note_written("user", "add", "likes figs")
        await provider.background.settle()
        assert await left(provider) == ["note"]
        plugin.to = "there"
        await provider.address_waiting()
        await until_empty(provider)
    assert plugin.entries == []


@pytest.mark.parametrize("known", [False, True], ids=["a new conversation", "one that was told before"])
async def test_messages_during_a_time_without_wanted_kinds_count_as_unsent(tmp_path: Path, known: bool) -> None:
    plugin = Recorder()
    if known:
        async with active(tmp_path, plugin, PATIENT) as provider:
            await turn(await begin(provider), "before")
            await until_empty(provider)
    for text in ("during", "still"):
        plugin.wants = ()
        async with active(tmp_path, plugin, PATIENT) as provider:
            await turn(await begin(provider), text)
            await provider.background.settle()
            assert await left(provider) == []
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        untold = await provider.store.read(lambda tx: provider.store.unsynced.messages(tx, "troubled", "s1"))
        told = [entry.text for entry in plugin.entries]
        assert [message.content for message in untold] == ["during", "reply to during", "still", "reply to still"]
        assert told == (["before", "reply to before"] if known else [])
        plugin.wants = DEFAULT_WANTS
        spoken = [(message, OWNER) for message in untold]
        destination = Destination("s1", CONVERSATION, Address("s1"))
        assert await provider.store.write(lambda tx: provider.outbox.take_in(tx, destination, spoken, now=1.0)) == 4
        assert await left(provider) == ["said", "reply"] * 2


async def test_the_first_question_after_a_time_without_wanted_kinds_is_sent(tmp_path: Path) -> None:
    plugin = Recorder()
    for text, wants in (("during", ()), ("after", DEFAULT_WANTS)):
        plugin.wants = wants
        async with active(tmp_path, plugin, PATIENT) as provider:
            await turn(await begin(provider), text)
            await provider.background.settle()
            await until_empty(provider)
    assert [entry.text for entry in plugin.entries] == ["after", "reply to after"]


async def test_a_conversation_keeps_the_directory_in_which_it_began(tmp_path: Path) -> None:
    plugin = Recorder()
    for directory in (tmp_path / "first", tmp_path / "second"):
        async with active(tmp_path, plugin, PATIENT) as provider:
            await turn(await begin(provider, replace(CONVERSATION, directory=directory)))
    opened = [conversation.directory for (conversation,) in plugin.called("open")]
    assert opened == [tmp_path / "first"] * 2


@pytest.mark.parametrize("pace", ["async", "session", 3])
async def test_after_a_change_of_address_a_question_goes_where_its_reply_goes(tmp_path: Path, pace: Any) -> None:
    plugin = Moving()
    plugin.pace = pace
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        await turn(await begin(provider), "before")
    plugin.to = "new"
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        await turn(memory, "after")
        await memory.close()
        await until_empty(provider)
    went = {entry.text: entry.address["to"] for entry in plugin.entries}
    assert went == {"before": "old", "reply to before": "old", "after": "new", "reply to after": "new"}


async def test_entries_tried_at_the_old_address_stay_there(tmp_path: Path) -> None:
    plugin = Moving()
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        await turn(await begin(provider), "before")
        store = provider.store
        memory = await begin(provider)
        await say(memory, "after")
        now = store.clock.now() + 7200
        taken = await store.write(lambda tx: queue.claim(tx, QUEUE, "p", ttl=60, now=now, limit=50))
        assert taken is not None
        await store.write(lambda tx: queue.settle(tx, taken, [], now=now))
        plugin.to = "new"
        await memory.tools(memory.begin())
        await reply(memory, "reply")
        lanes = [item.lane for item in await store.read(lambda tx: items(tx, QUEUE, "waiting"))]
    assert lanes == ["old:s1", "old:s1", "old:s1", "new:s1"]


async def test_the_first_question_of_a_killed_process_is_held_no_longer_than_others(tmp_path: Path) -> None:
    plugin, clock = Recorder(), HandClock()
    async with active(tmp_path, plugin, PATIENT, clock=clock, delivers=False) as provider:
        memory = await begin(provider)
        await say(memory, "hello")
        await memory.tools(memory.begin())
        await provider.background.settle()  # and it is killed
        head = await provider.store.read(lambda tx: head_time(tx, QUEUE, "s1"))
    assert head == clock.now() + 120


async def test_a_turn_continues_in_a_deleted_session_and_nothing_of_it_is_kept(tmp_path: Path) -> None:
    async with active(tmp_path, Recorder(), PATIENT, delivers=False) as provider:
        memory, store = await begin(provider), provider.store
        await say(memory, "hello")
        await memory.tools(memory.begin())
        await store.write(lambda tx: store.deletions.delete(tx, "s1"))
        await memory.delegated("task", "result")
        await memory.turn_over()
        await provider.address_place(Destination("s1", CONVERSATION, Address("s1")), Address("s1"))
        assert await left(provider) == []
        assert await store.read(lambda tx: find_place(tx, "troubled", "s1")) is None


async def test_a_conversation_keeps_the_data_of_its_first_address(tmp_path: Path) -> None:
    plugin = Moving()
    for to in ("old", "new", "newest"):
        plugin.to = to
        async with active(tmp_path, plugin, PATIENT) as provider:
            await turn(await begin(provider))
    assert [conversation.bound for (conversation,) in plugin.called("open")] == [None, {"to": "old"}, {"to": "old"}]


@pytest.mark.contract("6.13")
async def test_a_conversation_is_deleted_at_all_its_addresses_after_its_entries(tmp_path: Path) -> None:
    plugin = Moving()
    plugin.wants = ("said", "reply", "forget")
    for to in ("old", "new", "old", "newest"):
        plugin.to = to
        async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
            memory, outbox = await begin(provider), provider.outbox
            await memory.tools(memory.begin())
            await turn(memory, f"to {to}")
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        store = provider.store
        assert await store.write(lambda tx: outbox.forget(tx, "s1", now=store.clock.now()))
        found = await store.read(lambda tx: items(tx, QUEUE, "waiting"))
        last = {item.lane: item.payload for item in found}
    assert {lane: (row["kind"], row["address"]) for lane, row in last.items()} == {
        f"{to}:s1": ("forget", {"to": to}) for to in ("old", "new", "newest")
    }
