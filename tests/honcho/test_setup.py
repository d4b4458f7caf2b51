"""`hermes memory setup honcho` and `hermes honcho setup`: with options, with answers, and repeatedly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hermes.cli.dialog import TerminalDialog
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.server import find_server
from tests.cli.screen import ENTER, Screen
from tests.honcho.asking import Person
from tests.honcho.setting_up import NOBODY, USE, Hermes, add_gateway, block, document, provider, roles
from tests.memory.page import install
from tests.memory_server.serving import Served, running

PUBLIC = "https://honcho.invalid"
"""A self-hosted server with a public but nonexistent name."""


@pytest.fixture(scope="module")
def served(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The URL of a Honcho server of our kind."""
    with running(tmp_path_factory.mktemp("memory")) as server:
        yield server


@pytest.mark.contract("10.3")
def test_options_alone_set_it_up_and_choose_it(home: Path, hermes: Hermes) -> None:
    options = ("--server", "self-hosted", "--url", NOBODY, "--key", "k", "--user", "ann", "--ai", "bot")
    more = ("--mode", "context", "--observation", "unified", "--write", "3", "--strategy", "global", "--tokens", "700")
    ran = hermes("memory", "setup", "honcho", "--yes", "--unchecked", *options, *more, "--workspace", "lab")
    assert ran.code == 0, ran.err
    assert block(home) == {
        "apiKey": "k",
        "baseUrl": NOBODY,
        "workspace": "lab",
        "peerName": "ann",
        "aiPeer": "bot",
        "recallMode": "context",
        "observationMode": "unified",
        "writeFrequency": 3,
        "sessionStrategy": "global",
        "contextTokens": 700,
    }
    assert provider(hermes) == "honcho"
    assert "k" not in ran.out.replace("apiKey", "").split()


@pytest.mark.contract("10.3")
def test_help_names_what_the_options_take(hermes: Hermes) -> None:
    told = " ".join(hermes("memory", "setup", "honcho", "--help").out.split()).replace("- ", "-")
    for values in (
        "hybrid, context, tools",
        "directional, unified",
        "async, turn, session",
        "per-directory, per-session",
    ):
        assert values in told


@pytest.mark.contract("10.3")
def test_the_server_is_tried_before_anything_is_saved(home: Path, hermes: Hermes) -> None:
    ran = hermes("memory", "setup", "honcho", "--yes", "--server", "self-hosted", "--url", NOBODY)
    assert ran.code == 1
    assert "nothing was saved" in ran.err
    assert (document(home), provider(hermes)) == ({}, "none")


@pytest.mark.contract("10.3")
def test_a_server_that_answers_is_saved(home: Path, hermes: Hermes, served: Served) -> None:
    ran = hermes("memory", "setup", "honcho", "--yes", "--server", "self-hosted", "--url", f"{served.url}/v3")
    assert (ran.code, "It answers." in ran.out) == (0, True), ran.err
    assert block(home) == {"baseUrl": f"{served.url}/v3"}


@pytest.mark.contract("10.3")
def test_run_again_it_changes_nothing_by_itself(home: Path, hermes: Hermes) -> None:
    home.mkdir()
    before = {"peerName": "root-name", "hosts": {"hermes": {"baseUrl": NOBODY, "foreign": [1]}, "x": {}}, "z": None}
    (home / "honcho.json").write_text(json.dumps(before), encoding="utf-8")
    ran = hermes("memory", "setup", "honcho", "--yes", "--unchecked")
    assert (ran.code, "Everything stays as it was." in ran.out) == (0, True), ran.err
    assert document(home) == before


@pytest.mark.contract("10.3")
def test_without_a_person_or_yes_it_says_so(home: Path, hermes: Hermes) -> None:
    ran = hermes("memory", "setup", "honcho")
    assert (ran.code, "nobody can be asked here. `--yes` takes what the options say" in ran.err) == (2, True)
    assert provider(hermes) == "none"
    bare = hermes("memory", "setup")
    assert (bare.code, "name a provider: honcho, none" in bare.err) == (2, True)


@pytest.mark.contract("10.3")
def test_help_shows_the_options_of_the_provider(hermes: Hermes) -> None:
    ran = hermes("memory", "setup", "honcho", "--help")
    assert (ran.code, "--unchecked" in ran.out) == (0, True)
    assert provider(hermes) == "none"
    general = hermes("memory", "setup", "--help")
    assert (general.code, "Choose a memory provider" in general.out) == (0, True)
    wrong = hermes("memory", "setup", "--yes", "honcho")
    assert (wrong.code, "must come after the provider's name" in wrong.err) == (2, True)


@pytest.mark.contract("10.3", "10.6")
def test_unknown_option_and_leaving_person_are_reported(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = hermes("memory", "setup", "honcho", "--colour", "red")
    assert (wrong.code, "No such option: --colour" in wrong.err) == (2, True)

    def leave(*_: object, **__: object) -> str:
        raise typer.Abort

    monkeypatch.setattr(TerminalDialog, "can_ask", True)
    monkeypatch.setattr(TerminalDialog, "ask", leave)
    left = hermes("memory", "setup", "honcho")
    assert (left.code, left.err) == (130, "hermes: interrupted\n")
    assert provider(hermes) == "none"


@pytest.mark.contract("4.2", "10.3")
def test_without_a_name_one_picks_among_all_providers(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(home, "broken", "import nothing_of_that_name")
    install(home)
    person = Person("none").sits_down(monkeypatch)
    assert hermes("memory", "setup").code == 0
    assert (provider(hermes), person.asked) == ("none", ["Which memory provider?"])
    assert person.offered == {
        "broken": "it cannot be loaded",
        "diary": "",
        "honcho": "learns about people across conversations, on this machine or on a server",
        "none": "the built-in notes alone",
    }
    Person("diary").sits_down(monkeypatch)
    assert hermes("memory", "setup").code == 0
    assert provider(hermes) == "diary"
    assert hermes("config", "set", "memory.provider", "gone").code == 0
    Person("").sits_down(monkeypatch)
    assert hermes("memory", "setup").code == 0
    assert provider(hermes) == "none", "one that is no more is not offered"


@pytest.mark.contract("10.3")
def test_questions_have_what_is_in_force_as_their_answer(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "honcho.json").write_text(json.dumps({"baseUrl": NOBODY, "apiKey": "k", "peerName": "ann"}), "utf-8")
    person = Person("", "", "", "", "", "", "save", *USE).sits_down(monkeypatch)
    assert hermes("memory", "setup", "honcho").code == 0
    assert person.answers == []
    assert document(home) == {"baseUrl": NOBODY, "apiKey": "k", "peerName": "ann"}
    assert not any("gateway" in question for question in person.asked), "no platform is configured"


@pytest.mark.contract("5.4", "10.3")
def test_the_cloud_is_not_chosen_without_a_key(home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = hermes("memory", "setup", "honcho", "--yes", "--unchecked", "--server", "cloud")
    assert (ran.code, "Honcho Cloud needs a key" in ran.err, document(home)) == (2, True, {})
    home.mkdir()
    (home / "honcho.json").write_text(json.dumps({"baseUrl": NOBODY, "apiKey": "old"}), "utf-8")
    person = Person("cloud", "key", "", "hch-new", "", "", "", *USE).sits_down(monkeypatch)
    monkeypatch.setattr("hermes.honcho.wizard.try_server", lambda *_: "")
    assert hermes("memory", "setup", "honcho").code == 0
    assert block(home) == {"apiKey": "hch-new", "baseUrl": "", "peerName": "ann"}
    assert "Honcho Cloud needs a key." in person.heard


@pytest.mark.contract("5.4", "10.3")
def test_the_url_that_is_offered_counts_when_it_is_taken(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    Person("self-hosted", "", "", "", "", "", "save", *USE).sits_down(monkeypatch)
    assert hermes("memory", "setup", "honcho").code == 0
    assert block(home) == {"baseUrl": "http://localhost:8000", "peerName": "ann"}


@pytest.mark.contract("5.4", "10.3")
def test_a_key_for_one_server_is_not_sent_to_another(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "honcho.json").write_text(json.dumps({"apiKey": "cloud-key"}), "utf-8")
    person = Person("self-hosted", NOBODY, "", "", "", "", "save", *USE).sits_down(monkeypatch)
    assert hermes("memory", "setup", "honcho").code == 0
    assert block(home) == {"apiKey": "", "baseUrl": NOBODY, "peerName": "ann"}
    assert "The key so far is for another server: it is not used for this one." in person.heard


@pytest.mark.contract("5.2", "10.3")
@pytest.mark.parametrize("asks", [False, True])
def test_the_key_of_the_variable_is_used_for_a_public_server_and_not_written(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    monkeypatch.setenv("HONCHO_API_KEY", "hch-variable")
    tried: list[str] = []

    def works(trial: HonchoConfiguration, _: object) -> str:
        tried.append(find_server(trial).key)
        return ""

    monkeypatch.setattr("hermes.honcho.wizard.try_server", works)
    if asks:
        Person("self-hosted", PUBLIC, "", "", "", "", *USE).sits_down(monkeypatch)
    ran = hermes("memory", "setup", "honcho", *([] if asks else ["--yes", "--server", "self-hosted", "--url", PUBLIC]))
    assert (ran.code, tried) == (0, ["hch-variable"]), ran.err
    assert "apiKey" not in block(home)
    assert json.loads(hermes("honcho", "status", "--json").out)["auth"] == "API key (variable HONCHO_API_KEY)"


@pytest.mark.contract("5.2")
def test_an_empty_key_of_the_file_hides_no_variable(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONCHO_API_KEY", "hch-variable")
    home.mkdir()
    empty = {"apiKey": "of-another-server", "hosts": {"hermes": {"baseUrl": PUBLIC, "apiKey": ""}}}
    (home / "honcho.json").write_text(json.dumps(empty), "utf-8")
    assert hermes("config", "set", "memory.provider", "honcho").code == 0
    assert json.loads(hermes("honcho", "status", "--json").out)["auth"] == "API key (variable HONCHO_API_KEY)"
    monkeypatch.delenv("HONCHO_API_KEY")
    assert json.loads(hermes("honcho", "status", "--json").out)["auth"] == "none"


@pytest.mark.contract("10.3")
def test_a_key_that_is_taken_away_leaves_no_empty_one(home: Path, hermes: Hermes) -> None:
    home.mkdir()
    before = {"hosts": {"hermes": {"baseUrl": "http://127.0.0.1:8", "apiKey": "k"}}}
    (home / "honcho.json").write_text(json.dumps(before), "utf-8")
    options = ("--yes", "--unchecked", "--server", "self-hosted", "--url", NOBODY)
    assert hermes("memory", "setup", "honcho", *options).code == 0
    assert block(home) == {"baseUrl": NOBODY}


@pytest.mark.contract("5.4", "10.3")
def test_our_own_server_can_be_chosen_though_a_key_is_there_and_the_key_stays(home: Path, hermes: Hermes) -> None:
    home.mkdir()
    (home / "honcho.json").write_text(json.dumps({"apiKey": "cloud-key"}), "utf-8")
    ran = hermes("memory", "setup", "honcho", "--yes", "--unchecked", "--server", "embedded")
    assert ran.code == 0
    assert document(home) == {"apiKey": "cloud-key", "hosts": {"hermes": {"server": "embedded"}}}
    assert json.loads(hermes("honcho", "status", "--json").out)["server"] == "our own memory server"
    assert hermes("honcho", "setup", "--yes", "--unchecked", "--server", "cloud").code == 0
    assert json.loads(hermes("honcho", "peers", "--json").out)["profiles"][0]["agent"] == "hermes"
    assert block(home) == {"server": "auto"}


@pytest.mark.contract("10.3")
def test_a_server_that_does_not_answer_can_be_changed_or_given_up(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    Person("self-hosted", NOBODY, "", "", "", "", "again", "stop").sits_down(monkeypatch)
    ran = hermes("memory", "setup", "honcho")
    assert (ran.code, ran.err) == (2, "hermes: nothing was saved\n")
    assert (document(home), provider(hermes)) == ({}, "none")
    other = ("other", "self-hosted", "http://127.0.0.1:10", "", "save")
    person = Person("self-hosted", NOBODY, "", "", "", "", *other, *USE).sits_down(monkeypatch)
    assert hermes("memory", "setup", "honcho").code == 0
    assert (block(home)["baseUrl"], person.answers) == ("http://127.0.0.1:10", [])


SERVER_AND_NAMES = ("self-hosted", NOBODY, "", "boss", "", "")


@pytest.mark.contract("5.6", "5.14", "10.3")
@pytest.mark.parametrize(
    ("answers", "expected", "marked"),
    [
        (("just-me", "all"), {"pinUserPeer": True}, {"telegram:17": "owner", "telegram:18": "owner"}),
        (("just-me", "some", "yes", "no"), {"pinUserPeer": True}, {"telegram:17": "owner"}),
        (("just-me", "none"), {"pinUserPeer": True}, {}),
        (("pooled", "some", "no", "yes"), {"userPeerAliases": {"18": "boss"}}, {"telegram:18": "owner"}),
        (("others", "tg_"), {"runtimePeerPrefix": "tg_"}, {}),
        (("e", "true", "false", '{"17": "bob"}', ""), {"pinUserPeer": True, "userPeerAliases": {"17": "bob"}}, {}),
    ],
)
def test_who_talks_to_the_gateway_becomes_keys_and_marks(
    home: Path,
    hermes: Hermes,
    monkeypatch: pytest.MonkeyPatch,
    answers: tuple[str, ...],
    expected: dict[str, Any],
    marked: dict[str, str],
) -> None:
    add_gateway(hermes)
    person = Person(*SERVER_AND_NAMES, "save", *USE, *answers).sits_down(monkeypatch)
    ran = hermes("memory", "setup", "honcho")
    assert (ran.code, person.answers) == (0, []), ran.err
    assert block(home) == {"baseUrl": NOBODY, "peerName": "boss", **expected}
    assert roles(hermes) == marked


@pytest.mark.contract("5.14")
def test_taking_the_pin_away_says_that_nothing_moves(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_gateway(hermes)
    options = ("--yes", "--unchecked", "--server", "self-hosted", "--url", NOBODY, "--user", "ann")
    assert hermes("memory", "setup", "honcho", *options, "--identity", "just-me").code == 0
    assert roles(hermes) == {"telegram:17": "owner", "telegram:18": "owner"}, "--yes confirms the list"
    person = Person(*("", "", "", "", "", ""), "save", *USE, "pooled").sits_down(monkeypatch)
    assert hermes("honcho", "setup").code == 0
    assert any("moves nothing: what is known so far stays with ann" in line for line in person.heard)
    assert (block(home)["pinUserPeer"], block(home)["userPeerAliases"]) == (False, {"17": "ann", "18": "ann"})


@pytest.mark.processes
@pytest.mark.contract("10.3", "10.6")
@pytest.mark.parametrize("columns", [60, 100])
def test_the_questions_fit_the_window(home: Path, tmp_path: Path, columns: int) -> None:
    env = {"HERMES_HOME": str(home), "HOME": str(tmp_path), "LOGNAME": "ann"}
    with Screen("memory", "setup", "honcho", env=env, columns=columns, rows=70) as screen:
        for shown, typed in (
            ("Number or word [embedded]:", "3"),
            ("URL of the server [http://localhost:8000]:", NOBODY),
            ("Key of this server", ""),
            ("Your name at Honcho [ann]:", ""),
            ("The agent's name [hermes]:", ""),
            ("Workspace: profiles in one know the same people [hermes]:", ""),
            ("Number or word [again]:", "save"),
            ("Number or word [keep]:", "change"),
            ("Number or word [hybrid]:", "context"),
            ("Number or word [directional]:", ""),
            ("Number or word [async]:", "every"),
            ("How many turns [5]:", ""),
            ("Number or word [per-directory]:", "per-repo"),
            ("Tokens of recalled context with a message, at most [1000]:", ""),
        ):
            screen.wait_for(shown).type(typed + ENTER)
        assert screen.ended() == 0
        assert max(len(row) for row in screen.rows) <= columns
    assert block(home) == {
        "baseUrl": NOBODY,
        "peerName": "ann",
        "recallMode": "context",
        "writeFrequency": 5,
        "sessionStrategy": "per-repo",
    }
