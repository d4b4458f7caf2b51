"""`hermes honcho …` as a person runs it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from hermes.cli.main import SUGGESTIONS
from tests.honcho.asking import Person
from tests.honcho.setting_up import Hermes, meet


def block(path: Path, host: str = "hermes") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["hosts"][host]
    return found


@pytest.mark.contract("10.3")
@pytest.mark.parametrize("command", ["status", "setup", "mode", "peers", "--help"])
def test_while_another_provider_is_chosen_each_command_says_what_to_run(
    home: Path, hermes: Hermes, command: str
) -> None:
    ran = hermes("honcho", command)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "hermes: Honcho is not the active memory provider (memory.provider is none). "
        "Run `hermes memory setup honcho`.\n"
    )


def test_unknown_command_word_is_an_error_as_before(hermes: Hermes) -> None:
    ran = hermes("hunchback")
    assert (ran.code, "No such command 'hunchback'" in ran.err) == (2, True)
    assert all(command not in ran.err for command in SUGGESTIONS.values())


@pytest.mark.parametrize("word", SUGGESTIONS)
def test_a_word_that_others_have_as_a_command_names_the_one_here(hermes: Hermes, word: str) -> None:
    ran = hermes(word)
    assert (ran.code, SUGGESTIONS[word] in ran.err, "--help" in ran.err) == (2, True, True)


@pytest.mark.contract("10.3")
def test_help_lists_the_chosen_providers_commands(chosen: Path, hermes: Hermes) -> None:
    assert "\n  honcho " in hermes("--help").out
    listed = hermes("honcho", "--help").out
    for name in (
        *("setup", "status", "enable", "disable", "mode", "peer", "peers", "sessions", "strategy", "tokens", "map"),
        *("sync", "identity", "migrate"),
    ):
        assert f"\n  {name} " in listed, name


@pytest.mark.contract("10.3")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("enable",), {"enabled": True}),
        (("disable",), {"enabled": False}),
        (("mode", "tools"), {"recallMode": "tools"}),
        (("mode", "auto"), {"recallMode": "hybrid"}),
        (("mode", "unified"), {"observationMode": "unified"}),
        (("peer", "--user", "Ann Smith", "--ai", "bot"), {"peerName": "Ann-Smith", "aiPeer": "bot"}),
        (("peer", "--reasoning", "high"), {"dialecticReasoningLevel": "high"}),
        (("strategy", "per-repo"), {"sessionStrategy": "per-repo"}),
        (("tokens", "--context", "900", "--dialectic", "50"), {"contextTokens": 900, "dialecticMaxChars": 50}),
    ],
)
def test_a_command_writes_its_key_for_the_profile_and_shows_it(
    chosen: Path, hermes: Hermes, arguments: tuple[str, ...], expected: dict[str, Any]
) -> None:
    ran = hermes("honcho", *arguments)
    assert ran.code == 0, ran.err
    assert block(chosen) == expected
    for key in expected:
        assert key in ran.out
    assert json.loads(chosen.read_text(encoding="utf-8"))["baseUrl"] == "http://127.0.0.1:9"


@pytest.mark.contract("5.3", "10.3")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mode", "both"), "unknown mode 'both'. There are hybrid, context, tools, directional, unified"),
        (("strategy", "daily"), "sessionStrategy is 'daily', but takes one of per-directory"),
        (("peer", "--reasoning", "much"), "takes one of minimal, low, medium, high, max"),
        (("tokens", "--context", "0"), "contextTokens is 0, but takes none or a whole number from 1"),
    ],
)
def test_a_wrong_value_is_refused_and_nothing_is_written(
    chosen: Path, hermes: Hermes, arguments: tuple[str, ...], said: str
) -> None:
    before = chosen.read_text(encoding="utf-8")
    ran = hermes("honcho", *arguments)
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert "config list" not in ran.err, "which lists no key of Honcho's"
    assert chosen.read_text(encoding="utf-8") == before


@pytest.mark.contract("10.3", "P5")
def test_json_says_what_is_in_force_as_the_text_does(chosen: Path, hermes: Hermes) -> None:
    told = json.loads(hermes("honcho", "peer", "--json").out)
    assert (told["peerName"], told["aiPeer"]) == ("ann", "hermes")
    found = json.loads(hermes("honcho", "status", "--json").out)["keys"]
    values = [found[key]["value"] for key in ("enabled", "workspace", "aiPeer", "contextTokens")]
    assert values == [True, "hermes", "hermes", 1000]


@pytest.mark.contract("10.3", "P5")
def test_status_says_of_a_honcho_that_is_switched_off_nothing_that_it_does_not_do(chosen: Path, hermes: Hermes) -> None:
    assert hermes("honcho", "disable").code == 0
    told = json.loads(hermes("memory", "status", "--json").out)["plugin"]
    assert (told["enabled"][:3], told["writing"], told["recall"]) == ("no:", "nothing", "nothing")


@pytest.mark.contract("P5")
def test_memory_status_reports_an_invalid_file_once(chosen: Path, hermes: Hermes) -> None:
    chosen.write_text('{"peerName": ', encoding="utf-8")
    ran = hermes("memory", "status")
    assert (ran.code, (ran.out + ran.err).count("this is not JSON")) == (1, 1), ran.err


@pytest.mark.contract("5.6", "10.3")
def test_a_change_that_would_break_the_file_is_refused(chosen: Path, hermes: Hermes) -> None:
    before = chosen.read_text(encoding="utf-8")
    ran = hermes("honcho", "peer", "--user", "bot", "--ai", "bot")
    assert (ran.code, "you and the agent would both be the peer 'bot'" in ran.err) == (2, True), ran.err
    assert chosen.read_text(encoding="utf-8") == before


@pytest.mark.contract("10.3")
def test_another_name_says_what_it_leaves_behind(chosen: Path, hermes: Hermes) -> None:
    ran = hermes("honcho", "peer", "--user", "Bob B", "--ai", "bot")
    told = " ".join(ran.out.split())
    assert "what is known of ann stays with that name; you are Bob-B now" in told
    assert "what hermes knows stays with that name; the agent is bot now" in told
    assert "peerName is 'Bob B', which counts as Bob-B" in told
    assert "stays" not in hermes("honcho", "mode", "tools").out


@pytest.mark.contract("10.3")
@pytest.mark.parametrize("command", ["mode", "peer", "strategy", "tokens", "sessions", "map", "peers", "status"])
def test_a_command_that_prints_prints_json_too(chosen: Path, hermes: Hermes, command: str) -> None:
    plain, ran = hermes("honcho", command), hermes("honcho", command, "--json")
    assert (plain.code, ran.code) == (0, 0), ran.err
    assert isinstance(json.loads(ran.out), dict)
    assert plain.out


@pytest.mark.contract("10.3")
def test_status_shows_every_key_and_where_it_comes_from(
    chosen: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONCHO_API_KEY", "hch-very-secret-key")
    monkeypatch.setenv("HONCHO_BASE_URL", "http://127.0.0.1:9")
    chosen.write_text(json.dumps({"saveMessages": True, "hosts": {"hermes": {"peerName": "ann"}}}), encoding="utf-8")
    told = json.loads(hermes("honcho", "status", "--json").out)
    keys = {key: (one["value"], one["from"]) for key, one in told["keys"].items()}
    assert keys["peerName"] == ("ann", "host block")
    assert keys["saveMessages"] == (True, "root")
    assert keys["apiKey"] == ("(hidden)", "environment")
    assert keys["recallMode"] == ("hybrid", "default")
    assert told["keys"]["peerName"]["where"] == f"{chosen}, hosts.hermes"
    assert (told["workspace"], told["you"], told["agent"], told["session_here"]) == ("hermes", "ann", "hermes", "work")
    assert (told["server"], told["auth"]) == (
        "self-hosted at http://127.0.0.1:9",
        "API key (variable HONCHO_API_KEY)",
    )
    assert "does not answer" in told["connection"]
    ran = hermes("honcho", "status")
    assert "hch-very-secret-key" not in ran.out + ran.err
    for line in ("variable HONCHO_API_KEY", "session here  work (by directory)", "you           ann"):
        assert line in ran.out


@pytest.mark.contract("5.2")
def test_variables_of_the_homes_env_file_count_unless_they_are_set_already(
    chosen: Path, home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".env").write_text("HONCHO_ENVIRONMENT=local\nHERMES_HONCHO_HOST=lab\n", encoding="utf-8")
    told = json.loads(hermes("honcho", "status", "--json").out)
    assert (told["keys"]["environment"]["value"], told["host"]) == ("local", "lab")
    monkeypatch.setenv("HERMES_HONCHO_HOST", "office")
    assert json.loads(hermes("honcho", "status", "--json").out)["host"] == "office"


@pytest.mark.contract("5.3", "10.3")
def test_status_names_what_is_wrong_and_ends_with_1(chosen: Path, hermes: Hermes) -> None:
    chosen.write_text('{"baseUrl": "http://127.0.0.1:9", "recallMode": "x", "pinUserPeer": 7}', encoding="utf-8")
    ran = hermes("honcho", "status")
    assert ran.code == 1
    assert "recallMode is 'x'" in ran.out
    assert "pinUserPeer is 7" in ran.out


@pytest.mark.contract("10.3")
def test_status_distinguishes_a_sign_in_from_a_key_without_its_tokens(chosen: Path, hermes: Hermes) -> None:
    grant = {"refreshToken": "hch-rt-secret", "clientId": "hermes-agent", "expiresAt": time.time() + 2600}
    signed_in = {"baseUrl": "http://127.0.0.1:9", "apiKey": "hch-at-secret", "oauth": grant}
    chosen.write_text(json.dumps(signed_in), encoding="utf-8")
    ran = hermes("honcho", "status")
    assert "auth          OAuth (hermes-agent, token valid 43m)" in ran.out
    assert "secret" not in ran.out + ran.err + hermes("honcho", "status", "--json").out
    chosen.write_text(json.dumps({**signed_in, "oauth": {**grant, "expiresAt": 1}}), encoding="utf-8")
    assert json.loads(hermes("honcho", "status", "--json").out)["auth"] == "OAuth (hermes-agent, expired), root"


@pytest.mark.contract("5.9", "10.3")
def test_map_names_this_directory_and_says_when_that_has_no_effect(
    chosen: Path, hermes: Hermes, tmp_path: Path
) -> None:
    ran = hermes("honcho", "map", "my project")
    assert (ran.code, "no effect" in ran.out) == (0, False)
    here = str(tmp_path / "work")
    assert json.loads(chosen.read_text(encoding="utf-8"))["sessions"] == {here: "my-project"}
    assert json.loads(hermes("honcho", "sessions", "--json").out) == {here: "my-project"}
    assert json.loads(hermes("honcho", "status", "--json").out)["session_here"] == "my-project"
    assert "'my project' was saved as my-project" in " ".join(ran.out.split())
    removed = hermes("honcho", "map", "--remove")
    assert (removed.code, json.loads(hermes("honcho", "sessions", "--json").out)) == (0, {}), removed.err
    assert "has no name" in hermes("honcho", "map", "--remove").err
    nameless = hermes("honcho", "map", "会")
    assert (nameless.code, "has no valid character" in nameless.err) == (2, True)
    hermes("honcho", "strategy", "per-session")
    assert "It has no effect now" in hermes("honcho", "map", "other").out
    assert json.loads(hermes("honcho", "status", "--json").out)["session_here"] is None


@pytest.mark.contract("5.6", "P5")
def test_status_and_doctor_warn_of_a_pin_with_unmarked_people(chosen: Path, hermes: Hermes) -> None:
    meet(hermes, "telegram:17")
    chosen.write_text('{"peerName": "ann", "pinUserPeer": true, "baseUrl": "http://127.0.0.1:9"}', encoding="utf-8")
    said = "`hermes gateway people --me telegram:17`"
    for command in (("honcho", "status"), ("memory", "status"), ("doctor",)):
        ran = hermes(*command)
        assert said in " ".join(ran.out.split()), command
    assert hermes("gateway", "people", "--me", "telegram:17").code == 0
    for command in (("honcho", "status"), ("memory", "status"), ("doctor",)):
        assert said not in " ".join(hermes(*command).out.split()), command


@pytest.mark.contract("5.6")
def test_what_becomes_of_old_memory_is_asked_before_someone_gets_another_peer(
    chosen: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = hermes("honcho", "peers", "map", "17", "bob")
    assert (alone.code, "`--leave` leaves it where it is" in alone.err) == (2, True)
    person = Person("stop").sits_down(monkeypatch)
    assert hermes("honcho", "peers", "map", "17", "bob").code == 2
    assert person.asked == ["What becomes of what is known of 17?"]
    assert "cannot merge" in " ".join(person.heard)
    assert "hosts" not in json.loads(chosen.read_text(encoding="utf-8"))
    Person("leave").sits_down(monkeypatch)
    assert hermes("honcho", "peers", "map", "17", "bob").code == 0
    assert block(chosen) == {"userPeerAliases": {"17": "bob"}}
    again = hermes("honcho", "peers", "map", "17", "bob", "--leave")
    assert (again.code, "17 is bob already" in again.err) == (2, True)


@pytest.mark.contract("5.6")
@pytest.mark.parametrize(("name", "said"), [("hermes", "hermes is the agent"), ("会", "but takes a name of letters")])
def test_nobody_is_made_the_agent_or_nameless(chosen: Path, hermes: Hermes, name: str, said: str) -> None:
    before = chosen.read_text(encoding="utf-8")
    ran = hermes("honcho", "peers", "map", "17", name, "--merge")
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert chosen.read_text(encoding="utf-8") == before


@pytest.mark.contract("5.3", "P5")
def test_doctor_names_a_broken_configuration(chosen: Path, hermes: Hermes) -> None:
    chosen.write_text("{", encoding="utf-8")
    ran = hermes("doctor")
    assert ran.code == 1
    assert "this is not JSON" in ran.out
