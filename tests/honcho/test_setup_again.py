"""The set-up of a configured home: sign-ins, pins, aliases, and concurrent programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.honcho.asking import Person
from tests.honcho.setting_up import NOBODY, USE, Hermes, add_gateway, block, document, write

NAMES = ("", "", "")
GRANT = {"refreshToken": "hch-rt-secret", "clientId": "hermes-agent", "expiresAt": 32_000_000_000}
SIGNED_IN: dict[str, Any] = {"apiKey": "hch-at-secret", "oauth": GRANT, "peerName": "ann"}
SETUP = ("memory", "setup", "honcho", "--unchecked")


def auth(hermes: Hermes) -> str:
    found: str = json.loads(hermes("honcho", "status", "--json").out)["auth"]
    return found


@pytest.mark.contract("10.3")
@pytest.mark.parametrize("place", ["root", "block"])
def test_a_key_takes_the_place_of_a_sign_in_where_a_person_chooses_that(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    write(home, SIGNED_IN if place == "root" else {"hosts": {"hermes": SIGNED_IN}})
    person = Person("cloud", "key", "hch-key", *NAMES, *USE).sits_down(monkeypatch)
    assert hermes(*SETUP).code == 0
    assert person.offers["stay"].startswith("stay signed in: OAuth (hermes-agent, token valid ")
    assert (block(home)["apiKey"], block(home)["oauth"]) == ("hch-key", None)
    assert auth(hermes) == "API key (host block)"
    assert "secret" not in " ".join(person.heard)


@pytest.mark.contract("10.3")
def test_a_person_who_stays_signed_in_keeps_grant_and_token(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, SIGNED_IN)
    Person("cloud", "", *NAMES, *USE).sits_down(monkeypatch)
    assert hermes(*SETUP).code == 0
    assert document(home) == SIGNED_IN
    assert auth(hermes).startswith("OAuth (hermes-agent, token valid ")


@pytest.mark.contract("10.3")
def test_a_key_of_the_command_line_wins_over_a_sign_in(home: Path, hermes: Hermes) -> None:
    write(home, SIGNED_IN)
    ran = hermes(*SETUP, "--yes", "--key", "hch-key")
    assert (ran.code, "The sign-in is taken out" in ran.out) == (0, True), ran.err
    assert block(home) == {"apiKey": "hch-key", "oauth": None}
    assert auth(hermes) == "API key (host block)"


@pytest.mark.contract("5.4", "10.3")
def test_a_sign_in_is_not_taken_to_another_server(home: Path, hermes: Hermes) -> None:
    write(home, SIGNED_IN)
    assert hermes(*SETUP, "--yes", "--server", "self-hosted", "--url", NOBODY).code == 0
    assert block(home) == {"apiKey": "", "oauth": None, "baseUrl": NOBODY}
    assert auth(hermes) == "none"


@pytest.mark.contract("10.3", "P5")
def test_expired_sign_in_is_shown(home: Path, hermes: Hermes) -> None:
    assert hermes("config", "set", "memory.provider", "honcho").code == 0
    write(home, {**SIGNED_IN, "baseUrl": NOBODY, "oauth": {**GRANT, "expiresAt": 1}})
    told = json.loads(hermes("honcho", "status", "--json").out)
    assert told["auth"] == "OAuth (hermes-agent, expired), root"


@pytest.mark.contract("10.3")
def test_a_key_that_no_request_can_carry_is_asked_for_again(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person("cloud", "key", "", "schlüssel", "hch-key", *NAMES, *USE).sits_down(monkeypatch)
    assert (hermes(*SETUP).code, person.answers) == (0, [])
    assert block(home)["apiKey"] == "hch-key"
    assert not any("schlüssel" in line for line in person.heard)


@pytest.mark.contract("10.3")
def test_a_key_can_be_taken_away_from_a_server_of_ones_own(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, {"baseUrl": NOBODY, "apiKey": "k", "peerName": "ann"})
    Person("", "", "none", *NAMES, *USE).sits_down(monkeypatch)
    assert hermes(*SETUP).code == 0
    assert block(home) == {"apiKey": ""}


@pytest.mark.contract("10.3")
def test_a_server_of_the_command_line_that_does_not_answer_can_be_exchanged(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ("other", "self-hosted", "http://127.0.0.1:10", "", "save")
    person = Person(*NAMES, *other, *USE).sits_down(monkeypatch)
    options = ("--server", "self-hosted", "--url", NOBODY, "--key", "k")
    assert hermes("memory", "setup", "honcho", *options).code == 0
    assert (block(home), person.answers) == ({"baseUrl": "http://127.0.0.1:10", "peerName": "ann"}, [])


@pytest.mark.contract("5.6", "10.3")
def test_the_name_that_is_offered_is_written_when_it_is_taken(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    Person("embedded", "", "", "", *USE).sits_down(monkeypatch)
    assert hermes(*SETUP).code == 0
    assert block(home) == {"peerName": "ann"}
    monkeypatch.setenv("LOGNAME", "root")
    assert json.loads(hermes("honcho", "status", "--json").out)["you"] == "ann"


@pytest.mark.contract("5.6", "10.3")
def test_you_and_the_agent_are_asked_for_two_names(home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person("embedded", "hermes", "", "", "bot", "", *USE).sits_down(monkeypatch)
    assert (hermes(*SETUP).code, person.answers) == (0, [])
    assert block(home) == {"peerName": "hermes", "aiPeer": "bot"}
    assert person.heard.count("You and the agent cannot have the same name.") == 2
    wrong = hermes(*SETUP, "--yes", "--ai", "hermes")
    assert (wrong.code, "you and the agent would both be" in wrong.err) == (2, True)
    assert block(home) == {"peerName": "hermes", "aiPeer": "bot"}


@pytest.mark.contract("5.3", "10.3")
def test_a_budget_that_is_too_large_is_brought_within_bounds_and_said(home: Path, hermes: Hermes) -> None:
    ran = hermes(*SETUP, "--yes", "--tokens", "200000", "--user", "Ann B")
    assert (ran.code, block(home)) == (0, {"peerName": "Ann-B", "contextTokens": 8_000}), ran.err
    assert ran.out.count("peerName is 'Ann B', which counts as Ann-B") == 1
    assert ran.out.count("contextTokens is '200000', which counts as 8000") == 1
    ran = hermes("honcho", "tokens", "--context", "300000")
    assert "contextTokens is 300000, which counts as 8000" in ran.out


@pytest.mark.contract("10.3")
def test_number_of_turns_is_offered_again_and_is_no_option_number(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, {"peerName": "ann", "writeFrequency": 3})
    person = Person("", *NAMES, "change", "", "", "", "", "", "").sits_down(monkeypatch)
    assert (hermes(*SETUP).code, person.answers) == (0, [])
    assert person.asked[-4:-2] == ["When is what was said sent to Honcho?", "How many turns"]
    assert document(home) == {"peerName": "ann", "writeFrequency": 3}


@pytest.mark.contract("5.3", "10.3")
def test_invalid_option_is_reported_before_the_server_is_tried(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> str:
        pytest.fail("a server was tried")

    monkeypatch.setattr("hermes.honcho.wizard.try_server", fail)
    ran = hermes("memory", "setup", "honcho", "--yes", "--strategy", "daily")
    assert (ran.code, "sessionStrategy is 'daily', but takes one of" in ran.err) == (2, True)
    assert document(home) == {}


@pytest.mark.contract("5.1", "10.3")
def test_aliases_that_another_program_gives_meanwhile_stay(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_gateway(hermes)
    write(home, {"baseUrl": NOBODY, "peerName": "ann", "hosts": {"hermes": {"userPeerAliases": {"1": "one"}}}})

    class Slow(Person):
        """While this person answers about people, another process maps someone."""

        def choose(self, text: str, options: Any, default: str) -> str:
            if text == "Who talks to this gateway?":
                found = document(home)
                found["hosts"]["hermes"]["userPeerAliases"]["99"] = "another"
                write(home, found)
            return super().choose(text, options, default)

    Slow("", "", "", *NAMES, *USE, "pooled", "all").sits_down(monkeypatch)
    assert hermes(*SETUP).code == 0
    assert block(home)["userPeerAliases"] == {"1": "one", "99": "another", "17": "ann", "18": "ann"}


@pytest.mark.contract("5.14")
@pytest.mark.parametrize(
    ("answers", "warns"),
    [
        (("e", "false", "false", "", ""), True),
        (("e", "true", "false", "", ""), True),
        (("e", "true", "true", "", ""), False),
        (("others", ""), True),
        (("just-me", "none"), False),
    ],
)
def test_removing_a_pin_warns_that_nothing_moves(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch, answers: tuple[str, ...], warns: bool
) -> None:
    add_gateway(hermes)
    write(home, {"baseUrl": NOBODY, "peerName": "ann", "pinUserPeer": True, "pinGuests": True})
    person = Person("", "", "", *NAMES, *USE, *answers).sits_down(monkeypatch)
    assert (hermes(*SETUP).code, person.answers) == (0, [])
    assert any("moves nothing: what is known so far stays with ann" in line for line in person.heard) is warns
