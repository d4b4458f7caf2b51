"""`hermes honcho peers map` without arguments: offers accounts and the workspace's peers, each with its effect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.honcho.asking import Person
from tests.honcho.recalling import ANN, BOT, Recalling
from tests.honcho.setting_up import Hermes, add_gateway

TELEGRAM = "telegram:17"


@pytest.fixture
def gateway(hermes: Hermes, commanded: Path, recalling: Recalling) -> Path:
    """The honcho.json of a home with a gateway for two people, and a workspace that knows `bea`."""
    recalling.configure()
    add_gateway(hermes)
    recalling.tell("chat", ("bea", "I grow plums."), (ANN, "So do I."), (BOT, "Noted."))
    recalling.tell("dm", ("17", "Hello."), (BOT, "Hello."))
    return commanded / "honcho.json"


def aliases(path: Path) -> dict[str, str]:
    found = json.loads(path.read_text(encoding="utf-8"))
    given: dict[str, str] = found["hosts"]["hermes"].get("userPeerAliases", {})
    return given


@pytest.mark.contract("5.7", "10.3")
def test_a_peer_of_the_workspace_is_picked_for_an_account(
    hermes: Hermes, gateway: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers: list[dict[str, str]] = []

    class Reader(Person):
        def ask(self, text: str, default: str = "", *, secret: bool = False) -> str:
            offers.append(dict(self.offered))
            return super().ask(text, default, secret=secret)

    Reader(TELEGRAM, "bea", "leave").sits_down(monkeypatch)
    ran = hermes("honcho", "peers", "map")
    assert ran.code == 0, ran.err
    accounts, targets = offers[0], offers[1]
    assert accounts[TELEGRAM] == "is 17, which exists"
    assert accounts["telegram:18"] == "is 18, which does not exist yet"
    assert targets.keys() == {"new", "ann", "bea"}, "neither the agent nor what it is already"
    assert "would be you, and read all that is known of you" in targets["ann"]
    assert "what telegram:17 says goes there" in targets["bea"]
    assert aliases(gateway) == {TELEGRAM: "bea"}


@pytest.mark.contract("5.7", "10.3")
def test_a_name_of_its_own_can_be_given_instead(hermes: Hermes, gateway: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Person("new", "carl", "leave").sits_down(monkeypatch)
    assert hermes("honcho", "peers", "map", TELEGRAM).code == 0
    assert aliases(gateway) == {TELEGRAM: "carl"}


@pytest.mark.contract("10.3")
def test_where_nobody_can_be_asked_both_are_needed(hermes: Hermes, gateway: Path) -> None:
    ran = hermes("honcho", "peers", "map", TELEGRAM)
    assert (ran.code, "hermes honcho peers map ACCOUNT NAME" in ran.err) == (2, True)
