"""Refusals and invalid responses of a Honcho server: only the affected entries wait or become dead letters."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hermes.honcho.conclusions import Conclude, SetCard, encode_act
from hermes.memory.provider import Delivered, Later
from tests.compression.hand_clock import HandClock
from tests.honcho.configuring import Machine
from tests.honcho.misbehaving import Fault, Misbehaving, on
from tests.honcho.writing import OWNER, Arrived, Lane, Writer
from tests.memory_server.serving import Served, start, stop
from tests.small_disk import small_disk

pytestmark = pytest.mark.processes


@pytest.mark.contract("6.4")
async def test_entries_for_a_session_that_cannot_be_created_wait(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    async with Misbehaving(server.url).served() as proxy:
        lane = Lane(writer(proxy.url, workspace=workspace))
        lane.put("one")
        lane.put("two")
        lane.put("", "own", OWNER, encode_act(SetCard(["Name: Ann"])))
        proxy.choose = on("/sessions", "404", "422")
        for status in (404, 422):
            [outcome] = await lane.attempt()
            assert isinstance(outcome, Later)
            assert (
                outcome.reason == f"its session or peer could not be created: the server answered {status}: on purpose"
            )
        outcomes = await lane.drain()
    assert [type(outcome) for outcome in outcomes.values()] == [Delivered] * 3
    assert arrived.said() == [("ann", "one"), ("ann", "two")]


@pytest.mark.contract("6.4")
async def test_a_session_that_somebody_deleted_on_the_server_is_set_up_anew(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    async with Misbehaving(server.url).served() as proxy:
        lane = Lane(writer(proxy.url, workspace=workspace))
        lane.put("one")
        await lane.drain()
        lane.put("two")
        lane.put("three")
        proxy.choose = on("/messages", "404")
        asked = len(proxy.asked)
        outcomes = await lane.drain()
    assert {type(outcome) for outcome in outcomes.values()} == {Delivered}
    assert any(path.endswith("/sessions") for _, path in proxy.asked[asked:])
    assert [content for _, content in arrived.said()] == ["one", "two", "three"]


@pytest.mark.contract("6.4")
@pytest.mark.parametrize("fault", ["402", "403"])
async def test_refused_account_delays_all_entries_without_dead_letters(
    writer: Writer, server: Served, arrived: Arrived, workspace: str, fault: Fault
) -> None:
    async with Misbehaving(server.url).served() as proxy:
        lane = Lane(writer(proxy.url, workspace=workspace))
        lane.put("one")
        proxy.choose = on("/messages", fault)
        [outcome] = await lane.attempt()
        assert isinstance(outcome, Later)
        assert (outcome.everyone, outcome.reason.endswith("Check `apiKey`")) == (True, True)
        await lane.drain()
    assert arrived.said() == [("ann", "one")]


@pytest.mark.contract("6.4")
async def test_entries_wait_for_the_correction_of_an_invalid_key(
    writer: Writer, machine: Machine, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace))
    lane.put("hello")
    lane.plugin = writer(server.url, workspace=workspace, apiKey="schlüssel")
    [outcome] = await lane.attempt()
    assert isinstance(outcome, Later)
    assert ("apiKey is (hidden)" in outcome.reason, outcome.everyone) == (True, True)
    machine.write({**machine.read(), "apiKey": "key"})
    await lane.drain()
    assert arrived.said() == [("ann", "hello")]


@pytest.mark.contract("6.4")
@pytest.mark.parametrize("told", [None, "yesterday"])
async def test_invalid_time_of_a_conclusion_delays_the_entry(
    writer: Writer, server: Served, workspace: str, told: str | None
) -> None:
    async with Misbehaving(server.url, is_foreign=True).served() as proxy:
        plugin = writer(proxy.url, workspace=workspace)
        lane = Lane(plugin)
        lane.put("", "own", OWNER, encode_act(Conclude("likes figs")))
        proxy.choose = on("/conclusions", "reset after")
        await lane.attempt()
        assert isinstance(lane.clock, HandClock)
        lane.clock.advance(60)
        time = b'"created_at":' + json.dumps(told).encode()
        proxy.rewrite = lambda body: re.sub(rb'"created_at": ?"[^"]*"', time, body)
        [outcome] = await lane.attempt()
        assert isinstance(outcome, Later)
        assert "the server sent an invalid time of a conclusion" in outcome.reason
        proxy.rewrite = None
        outcomes = await lane.drain()
    assert [type(one) for one in outcomes.values()] == [Delivered]


@pytest.mark.contract("6.4", "P5")
async def test_full_disk_of_our_server_is_named_as_the_reason(writer: Writer, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk"):
        served = start(tmp_path / "disk" / "memory")
        try:
            lane = Lane(writer(served.url))
            lane.put("one")
            [outcome] = await lane.attempt()
        finally:
            stop(served)
    assert isinstance(outcome, Later)
    assert outcome.reason == "the server answered 503: there is no room on its disk"
