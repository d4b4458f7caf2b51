"""The outbox: no message is lost, reordered or sent twice, whatever provider and process do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hermes.db.engine import Tx
from hermes.db.lanes import head_time
from hermes.db.queue import MAX_CRASHES
from hermes.db.queue_items import items
from hermes.errors import ProviderError
from hermes.memory.active import BUSY_RECALLS, ActiveProvider
from hermes.memory.forgetting import retract
from hermes.memory.provider import (
    Address,
    Conversation,
    DeadLetter,
    Delivered,
    Entry,
    Later,
    Notebook,
    Outcome,
    Speaker,
)
from hermes.memory.values import EntryKind
from hermes.store.store import Store
from hermes.types import Draft
from tests.compression.hand_clock import HandClock
from tests.memory.delivering import QUEUE, Refusing, left, until, until_empty, waiting
from tests.memory.providers import CONVERSATION, OWNER, PATIENT, Recorder
from tests.memory.remembering import active, begin, reply, say, turn


async def until_told(provider: ActiveProvider, plugin: Recorder, count: int, *kinds: str) -> None:
    async def told() -> bool:
        return len(plugin.told(*kinds)) >= count

    await until(told, provider)


@pytest.mark.contract("4.13")
async def test_a_turn_is_sent_in_order_with_speakers_and_one_key_each(tmp_path: Path) -> None:
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        for number in range(3):
            await turn(memory, f"message {number}")
        await memory.flush(60)
        assert await left(provider) == []
    said = [(entry.kind, entry.text) for entry in plugin.entries]
    assert said == [pair for n in range(3) for pair in (("said", f"message {n}"), ("reply", f"reply to message {n}"))]
    assert [entry.speaker for entry in plugin.entries] == [OWNER, None] * 3
    assert {entry.session_id for entry in plugin.entries} == {"s1"}
    assert all(entry.address == {"to": "s1"} for entry in plugin.entries)
    assert all(entry.tried_at is None for entry in plugin.entries)
    assert len({entry.key for entry in plugin.entries}) == 6
    assert all(len(entry.key) == 32 for entry in plugin.entries)


@pytest.mark.contract("7.5")
async def test_entries_of_turns_in_a_busy_process_are_delivered_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BUSY_SECONDS", "MAX_YIELD_SECONDS"):  # however slow the machine is
        monkeypatch.setattr(f"hermes.memory.active.{name}", 600.0)
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        await turn(memory, "first")
        await until_told(provider, plugin, 2)
        for number in range(BUSY_RECALLS):
            with provider.recalling(f"other{number}"):
                pass
        calls = len(plugin.called("deliver"))
        for number in range(5):
            await turn(memory, f"message {number}")
        assert len(plugin.called("deliver")) <= calls + 1, "one may have been about to begin"
        await memory.flush(60)
        assert plugin.told("said") == ["first", *(f"message {number}" for number in range(5))]


@pytest.mark.contract("7.5")
async def test_background_work_waits_while_a_turn_waits_for_its_recall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.memory.active.MAX_YIELD_SECONDS", 600.0)  # however slow the machine is
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        with provider.recalling("other"):
            waiting = asyncio.create_task(provider.yield_to_turns())
            for number in range(3):
                await turn(memory, f"message {number}")
            assert not waiting.done()
        await waiting
        await until_told(provider, plugin, 6)
        assert plugin.told("said") == [f"message {number}" for number in range(3)]


@pytest.mark.contract("7.5")
async def test_message_that_follows_at_once_is_recalled_before_anything_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.memory.caller.PAUSE_SECONDS", 600.0)
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        for text in ("first", "second"):
            await turn(memory, text)
        await memory.flush(60)
        recalled = [call for call in plugin.calls if call[0] == "recall" or call[:2] == ("prepare", "first")]
        assert recalled == [("recall", "first"), ("recall", "second")]


@pytest.mark.contract("4.13")
async def test_rows_are_there_only_if_the_message_is(tmp_path: Path) -> None:
    async with active(tmp_path, Recorder(), delivers=False) as provider:
        memory, store = await begin(provider), provider.store

        def fail(tx: Tx) -> None:
            [message] = store.messages.append(tx, "s1", [Draft("user", "hello")], now=0.0)
            memory.said(tx, [message])
            raise ProviderError("the turn's commit fails")

        with pytest.raises(ProviderError):
            await store.write(fail)
        assert await left(provider) == []
        await say(memory, "hello")
        assert await left(provider) == ["said"]


@pytest.mark.contract("4.13")
async def test_a_question_waits_for_its_reply_and_no_longer_than_its_time(tmp_path: Path) -> None:
    plugin, clock = Recorder(), HandClock()
    async with active(tmp_path, plugin, PATIENT, clock=clock) as provider:
        memory = await begin(provider)
        await turn(memory, "first")
        await memory.flush(60)
        await say(memory, "second")  # and the process is killed
        await memory.flush(0.2)
        assert plugin.told("said") == ["first"]
        clock.advance(121)
        await until_told(provider, plugin, 2, "said")
        assert plugin.told("said") == ["first", "second"]


@pytest.mark.contract("4.13")
async def test_a_turn_without_a_reply_releases_its_question(tmp_path: Path) -> None:
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        said = await say(memory, "hello")
        await memory.recall([said], memory.begin())
        await memory.turn_over()
        await memory.flush(60)
        assert plugin.told() == ["hello"]


@pytest.mark.contract("4.13")
async def test_an_entry_that_may_have_arrived_comes_again_with_the_same_key_and_says_so(tmp_path: Path) -> None:
    later = Later("the reply was lost", after=0.0)
    plugin = Refusing([Delivered(), later], [later])
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        await memory.prompt_block(memory.begin())  # its address is known before something waits for it
        await turn(memory, "first")
        await until_empty(provider)
        assert plugin.called("refused") == [("first", "reply to first"), ("reply to first",)]
        [entry] = plugin.entries
        assert entry.text == "reply to first"
        assert entry.tried_at is not None


@pytest.mark.contract("4.14")
async def test_a_dead_letter_keeps_its_reason_and_the_lane_continues(tmp_path: Path) -> None:
    plugin = Refusing([DeadLetter("refused for good"), Delivered()])
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        await memory.prompt_block(memory.begin())  # its address is known before something waits for it
        await turn(memory, "first")
        await turn(memory, "second")
        await memory.flush(60)
        assert plugin.told("said") == ["second"]
        [dead] = await provider.store.read(lambda tx: items(tx, QUEUE, "dead"))
        assert (dead.payload["kind"], dead.reason) == ("said", "refused for good")


@pytest.mark.contract("4.14")
async def test_a_server_that_is_down_is_left_alone_for_every_conversation(tmp_path: Path) -> None:
    plugin, clock = Refusing([Later("connection refused", after=0.3, everyone=True)]), HandClock()
    async with active(tmp_path, plugin, PATIENT, clock=clock) as provider:
        memory, other = await begin(provider), await begin(provider, replace(CONVERSATION, session_id="s2"))
        await turn(memory, "first")

        async def refused() -> bool:
            return bool(plugin.called("refused"))

        await until(refused, provider)
        await turn(other, "second", "s2")
        assert len(plugin.called("refused")) == 1
        assert plugin.entries == []
        clock.advance(1.0)
        await until_empty(provider)
        assert sorted(plugin.told("said")) == ["first", "second"]


@pytest.mark.contract("4.14")
async def test_an_entry_that_breaks_the_plugin_is_dead_after_five_attempts(tmp_path: Path) -> None:
    class Allergic(Recorder):
        async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
            if any("poison" in entry.text for entry in entries):
                self.calls.append(("sick",))
                raise ValueError("poison")
            return await super().deliver(entries, until)

    plugin, clock = Allergic(), HandClock()
    async with active(tmp_path, plugin, PATIENT, clock=clock, delivers=False) as provider:
        memory = await begin(provider)
        for text in ("one", "poison", "two"):
            await turn(memory, text)
    async with active(tmp_path, plugin, PATIENT, clock=clock) as provider:

        async def over() -> bool:
            head = await provider.store.read(lambda tx: head_time(tx, QUEUE, "s1"))
            if head is not None and head > clock.now():
                clock.advance(400)
            return not await left(provider)

        await until(over, provider)
        dead = await provider.store.read(lambda tx: items(tx, QUEUE, "dead"))
    assert plugin.told("said") == ["one", "two"]
    assert [item.payload["kind"] for item in dead] == ["said", "reply"]
    assert {item.reason for item in dead} == {"deliver failed: ValueError: poison"}


@pytest.mark.contract("4.15")
@pytest.mark.parametrize(
    ("pace", "told"),
    [("async", [2, 4, 6, 8]), ("turn", [2, 4, 6, 8]), (2, [0, 4, 4, 8]), (3, [0, 0, 6, 6]), ("session", [0, 0, 0, 0])],
)
async def test_the_pace_decides_when_entries_are_released(tmp_path: Path, pace: Any, told: list[int]) -> None:
    plugin = Recorder()
    plugin.pace = pace
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        seen = []
        for number in range(4):
            await turn(memory, f"message {number}")
            if pace != "turn":
                await memory.flush(60)
            seen.append(len(plugin.told()))
        assert seen == told
        await memory.close("exit")
        await memory.flush(60)
        assert len(plugin.told()) == 8


@pytest.mark.contract("4.15")
async def test_the_pace_holds_nothing_longer_than_an_hour_also_after_a_kill(tmp_path: Path) -> None:
    plugin, clock = Recorder(), HandClock()
    plugin.pace = "session"
    async with active(tmp_path, plugin, PATIENT, clock=clock, delivers=False) as provider:
        await turn(await begin(provider), "hello")
    async with active(tmp_path, plugin, PATIENT, clock=clock) as provider:
        clock.advance(3500)
        await provider.flush("s1", 0.2)
        assert plugin.told() == []
        clock.advance(200)
        await until_told(provider, plugin, 2)
        assert plugin.told() == ["hello", "reply to hello"]


@pytest.mark.contract("4.15")
async def test_kinds_that_a_provider_does_not_want_are_not_recorded(tmp_path: Path) -> None:
    plugin = Recorder()
    plugin.wants = frozenset({"said"})
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        memory = await begin(provider)
        await turn(memory, "first")
        await turn(memory, "second")
        await memory.delegated("task", "result")
        assert await left(provider) == ["said", "said"]


@pytest.mark.contract("4.14")
async def test_recorded_entries_are_sent_after_their_kind_is_no_longer_wanted(tmp_path: Path) -> None:
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        memory = await begin(provider)
        await turn(memory, "first")
        await turn(memory, "before")
    plugin.wants = frozenset({"note"})
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        memory = await begin(provider)
        await memory.tools(memory.begin())
        await turn(memory, "after")
    async with active(tmp_path, plugin, PATIENT) as provider:
        await until_empty(provider)
    assert plugin.told() == ["first", "reply to first", "before", "reply to before"]


@pytest.mark.contract("4.14")
async def test_a_row_is_delivered_after_repeated_kills_of_its_worker(tmp_path: Path) -> None:
    plugin, clock = Recorder(), HandClock()
    async with active(tmp_path, plugin, PATIENT, clock=clock, delivers=False) as provider:
        memory, store = await begin(provider), provider.store
        await turn(memory, "hello")
        await store.write(lambda tx: tx.execute("UPDATE hermes_queue SET lost = ?, claimed = 1", (MAX_CRASHES - 1,)))
    async with active(tmp_path, plugin, PATIENT, clock=clock) as provider:

        async def over() -> bool:
            clock.advance(30)
            return not await left(provider)

        await until(over, provider)
        assert await provider.store.read(lambda tx: items(tx, QUEUE, "dead")) == []
    assert plugin.told() == ["hello", "reply to hello"]


@pytest.mark.contract("4.13", "4.3")
async def test_entries_recorded_without_an_address_are_sent_in_order_once_it_is_known(tmp_path: Path) -> None:
    class Lost(Recorder):
        lost = True

        def address(self, place: Conversation | Notebook) -> Address:
            if self.lost:
                raise RuntimeError("the settings are broken")
            return super().address(place)

    plugin = Lost()
    plugin.wants = frozenset({"said", "note"})
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        for number in range(2):
            await turn(memory, f"message {number}")
        assert plugin.entries == []
        assert len(await left(provider)) == 4, "nobody knows yet what is wanted"
        plugin.lost = False
        await turn(memory, "message 2")
        await memory.flush(60)
        assert plugin.told("said", "reply") == ["message 0", "message 1", "message 2"]
        assert await left(provider) == []


@pytest.mark.contract("4.13")
async def test_another_process_addresses_and_sends_entries_of_a_broken_one(tmp_path: Path) -> None:
    class Broken(Recorder):
        def is_available(self) -> bool:
            raise RuntimeError("no")

    async with active(tmp_path, Broken()) as provider:
        await turn(await begin(provider), "hello")
        assert len(await left(provider)) == 2
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT) as provider:
        await until_empty(provider)
    assert plugin.told() == ["hello", "reply to hello"]
    assert plugin.called("open") == [], "delivery needs no session"


@pytest.mark.contract("1.8", "4.13")
async def test_deleting_a_session_deletes_its_queued_held_and_dead_entries(tmp_path: Path) -> None:
    plugin = Refusing([DeadLetter("no"), Later("not now", after=3600.0)])
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        await memory.prompt_block(memory.begin())  # its address is known before something waits for it
        await turn(memory, "first")
        await memory.flush(60)
        await turn(memory, "second")
        await say(memory, "third")
        store = provider.store
        planned = await store.read(lambda tx: store.deletions.plan(tx, "s1"))
        assert planned.queued == 5
        await store.write(lambda tx: store.deletions.delete(tx, "s1"))
        rows = await store.read(lambda tx: tx.execute("SELECT state, payload FROM hermes_queue").fetchall())
        assert {tuple(row) for row in rows} == {("done", "null")}
        places = await store.read(lambda tx: tx.execute("SELECT count(*) FROM hermes_memory_places").fetchone()[0])
        assert places == 0


@pytest.mark.contract("10.27")
async def test_undo_withdraws_the_entries_of_its_sub_agents_and_no_earlier_ones(tmp_path: Path) -> None:
    async with active(tmp_path, Recorder(), PATIENT, delivers=False) as provider:
        memory, store = await begin(provider), provider.store
        await memory.delegated("an earlier task", "result")
        said = await say(memory, "hello")
        await memory.delegated("task", "result")
        assert await left(provider) == ["delegation", "said", "delegation"]
        await store.write(lambda tx: retract(tx, "c", [said], said.timestamp, now=store.clock.now()))
        assert await left(provider) == ["delegation"]


@pytest.mark.contract("4.13")
@pytest.mark.parametrize("kind", ["forget", "undo"])
async def test_a_deletion_names_tried_entries_that_may_still_arrive(tmp_path: Path, kind: EntryKind) -> None:
    plugin = Refusing([Later("no answer", after=3600.0)])
    plugin.wants = {*plugin.wants, "forget", "undo"}
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory, store = await begin(provider), provider.store
        await memory.prompt_block(memory.begin())
        said = await say(memory, "first")
        await memory.turn_over()
        await memory.flush(60)
        [tried] = await store.read(lambda tx: items(tx, QUEUE, "waiting"))

        def wish(tx: Tx) -> None:
            if kind == "forget":
                assert provider.outbox.forget(tx, "s1", now=store.clock.now())
                store.deletions.delete(tx, "s1")
            else:
                retract(tx, "c", [said], 0.0, now=store.clock.now())

        await store.write(wish)
        await until_empty(provider)
    [entry] = [entry for entry in plugin.entries if entry.kind == kind]
    assert entry.data["may_arrive"] == {tried.payload["key"]: tried.tried_at}
    assert "first" not in plugin.told()


@pytest.mark.contract("4.13", "1.8")
async def test_a_deleted_or_incognito_message_is_not_sent(tmp_path: Path) -> None:
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        memory, store = await begin(provider), provider.store
        for text in ("kept", "gone", "hidden"):
            await turn(memory, text)

        def forget(tx: Tx) -> None:
            tx.execute("DELETE FROM messages WHERE content = 'gone'")
            [[hidden]] = tx.execute("SELECT id FROM messages WHERE content = 'hidden'").fetchall()
            tx.execute("INSERT INTO hermes_incognito_sessions VALUES ('s1', ?)", (hidden - 1,))

        await store.write(forget)
    async with active(tmp_path, plugin, PATIENT) as provider:
        await until_empty(provider)
    assert plugin.told() == ["kept", "reply to kept", "reply to gone"]


@pytest.mark.contract("4.3", "4.13")
async def test_entries_of_a_provider_that_was_switched_away_wait_for_it(tmp_path: Path) -> None:
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        await turn(await begin(provider), "hello")
    async with await Store.open(tmp_path / "state.db", clock=HandClock(), lock_timeout=5.0) as store:
        other = await store.read(lambda tx: items(tx, "memory:other", "waiting"))
        assert other == []
        assert len(await store.read(waiting)) == 2
    async with active(tmp_path, plugin, PATIENT) as provider:
        await until_empty(provider)
    assert plugin.told() == ["hello", "reply to hello"]


@pytest.mark.contract("4.16")
async def test_a_plugins_own_entry_is_saved_once_and_its_outcome_can_be_awaited(tmp_path: Path) -> None:
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        await turn(memory, "hello")
        host, soon = plugin.host, provider.store.clock.now() + 60
        tickets = {await host.put("s1", "k1", {"fact": "likes figs"}, OWNER) for _ in range(3)}
        [ticket] = tickets
        assert await host.outcome(ticket, soon) == Delivered()
        assert await host.outcome("own:never", 0.0) is None
        [own] = [entry for entry in plugin.entries if entry.kind == "own"]
        assert (own.data, own.speaker) == ({"fact": "likes figs"}, OWNER)
        with pytest.raises(ProviderError, match="memory knows no conversation s2"):
            await host.put("s2", "k2", {})
        with pytest.raises(ProviderError, match="more than 64000"):
            await host.put("s1", "k3", "x" * 70_000)
        await provider.store.write(lambda tx: provider.store.incognito.begin(tx, "s1"))
        with pytest.raises(ProviderError, match="incognito"):
            await host.put("s1", "k4", {})


@pytest.mark.contract("4.16")
async def test_an_own_entry_releases_rows_held_before_it(tmp_path: Path) -> None:
    plugin = Recorder()
    plugin.pace = "session"
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        await turn(memory, "hello")
        assert plugin.entries == []
        await plugin.host.put("s1", "k1", {"fact": 1})
        await memory.flush(60)
        assert [entry.kind for entry in plugin.entries] == ["said", "reply", "own"]


async def test_small_values_are_kept_for_this_provider_alone(tmp_path: Path) -> None:
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT) as provider:
        await turn(await begin(provider))
        await plugin.host.keep("mark", {"a": [1]})
        assert await plugin.host.kept("other") is None
    async with active(tmp_path, plugin, PATIENT) as provider:
        await turn(await begin(provider))
        assert await plugin.host.kept("mark") == {"a": [1]}
        with pytest.raises(ProviderError):
            await plugin.host.keep("mark", "x" * 70_000)


async def test_a_lock_is_held_by_one_at_a_time_and_awaited_without_blocking(tmp_path: Path) -> None:
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT) as provider:
        await turn(await begin(provider))
        host, path = plugin.host, tmp_path / "config.json"
        async with host.locked(path, host.clock.now() + 5):
            assert (tmp_path / "config.json.lock").exists()
            with pytest.raises(TimeoutError, match=r"config\.json\.lock"):
                async with host.locked(path, host.clock.now() + 0.1):
                    pass
        async with host.locked(path, host.clock.now() + 0.1):
            pass


@pytest.mark.contract("4.10", "4.13")
async def test_notes_changed_by_hand_or_before_a_kill_are_sent_at_the_next_start(tmp_path: Path) -> None:
    plugin = Recorder()
    notes = tmp_path / "memories" / "USER.md"
    notes.parent.mkdir()
    notes.write_text("- likes figs\n- lives in Malta\n", encoding="utf-8")
    async with active(tmp_path, plugin, PATIENT) as provider:
        await turn(await begin(provider))
        await provider.background.settle()
    assert plugin.told("note") == [], "a new provider begins with the notes as they are"
    notes.write_text("- likes dates\n- lives in Malta\n- has a cat\n", encoding="utf-8")
    async with active(tmp_path, plugin, PATIENT) as provider:
        await turn(await begin(provider))
        await provider.background.settle()
        await provider.flush("notes", 60)
        await turn(await begin(provider))
        await provider.background.settle()
    noted = [(entry.data["action"], entry.data["old"], entry.text) for entry in plugin.entries if entry.kind == "note"]
    assert noted == [("replace", "likes figs", "likes dates"), ("add", "", "has a cat")]


@pytest.mark.contract("4.7")
async def test_in_a_group_each_message_is_sent_with_its_speaker(tmp_path: Path) -> None:
    plugin = Recorder()
    group = Conversation("s1", "telegram", "here", None, "group", "agent:main:telegram:group:-100")
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory, store = await begin(provider, group), provider.store
        drafts = [Draft("user", "hi", author_id="17", author_name="Ann"), Draft("user", "ho", author_id="23")]

        def accept(tx: Tx) -> None:
            memory.said(tx, store.messages.append(tx, "s1", drafts, now=1.0))

        await store.write(accept)
        await memory.tools(memory.begin())
        await memory.turn_over()
        await memory.flush(60)
    assert [entry.speaker for entry in plugin.entries] == [Speaker("17", name="Ann"), Speaker("23")]


async def test_a_turn_that_begins_again_after_a_crash_is_recorded_and_counted_once(tmp_path: Path) -> None:
    plugin = Recorder()
    async with active(tmp_path, plugin, PATIENT, delivers=False) as provider:
        memory, store = await begin(provider), provider.store
        said = await say(memory, "hello")
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory, store = await begin(provider), provider.store
        await store.write(lambda tx: memory.said(tx, [said]))
        assert memory.begin().seconds_left() > 0
        await reply(memory, "fine")
        await memory.tools(memory.begin())
        await memory.turn_over()
        await turn(memory, "again")
        await memory.flush(60)
    assert plugin.told() == ["hello", "fine", "again", "reply to again"]
    assert len(await _turns(tmp_path)) == 1
    assert (await _turns(tmp_path))[0] == 2


async def _turns(home: Path) -> list[int]:
    async with await Store.open(home / "state.db", clock=HandClock(), lock_timeout=5.0) as store:
        rows = await store.read(
            lambda tx: tx.execute("SELECT turns FROM hermes_memory_places WHERE place = 's1'").fetchall()
        )
        return [row[0] for row in rows]


async def test_a_plugin_whose_address_is_no_address_opens_nothing_and_loses_nothing(tmp_path: Path) -> None:
    class Odd(Recorder):
        def address(self, place: object) -> Address:
            return "elsewhere"  # type: ignore[return-value]

    async with active(tmp_path, Odd(), PATIENT) as provider:
        memory = await begin(provider)
        assert await turn(memory) == ""
        # Opening the session asks for it, and so does what waits for an address: the first of the two is told.
        assert any("returned str" in line for line in memory.take_notices())
        assert len(await left(provider)) == 2


async def test_a_plugin_that_raises_in_open_is_asked_again_with_the_next_turn(tmp_path: Path) -> None:
    class Shy(Recorder):
        tries = 0

        def open(self, conversation: Conversation, address: Address) -> Any:
            self.tries += 1
            if self.tries == 1:
                raise RuntimeError("not yet")
            return super().open(conversation, address)

    async with active(tmp_path, Shy(), PATIENT) as provider:
        memory = await begin(provider)
        assert await turn(memory) == ""
        assert await turn(memory) == "recalled for hello"
