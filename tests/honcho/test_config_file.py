"""honcho.json: which file is in force, and what a change preserves."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes.errors import HomeError, SettingsError
from hermes.home import Home
from hermes.honcho import keys
from hermes.honcho.config_file import edit_document, set_entry, set_keys
from hermes.honcho.plugin import Watch
from hermes.honcho.server import Machine as CommandContext
from tests.honcho.configuring import Machine

STOCK: dict[str, Any] = {
    "apiKey": "hch-root",
    "peerName": "ann",
    "$schema": "https://elsewhere.example/schema.json",
    "hosts": {
        "obsidian": {"workspace": "vault", "linkedHosts": ["hermes"]},
        "hermes": {
            "apiKey": "access-1",
            "oauth": {
                "refreshToken": "refresh-1",
                "expiresAt": 1790000000,
                "clientId": "hermes-agent",
                "tokenEndpoint": "https://api.honcho.dev/oauth/token",
                "scope": "write",
                "tokenType": "Bearer",
            },
            "aiPeer": "hermes",
            "pinPeerName": True,
            "theme": {"of": ["another", "program"]},
        },
        "hermes.coder": {"aiPeer": "coder", "sessionStrategy": "per-repo", "note to self": "keep me"},
        "hermes_writer": {"aiPeer": "writer", "recallMode": "auto"},
    },
    "sessions": {"/srv/one": "one"},
    "zeta": [1, 2.5, None, "ü"],
}


def pairs(value: Any) -> Any:
    """Parse a document with the order of its keys."""
    if isinstance(value, dict):
        return [(key, pairs(inner)) for key, inner in value.items()]
    return [pairs(item) for item in value] if isinstance(value, list) else value


@pytest.mark.contract("5.1")
def test_the_first_file_that_exists_counts(machine: Machine) -> None:
    profile, shared = machine.profile("coder") / "honcho.json", machine.home / "honcho.json"
    everyones = machine.folder / ".honcho" / "config.json"
    for path, name in ((everyones, "global"), (shared, "default"), (profile, "own")):
        machine.write({"peerName": name}, path)
        found = machine.load("coder")
        assert (found.file, found.identities.owner) == (path, name)
    assert machine.load().file == shared


@pytest.mark.contract("5.1")
def test_a_home_elsewhere_has_its_own_file_first_and_then_the_users(machine: Machine) -> None:
    machine.write({"peerName": "usual"})
    elsewhere = machine.folder / "elsewhere"
    candidates = Machine(machine.folder).places().candidates
    found = machine.places().__class__.find(elsewhere, None, {"HOME": str(machine.folder)})
    assert found.candidates == (elsewhere / "honcho.json", *candidates)
    assert found.existing() == machine.home / "honcho.json"


@pytest.mark.contract("5.1")
def test_a_place_that_may_not_be_looked_into_is_passed_over(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    path = machine.write({"peerName": "ann"})
    exists = Path.exists

    def closed(self: Path) -> bool:
        if self == machine.profile("coder") / "honcho.json":
            raise PermissionError(13, "Permission denied")
        return exists(self)

    monkeypatch.setattr(Path, "exists", closed)
    assert machine.places("coder").existing() == path


@pytest.mark.contract("5.2")
def test_the_host_key_is_the_profiles_unless_a_variable_names_one(machine: Machine) -> None:
    machine.write({"hosts": {"hermes": {"aiPeer": "a"}, "hermes_coder": {"aiPeer": "b"}, "lab": {"aiPeer": "c"}}})
    assert [machine.load(p).identities.ai for p in (None, "coder")] == ["a", "b"]
    assert machine.load("coder", host="lab").identities.ai == "c"
    bare = machine.load("writer")
    assert (bare.host, bare.workspace, bare.identities.ai) == ("hermes_writer",) * 3


@pytest.mark.contract("5.1", "5.2", "10.9")
def test_a_stock_file_is_used_and_written_back_with_nothing_lost(machine: Machine) -> None:
    path = machine.write(STOCK)
    coder = machine.load("coder").checked()
    assert (coder.identities.ai, coder.get(keys.SESSION_STRATEGY), coder.get(keys.API_KEY)) == (
        "coder",
        "per-repo",
        "hch-root",
    )
    assert machine.load().checked().get(keys.API_KEY) == "access-1"

    edit_document(machine.places("coder"), set_keys({"aiPeer": "programmer"}))
    edit_document(machine.places(), set_keys({"recallMode": "context"}))

    hosts = dict(STOCK["hosts"])
    expected_hosts = {
        "obsidian": hosts["obsidian"],
        "hermes": {
            **{("pinUserPeer" if key == "pinPeerName" else key): value for key, value in hosts["hermes"].items()},
            "recallMode": "context",
        },
        "hermes_coder": {**hosts["hermes.coder"], "aiPeer": "programmer"},
        "hermes_writer": hosts["hermes_writer"],
    }
    assert pairs(machine.read(path)) == pairs({**STOCK, "hosts": expected_hosts})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.contract("5.2")
def test_an_old_block_beside_the_new_one_is_neither_read_nor_touched(machine: Machine) -> None:
    machine.write({"hosts": {"hermes.coder": {"aiPeer": "old", "peerName": "x"}, "hermes_coder": {"aiPeer": "new"}}})
    assert machine.load("coder").identities.ai == "new"
    edit_document(machine.places("coder"), set_keys({"peerName": "ann"}))
    assert machine.read()["hosts"] == {
        "hermes.coder": {"aiPeer": "old", "peerName": "x"},
        "hermes_coder": {"aiPeer": "new", "peerName": "ann"},
    }


@pytest.mark.contract("5.1")
def test_where_there_is_no_file_one_is_made_in_the_default_home_for_its_owner_alone(machine: Machine) -> None:
    path = edit_document(machine.places("coder"), set_keys({"peerName": "ann"}))
    assert path == machine.home / "honcho.json"
    assert machine.read() == {"hosts": {"hermes_coder": {"peerName": "ann"}}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.contract("5.1")
def test_in_the_file_of_all_honcho_programs_only_our_block_is_written(machine: Machine) -> None:
    path = machine.folder / ".honcho" / "config.json"
    machine.write({"peerName": "ann", "sessions": {"/a": "one"}, "hosts": {"cursor": {"x": 1}}}, path)
    edit_document(machine.places(), set_keys({"recallMode": "tools"}))
    edit_document(machine.places(), set_entry(keys.SESSIONS, "/b", "two"))
    assert machine.read(path) == {
        "peerName": "ann",
        "sessions": {"/a": "one"},
        "hosts": {"cursor": {"x": 1}, "hermes": {"recallMode": "tools", "sessions": {"/a": "one", "/b": "two"}}},
    }


def test_a_key_that_all_profiles_share_is_written_where_they_find_it(machine: Machine) -> None:
    machine.write({"hosts": {"hermes_own": {"sessions": {"/mine": "m"}}}})
    edit_document(machine.places("coder"), set_entry(keys.SESSIONS, "/a", "one"))
    edit_document(machine.places("own"), set_entry(keys.SESSIONS, "/b", "two"))
    found = machine.read()
    assert found["sessions"] == {"/a": "one"}
    assert found["hosts"]["hermes_own"]["sessions"] == {"/mine": "m", "/b": "two"}


@pytest.mark.contract("5.1")
def test_half_a_character_in_a_foreign_key_survives_a_write(machine: Machine) -> None:
    path = machine.write('{"foreign": "\\ud83d", "other": "\\u4f1a"}')
    edit_document(machine.places(), set_keys({"peerName": "ann"}))
    assert machine.read(path) == {"foreign": "\ud83d", "other": "会", "hosts": {"hermes": {"peerName": "ann"}}}


@pytest.mark.contract("5.3")
def test_an_unknown_key_is_not_written(machine: Machine) -> None:
    with pytest.raises(SettingsError, match="there is no key colour in"):
        edit_document(machine.places(), set_keys({"colour": "red", "peerName": "ann"}))
    assert machine.places().existing() is None


@pytest.mark.contract("5.1")
def test_a_map_that_was_changed_meanwhile_keeps_what_others_changed(machine: Machine) -> None:
    machine.write({"hosts": {"hermes": {"userPeerAliases": {"1": "one", "2": "two", "4": "by another"}}}})
    seen, wanted = {"1": "one", "2": "two", "3": "gone there"}, {"1": "changed", "5": "new"}
    edit_document(machine.places(), set_keys({"userPeerAliases": wanted}, {"userPeerAliases": seen}))
    assert machine.read()["hosts"]["hermes"]["userPeerAliases"] == {"1": "changed", "4": "by another", "5": "new"}


@pytest.mark.contract("5.3")
def test_a_wrong_value_is_refused_before_anything_is_written(machine: Machine) -> None:
    path = machine.write({"peerName": "ann"})
    with pytest.raises(SettingsError, match="recallMode is 'all', but takes one of hybrid, context, tools"):
        edit_document(machine.places(), set_keys({"recallMode": "all"}))
    assert path.read_text(encoding="utf-8") == '{"peerName": "ann"}'


@pytest.mark.contract("5.3")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"peerName": ', "line 1: this is not JSON"),
        ("[]", "must hold one JSON object"),
        ('{"hosts": []}', "`hosts` must be an object that holds host blocks"),
        ('{"hosts": {"hermes": 3}}', "`hosts.hermes` must be an object"),
        ("[" * 100_000, "nested more than 64 deep"),
        ('{"timeout": ' + "9" * 5000 + "}", "a number has too many digits"),
        ('{"a": "' + "x" * 5_000_000 + '"}', "it has 5,000,009 bytes, and at most 4,194,304 are read"),
    ],
)
def test_invalid_file_is_reported_and_never_overwritten(machine: Machine, text: str, told: str) -> None:
    path = machine.write(text)
    found = machine.load()
    assert told in found.problems[0].message
    assert str(path) in found.problems[0].message
    with pytest.raises(SettingsError):
        edit_document(machine.places(), set_keys({"peerName": "ann"}))
    assert path.read_text(encoding="utf-8") == text


def here(machine: Machine) -> CommandContext:
    return CommandContext(Home(machine.home), {"HOME": str(machine.folder), "LOGNAME": "x"})


@pytest.mark.contract("5.3", "P5")
def test_file_that_becomes_invalid_is_reported_once_and_the_last_valid_one_holds(machine: Machine) -> None:
    told: list[tuple[str, str | None]] = []
    machine.write({"peerName": "ann"})
    watch = Watch(here(machine), lambda *trouble: told.append(trouble))
    assert watch.current().identities.owner == "ann"
    machine.write('{"peerName": "b')
    assert [watch.current().identities.owner for _ in range(3)] == ["ann"] * 3
    machine.write({"peerName": ["b"]})
    assert watch.current().identities.owner == "ann"
    machine.write({"peerName": "bob"})
    assert watch.current().identities.owner == "bob"
    assert [bool(line) for _, line in told] == [True, True, False]
    assert "what it said before is in force" in str(told[0][1])


@pytest.mark.contract("5.3")
def test_a_file_that_was_never_good_is_an_error_until_it_is(machine: Machine) -> None:
    machine.write("{")
    watch = Watch(here(machine), lambda *_: None)
    with pytest.raises(SettingsError, match="this is not JSON"):
        watch.current()
    machine.write({"peerName": "ann"})
    assert watch.current().identities.owner == "ann"


WRITER = """
import sys
from pathlib import Path
from hermes.honcho import keys
from hermes.honcho.config_file import set_entry, set_keys
from hermes.honcho.config_file import ConfigPlaces, edit_document

home, name = Path(sys.argv[1]), sys.argv[2]
places = ConfigPlaces.find(home, None, {"HOME": str(home.parent)})
for turn in range(20):
    edit_document(places, set_entry(keys.USER_PEER_ALIASES, f"{name}-{turn}", name))
    edit_document(places, set_keys({"dialecticCadence" if name == "one" else "contextCadence": turn + 1}))
"""


@pytest.mark.contract("5.1")
@pytest.mark.processes
def test_changes_of_two_processes_at_once_are_all_there(machine: Machine) -> None:
    machine.write({"foreign": True})
    running = [subprocess.Popen([sys.executable, "-c", WRITER, str(machine.home), name]) for name in ("one", "two")]
    assert [process.wait(180) for process in running] == [0, 0]
    block = machine.read()["hosts"]["hermes"]
    assert set(block["userPeerAliases"]) == {f"{name}-{turn}" for name in ("one", "two") for turn in range(20)}
    assert (block["dialecticCadence"], block["contextCadence"], machine.read()["foreign"]) == (20, 20, True)


@pytest.mark.contract("5.1")
def test_concurrent_change_by_a_program_without_our_lock_is_kept(machine: Machine) -> None:
    machine.write({"peerName": "ann"})
    others = iter(({"peerName": "ann", "theirs": 1}, {"peerName": "ann", "theirs": 2}))

    def meanwhile(block: dict[str, Any], _root: dict[str, Any]) -> None:
        block["aiPeer"] = "bot"
        if (written := next(others, None)) is not None:
            machine.write(written)

    edit_document(machine.places(), meanwhile)
    assert machine.read() == {"peerName": "ann", "theirs": 2, "hosts": {"hermes": {"aiPeer": "bot"}}}


@pytest.mark.contract("5.1")
def test_file_that_keeps_changing_is_an_error_and_left_alone(machine: Machine) -> None:
    count = iter(range(100))

    def meanwhile(block: dict[str, Any], _root: dict[str, Any]) -> None:
        machine.write({"theirs": next(count)})

    with pytest.raises(HomeError, match="another program keeps changing"):
        edit_document(machine.places(), meanwhile)
    assert machine.read().keys() == {"theirs"}


@pytest.mark.contract("5.1")
@pytest.mark.skipif(os.name == "nt", reason="flock")
def test_a_change_waits_for_the_lock_that_a_stock_hermes_takes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    path = machine.write({})
    monkeypatch.setattr("hermes.honcho.config_file.LOCK_SECONDS", 0.05)
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(HomeError, match="another process has locked"):
            edit_document(machine.places(), set_keys({"peerName": "ann"}))
    edit_document(machine.places(), set_keys({"peerName": "ann"}))
    assert json.loads(path.read_text(encoding="utf-8"))["hosts"]["hermes"] == {"peerName": "ann"}
