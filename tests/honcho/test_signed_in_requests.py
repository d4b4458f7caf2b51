"""Requests with the token of a sign-in: renewed ahead, after a refusal, or not at all, without losing an entry."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes.honcho.plugin import HonchoPlugin
from hermes.honcho.renewal import LOGIN
from hermes.memory.provider import Delivered, Later, Outcome
from tests.honcho.configuring import Machine
from tests.honcho.issuer import Issuer
from tests.honcho.setting_up import Hermes, block, document, write
from tests.honcho.signing_in import QUICK
from tests.honcho.writing import Arrived, Lane, Writer
from tests.memory_server.serving import Served

pytestmark = [pytest.mark.processes, pytest.mark.contract("8.2")]
Signed = Callable[..., HonchoPlugin]


class QuickPlugin(HonchoPlugin):
    timings = QUICK


@pytest.fixture
def issuer(server: Served) -> Iterator[Issuer]:
    with Issuer(server.url) as made:
        yield made


@pytest.fixture
def signed(machine: Machine, writer: Writer, issuer: Issuer, workspace: str) -> Signed:
    """A signed-in plugin whose token is valid for this many seconds of its clock."""

    def make(valid_seconds: float) -> HonchoPlugin:
        plugin = writer(issuer.url, None, QuickPlugin, workspace=workspace)
        put_sign_in(machine, issuer, plugin.host.clock.now() + valid_seconds)
        return plugin

    return make


def put_sign_in(machine: Machine, issuer: Issuer, expires_at: float) -> None:
    grant = issuer.grant(valid_seconds=3600)
    grant["oauth"]["expiresAt"] = expires_at
    machine.write({**machine.read(), "hosts": {"hermes": grant}})


def token(machine: Machine) -> str:
    found: str = machine.read()["hosts"]["hermes"]["apiKey"]
    return found


async def attempt(lane: Lane) -> Outcome:
    lane.put("hello")
    return (await lane.attempt())[-1]


@pytest.mark.parametrize("how", ["ended", "refused"])
async def test_ended_or_refused_token_is_renewed_once_for_all_tasks(
    machine: Machine, issuer: Issuer, signed: Signed, arrived: Arrived, how: str
) -> None:
    plugin = signed(-1 if how == "ended" else 3600)
    before = token(machine)
    issuer.end_tokens()
    lanes = [Lane(plugin, name=f"lane{number}-") for number in range(12)]
    outcomes = await asyncio.gather(*map(attempt, lanes))
    assert {type(outcome) for outcome in outcomes} == {Delivered}
    assert (issuer.counts["exchanges"], issuer.counts["refresh_token"]) == (1, 1)
    assert token(machine) != before
    assert len(arrived.said()) == len(lanes)


async def test_token_that_still_holds_is_used_while_its_renewal_hangs(
    machine: Machine, issuer: Issuer, signed: Signed, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.fault = lambda _: "hang"
    plugin, lane = signed(60), None
    before = token(machine)
    lane = Lane(plugin)
    with caplog.at_level(logging.WARNING):
        assert isinstance(await attempt(lane), Delivered)
        await plugin.shutdown(plugin.host.clock.now() + 30)
    assert token(machine) == before
    assert [record.message for record in caplog.records if "cannot be renewed now" in record.message]
    assert not any(secret in caplog.text for secret in issuer.issued)


async def test_renewal_that_has_begun_is_finished_before_the_process_ends(
    machine: Machine, issuer: Issuer, signed: Signed
) -> None:
    plugin = signed(60)
    before = token(machine)
    assert isinstance(await attempt(Lane(plugin)), Delivered)
    await plugin.shutdown(plugin.host.clock.now() + 30)
    assert (token(machine) != before, issuer.counts["exchanges"]) == (True, 1)


async def test_token_with_a_short_life_is_not_renewed_with_every_request(
    issuer: Issuer, signed: Signed, arrived: Arrived
) -> None:
    issuer.life_seconds = 100
    plugin = signed(-1)
    for number in range(5):
        assert isinstance(await attempt(Lane(plugin, name=f"lane{number}-")), Delivered)
    await plugin.shutdown(plugin.host.clock.now() + 30)
    assert (issuer.counts["exchanges"], len(arrived.said())) == (1, 5)


async def test_entry_waits_for_a_new_sign_in_after_a_refusal_for_good(
    machine: Machine, issuer: Issuer, signed: Signed, arrived: Arrived
) -> None:
    plugin = signed(-1)
    issuer.revoke_all()
    lane = Lane(plugin)
    for _ in range(3):
        outcome = await attempt(lane)
        assert isinstance(outcome, Later)
        assert outcome.everyone
        assert "no longer accepts the sign-in (invalid_grant)" in outcome.reason
        assert LOGIN in outcome.reason
    assert issuer.counts["refresh_token"] == 1
    put_sign_in(machine, issuer, plugin.host.clock.now() + 3600)
    await lane.drain()
    assert [text for _, text in arrived.said()] == ["hello"] * 3


async def test_server_that_takes_no_token_costs_one_exchange(machine: Machine, issuer: Issuer, signed: Signed) -> None:
    plugin = signed(3600)
    issuer.before_answer = issuer.end_tokens  # also the new one
    issuer.end_tokens()
    lane = Lane(plugin)
    for _ in range(3):
        outcome = await attempt(lane)
        assert isinstance(outcome, Later)
        assert LOGIN in outcome.reason
    assert issuer.counts["exchanges"] == 1


async def test_token_that_a_sibling_stored_is_used(
    machine: Machine, issuer: Issuer, signed: Signed, arrived: Arrived
) -> None:
    plugin = signed(3600)
    lane = Lane(plugin)
    assert isinstance(await attempt(lane), Delivered)
    issuer.end_tokens()
    put_sign_in(machine, issuer, plugin.host.clock.now() + 3600)
    assert isinstance(await attempt(lane), Delivered)
    assert issuer.counts["refresh_token"] == 0
    assert len(arrived.said()) == 2


def test_commands_renew_too(home: Path, hermes: Hermes, issuer: Issuer) -> None:
    assert hermes("config", "set", "memory.provider", "honcho").code == 0
    write(home, {"baseUrl": issuer.url, "peerName": "ann", "hosts": {"hermes": issuer.grant(valid_seconds=-1)}})
    before = document(home)["hosts"]["hermes"]
    shown: Any = json.loads(hermes("honcho", "status", "--json").out)
    assert (shown["auth"], shown["connection"]) == (
        "OAuth (hermes-agent, expired), host block",
        "it answers, but refuses the sign-in's token, which is renewed when memory is used",
    )
    assert document(home)["hosts"]["hermes"] == before, "status changes nothing"
    ran = hermes("honcho", "identity", "--show")
    assert ran.code == 0, ran.err
    assert block(home)["apiKey"] != before["apiKey"]
    issuer.revoke_all()
    issuer.end_tokens()
    ran = hermes("honcho", "identity", "--show")
    assert (ran.code, LOGIN in " ".join(ran.err.split())) == (1, True), ran.err
    assert not any(secret in ran.out + ran.err for secret in issuer.issued)
