"""Sign-in from a page: the calls of the page's server, and what the page may show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from hermes.errors import ProviderError
from hermes.home import Home
from hermes.honcho.browser_sign_in import FOREIGN
from hermes.honcho.plugin import HonchoPlugin
from hermes.honcho.server import Machine as Seen
from hermes.honcho.web_sign_in import ERROR_SECONDS, WebSignIn
from hermes.memory.plugin_host import CommandHost
from hermes.memory.provider import Connect
from tests.compression.hand_clock import HandClock
from tests.honcho.configuring import Machine
from tests.honcho.issuer import Issuer
from tests.honcho.signing_in import visiting

pytestmark = pytest.mark.contract("8.3")


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as made:
        yield made


@pytest.fixture
def connect(machine: Machine, issuer: Issuer) -> Iterator[Connect]:
    machine.write({"baseUrl": issuer.url, "hosts": {"hermes": {"peerName": "ann"}, "hermes_work": {}}})
    found = make_plugin(machine).connect()
    assert found is not None
    yield found
    found.disconnect()


def make_plugin(machine: Machine, profile: str | None = None) -> HonchoPlugin:
    env = {"HOME": str(machine.folder), "LOGNAME": "ann"}
    return HonchoPlugin(CommandHost(machine.profile(profile), profile, env, HandClock(), list[str]().append))


def until(look: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not look():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_connecting_keeps_what_somebody_set(connect: Connect, machine: Machine, issuer: Issuer) -> None:
    issuer.config = {"peerName": "Nina", "workspace": "garden"}
    assert connect.status().state == "idle"
    page = connect.begin("web")
    assert (connect.status().state, "source=web" in page) == ("waiting", True)
    visiting(page)
    until(lambda: connect.status().state != "waiting")
    told = connect.status()
    assert (told.state, told.detail) == ("connected", "OAuth (hermes-agent, token valid 60m)")
    block = machine.read()["hosts"]["hermes"]
    assert (block["peerName"], block["workspace"], block["apiKey"] in issuer.issued) == ("ann", "garden", True)
    connect.disconnect()
    assert connect.status().state == "idle"
    assert issuer.revoked == [block["oauth"]["refreshToken"]]
    connect.disconnect()


def test_another_profile_is_not_connected_along(connect: Connect, machine: Machine, issuer: Issuer) -> None:
    machine.profile("work").mkdir(parents=True)
    other = make_plugin(machine, "work").connect()
    visiting(connect.begin("web"))
    until(lambda: connect.status().state == "connected")
    assert other.status().state == "idle"
    assert "apiKey" not in machine.read()["hosts"]["hermes_work"]


def test_callback_of_the_page_takes_the_right_state_once(connect: Connect, issuer: Issuer) -> None:
    with pytest.raises(ProviderError, match="no sign-in is waiting"):
        connect.callback({"state": "x", "code": "y"})
    connect.begin("web")
    with pytest.raises(ProviderError, match=FOREIGN):
        connect.callback({"state": "x", "code": "y"})
    assert connect.status().state == "waiting"


def test_beginning_again_ends_what_waited(connect: Connect) -> None:
    first, second = connect.begin("web"), connect.begin("web")
    assert first != second
    visiting(second)
    until(lambda: connect.status().state == "connected")


def test_new_sign_in_ends_the_grant_before_it(connect: Connect, machine: Machine, issuer: Issuer) -> None:
    tokens = list[str]()
    for _ in range(2):
        visiting(connect.begin("web"))
        until(lambda: connect.status().state == "connected")
        tokens.append(machine.read()["hosts"]["hermes"]["oauth"]["refreshToken"])
    until(lambda: bool(issuer.revoked))
    assert issuer.revoked == tokens[:1]


def test_disconnecting_while_tokens_come_stores_none(connect: Connect, machine: Machine, issuer: Issuer) -> None:
    issuer.fault = lambda kind: connect.disconnect() if kind == "authorization_code" else None
    visiting(connect.begin("web"))
    until(lambda: bool(issuer.revoked))
    assert (issuer.revoked[0] in issuer.issued, connect.status().state) == (True, "idle")
    assert "apiKey" not in machine.read()["hosts"]["hermes"]


def test_error_is_shown_for_a_while(machine: Machine, issuer: Issuer) -> None:
    machine.write({"baseUrl": issuer.url})
    now = [0.0]
    connect = WebSignIn(Seen(Home(machine.home), {"HOME": str(machine.folder)}), lambda: now[0])
    issuer.is_approved = False
    visiting(connect.begin("web"))
    until(lambda: connect.status().state != "waiting")
    assert (connect.status().state, "was declined" in connect.status().detail) == ("error", True)
    now[0] += ERROR_SECONDS
    assert connect.status().state == "idle"
