"""Delivery to a misbehaving Honcho server: every entry arrives once, in order, under the right peer, or becomes a
dead letter if its fate is unknown."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter

import pytest

from hermes.honcho.attempt import KEY_LIFETIME_SECONDS
from hermes.honcho.conclusions import Conclude, encode_act
from hermes.honcho.plugin import HonchoPlugin
from hermes.memory.provider import DeadLetter, Delivered, Later
from tests.compression.hand_clock import HandClock
from tests.honcho.fast_clock import FastClock
from tests.honcho.misbehaving import FAULTS, AtRandom, Fault, Misbehaving, on
from tests.honcho.writing import ANN, BOB, GROUP, OWNER, Arrived, Lane, QuickPlugin, Writer
from tests.memory_server.serving import Served
from tests.scale import FULL, scale

pytestmark = pytest.mark.processes
SEED = int(os.environ.get("HERMES_SEED", "17")) if not FULL else random.SystemRandom().randrange(10**9)
KINDS = FAULTS if FULL else tuple(fault for fault in FAULTS if fault != "hang")
"""Hanging requests take seconds, so only a sample of them is tested."""
SESSION = "agent-main-telegram-group--100"


@pytest.mark.contract("6.3", "6.12")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_turn_and_a_conclusion_arrive_once_whatever_befalls_them(
    writer: Writer, server: Served, proxy: Misbehaving, workspace: str, fault: Fault
) -> None:
    turn, conclusion = on("/messages", fault), on("/conclusions", fault)
    proxy.choose = lambda method, path: turn(method, path) or conclusion(method, path)
    plugin = writer(proxy.url, None, QuickPlugin if fault == "hang" else HonchoPlugin, workspace=workspace)
    lane = Lane(plugin)
    lane.put("hello")
    lane.put("hello, Ann", "reply", None)
    lane.put("", "own", OWNER, encode_act(Conclude("likes figs")))
    outcomes = await lane.drain()
    assert proxy.befallen[fault] == 2
    assert {type(outcome) for outcome in outcomes.values()} == {Delivered}
    arrived = Arrived(server, workspace)
    assert arrived.said() == [("ann", "hello"), ("bot", "hello, Ann")]
    assert [found["content"] for found in arrived.conclusions()] == ["likes figs"]


@pytest.mark.contract("6.4")
@pytest.mark.parametrize(
    ("fault", "everyone", "after"),
    [("429", True, 1.0), ("401", True, None), ("500", False, None), ("reset", True, None)],
)
async def test_what_passes_is_tried_again_and_a_server_that_is_down_is_let_alone(
    writer: Writer, proxy: Misbehaving, workspace: str, fault: Fault, everyone: bool, after: float | None
) -> None:
    lane = Lane(writer(proxy.url, workspace=workspace))
    lane.put("hello")
    proxy.choose = on("/messages", fault)
    [outcome] = await lane.attempt()
    assert isinstance(outcome, Later)
    assert (outcome.everyone, outcome.after) == (everyone, after)


@pytest.mark.contract("6.12")
async def test_another_server_is_looked_at_no_earlier_than_half_a_minute_after_the_attempt(
    writer: Writer, server: Served, workspace: str
) -> None:
    async with Misbehaving(server.url, is_foreign=True).served() as proxy:
        plugin = writer(proxy.url, workspace=workspace)
        clock = plugin.host.clock
        assert isinstance(clock, HandClock)
        lane = Lane(plugin)
        lane.put("hello")
        proxy.choose = on("/messages", "reset after")
        await lane.attempt()
        clock.advance(20)
        asked = len(proxy.asked)
        [outcome] = await lane.attempt()
        assert isinstance(outcome, Later)
        assert (outcome.after, len(proxy.asked)) == (10.0, asked), "nothing is asked before"
        clock.advance(10)
        [outcome] = await lane.attempt()
        assert isinstance(outcome, Delivered)
        assert proxy.asked[asked:][0][1].endswith("/messages/list?size=100")


@pytest.mark.contract("6.12")
async def test_message_is_looked_for_once_our_server_may_have_forgotten_its_key(
    writer: Writer, server: Served, workspace: str
) -> None:
    async with Misbehaving(server.url, is_foreign=True).served() as proxy:  # keys mean nothing to it, as after a week
        proxy.rewrite = lambda told: told.replace(b'{"status": "ok"}', b'{"extensions": ["idempotency"]}')
        clock = HandClock()
        lane = Lane(writer(proxy.url, clock, workspace=workspace))
        lane.put("hello")
        proxy.choose = on("/messages", "reset after")
        await lane.attempt()
        clock.advance(KEY_LIFETIME_SECONDS)
        [outcome] = await lane.attempt()
    assert isinstance(outcome, Delivered)
    assert Arrived(server, workspace).said() == [("ann", "hello")]


@pytest.mark.contract("6.12")
async def test_a_request_that_was_given_up_is_looked_for_half_a_minute_after_that(
    writer: Writer, server: Served, workspace: str
) -> None:
    async with Misbehaving(server.url, is_foreign=True).served() as proxy:
        clock = HandClock()
        lane = Lane(writer(proxy.url, clock, QuickPlugin, workspace=workspace))
        lane.put("hello")

        def hang_for_a_while(_: str, path: str) -> Fault | None:
            if not path.endswith("/messages"):
                return None
            clock.advance(20)
            return "hang"

        proxy.choose = hang_for_a_while
        await lane.attempt()
        proxy.choose = on("nothing")
        [outcome] = await lane.attempt()
        assert isinstance(outcome, Later)
        assert outcome.after == 30.0, "the server may still be busy with it"
        await lane.drain()
    assert Arrived(server, workspace).said() == [("ann", "hello")]


@pytest.mark.contract("6.12")
async def test_an_attempt_of_another_process_is_looked_for_when_its_time_is_over(
    writer: Writer, server: Served, workspace: str
) -> None:
    async with Misbehaving(server.url, is_foreign=True).served() as proxy:
        clock = HandClock()
        killed, next_one = (writer(proxy.url, clock, workspace=workspace) for _ in range(2))
        lane = Lane(killed)
        lane.put("hello")
        proxy.choose = on("/messages", "reset after")
        await lane.attempt()
        lane.plugin = next_one
        [outcome] = await lane.attempt()
        assert isinstance(outcome, Later)
        assert outcome.after == 75.0, "45 s of the attempt and 30 s for its last request"
        await lane.drain()
    assert Arrived(server, workspace).said() == [("ann", "hello")]


@pytest.mark.contract("6.3", "6.12")
async def test_two_equal_conclusions_make_the_entry_a_dead_letter(
    writer: Writer, server: Served, workspace: str
) -> None:
    async with Misbehaving(server.url, is_foreign=True).served() as proxy:
        plugin = writer(proxy.url, workspace=workspace)
        lanes = [Lane(plugin, name=name) for name in "ab"]
        for lane in lanes:
            lane.put("", "own", OWNER, encode_act(Conclude("likes figs")))
        proxy.choose = on("/conclusions", "reset after", "reset after")
        for lane in lanes:
            await lane.attempt()
        outcomes = [outcome for lane in lanes for outcome in (await lane.drain()).values()]
    assert [type(outcome) for outcome in outcomes] == [DeadLetter, DeadLetter]
    assert sum(one["times_derived"] for one in Arrived(server, workspace).conclusions()) == 2, "one line, told twice"


@pytest.mark.stress
@pytest.mark.contract("6.2", "6.3", "6.5")
async def test_many_tasks_conclude_at_once_while_turns_are_written_and_none_is_lost(
    writer: Writer, server: Served, proxy: Misbehaving, workspace: str
) -> None:
    tasks, each = 16, scale(10, 1_000)
    sys.stdout.write(f"seed {SEED}\n")
    proxy.choose = AtRandom(SEED, 0.15, KINDS)
    plugin = writer(proxy.url, FastClock(), QuickPlugin, workspace=workspace)
    lanes = [Lane(plugin, name=f"{number}-") for number in range(tasks)]
    for number, lane in enumerate(lanes):
        for count in range(each):
            lane.put("", "own", OWNER, encode_act(Conclude(f"fact {number} {count}")))
            if count % 10 == 0:
                lane.put(f"turn {number} {count}")
    await asyncio.gather(*(lane.drain() for lane in lanes))
    found = Counter(one["content"] for one in Arrived(server, workspace).conclusions())
    parked = [outcome for lane in lanes for outcome in lane.outcomes.values() if isinstance(outcome, DeadLetter)]
    sys.stdout.write(f"{len(found)} conclusions, {len(parked)} put aside, faults {dict(proxy.befallen)}\n")
    assert max(found.values()) == 1, "none twice"
    assert len(found) + len(parked) == tasks * each
    assert parked == []
    said = [content for _, content in Arrived(server, workspace).said()]
    for number in range(tasks):
        assert [text for text in said if text.startswith(f"turn {number} ")] == [
            f"turn {number} {count}" for count in range(0, each, 10)
        ]
    assert min(proxy.befallen[kind] for kind in KINDS) >= scale(1, 200), proxy.befallen


@pytest.mark.stress
@pytest.mark.contract("5.8", "6.3", "6.4")
async def test_every_group_turn_arrives_once_in_order_under_the_right_peer(
    writer: Writer, server: Served, proxy: Misbehaving, workspace: str
) -> None:
    sys.stdout.write(f"seed {SEED}\n")
    proxy.choose = AtRandom(SEED, 0.5, KINDS)
    lane = Lane(writer(proxy.url, None, QuickPlugin, workspace=workspace, messageMaxChars=400), GROUP)
    chance, expected = random.Random(SEED), []
    for number in range(scale(25, 500)):
        speaker, peer = chance.choice([(OWNER, "ann"), (ANN, "17"), (BOB, "23")])
        text = f"{number} " * chance.choice([1, 1, 300])
        lane.put(text, speaker=speaker)
        lane.put(f"reply {number}", "reply", None)
        expected += [(peer, text), ("bot", f"reply {number}")]
        if chance.random() < 0.3:
            await lane.attempt()
    outcomes = await lane.drain()
    sys.stdout.write(f"{len(outcomes)} messages, faults {dict(proxy.befallen)}\n")
    assert {type(outcome) for outcome in outcomes.values()} == {Delivered}
    joined: list[tuple[str, str]] = []
    for peer, content in Arrived(server, workspace).said(SESSION):
        if content.startswith("[continued] "):
            joined[-1] = (peer, joined[-1][1] + content.removeprefix("[continued] "))
        else:
            joined.append((peer, content))
    assert joined == expected
