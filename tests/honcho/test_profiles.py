"""`hermes honcho` for other profiles: `--target-profile`, `--all`, `sync`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.honcho.asking import Person
from tests.honcho.setting_up import Hermes, block


def add_profiles(home: Path) -> None:
    for name in ("coder", "writer", "own"):
        (home / "profiles" / name).mkdir(parents=True)
    (home / "profiles" / "own" / "honcho.json").write_text('{"peerName": "someone"}', encoding="utf-8")


@pytest.mark.contract("10.3")
def test_sync_gives_every_profile_a_block_with_a_separate_agent(chosen: Path, home: Path, hermes: Hermes) -> None:
    add_profiles(home)
    mine = {"apiKey": "k", "peerName": "ann", "recallMode": "context", "theme": "dark", "aiPeer": "main"}
    document = {"workspace": "lab", "hosts": {"hermes": mine, "hermes_writer": {"aiPeer": "w"}}}
    chosen.write_text(json.dumps(document), encoding="utf-8")
    ran = hermes("honcho", "sync")
    assert ran.code == 0, ran.err
    assert block(home, "hermes_coder") == {
        "apiKey": "k",
        "peerName": "ann",
        "recallMode": "context",
        "workspace": "lab",
        "aiPeer": "hermes_coder",
    }
    assert block(home, "hermes_writer") == {"aiPeer": "w"}
    assert block(home) == mine
    assert "it has a file of its own" in ran.out


@pytest.mark.contract("10.3")
def test_sync_says_what_a_profile_leaves_behind_and_asks_before(
    chosen: Path, home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_profiles(home)
    (home / "profiles" / "coder" / "state.db").touch()
    left = "what coder knows in the workspace hermes_coder stays there"
    alone = hermes("honcho", "sync")
    assert (alone.code, "`--yes` goes on without asking" in alone.err, block(home, "hermes_coder")) == (2, True, {})
    person = Person("no").sits_down(monkeypatch)
    assert hermes("honcho", "sync").code == 2
    assert any(left in line for line in person.heard)
    assert block(home, "hermes_coder") == {}
    ran = hermes("honcho", "sync", "--yes")
    told = " ".join(ran.out.split())
    assert (ran.code, block(home, "hermes_coder")["workspace"]) == (0, "hermes"), ran.err
    assert "--workspace hermes_coder" in told
    assert "what writer knows" not in told, "it has said nothing yet"


@pytest.mark.contract("10.3")
def test_sync_does_not_copy_a_grant_that_only_one_may_renew(chosen: Path, home: Path, hermes: Hermes) -> None:
    add_profiles(home)
    mine = {"apiKey": "access", "oauth": {"refreshToken": "r"}}
    chosen.write_text(json.dumps({"hosts": {"hermes": mine}}), encoding="utf-8")
    ran = hermes("honcho", "sync", "--json")
    assert json.loads(ran.out)["own"].startswith("nothing: it has a file of its own")
    assert "it needs a sign-in or key of its own" in ran.out
    assert block(home, "hermes_coder") == {"workspace": "hermes", "aiPeer": "hermes_coder"}


@pytest.mark.contract("10.3")
def test_all_profiles_are_shown_and_another_one_can_be_changed(chosen: Path, home: Path, hermes: Hermes) -> None:
    add_profiles(home)
    assert hermes("honcho", "--target-profile", "coder", "peer", "--ai", "coder").code == 0
    assert block(home, "hermes_coder") == {"aiPeer": "coder"}
    ran = hermes("honcho", "status", "--all")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == ["default", "coder", "own", "writer"]
    told = json.loads(hermes("honcho", "peers", "--json").out)
    assert [(one["profile"], one["you"], one["agent"]) for one in told["profiles"]][1:3] == [
        ("coder", "ann", "coder"),
        ("own", "someone", "hermes_own"),
    ]
    (home / "profiles" / "writer" / ".env").write_text("HONCHO_ENVIRONMENT=local\n", encoding="utf-8")
    ran = hermes("honcho", "--target-profile", "writer", "status", "--json")
    assert json.loads(ran.out)["keys"]["environment"]["value"] == "local", "it has variables of its own"
    gone = hermes("honcho", "--target-profile", "nobody", "mode")
    assert (gone.code, "there is no profile 'nobody'" in gone.err) == (1, True)


@pytest.mark.contract("5.5", "10.3")
def test_sync_moves_the_old_name_of_the_pin(chosen: Path, home: Path, hermes: Hermes) -> None:
    add_profiles(home)
    mine = {"peerName": "ann", "pinPeerName": True}
    chosen.write_text(json.dumps({"hosts": {"hermes": mine}}), encoding="utf-8")
    assert hermes("honcho", "sync").code == 0
    assert block(home, "hermes_coder")["pinUserPeer"] is True
    assert "pinPeerName" not in block(home, "hermes_coder")
    assert block(home) == mine, "the block of the default profile is not written"


@pytest.mark.contract("10.3")
def test_only_folders_that_can_be_profiles_are_profiles(chosen: Path, home: Path, hermes: Hermes) -> None:
    for name in ("coder", ".trash", "with space", "-x"):
        (home / "profiles" / name).mkdir(parents=True)
    (home / "profiles" / "notes.txt").write_text("x", encoding="utf-8")
    told = json.loads(hermes("honcho", "peers", "--json").out)
    assert [one["profile"] for one in told["profiles"]] == ["default", "coder"]
    for name in (".trash", "..", "notes.txt", "coder/../coder"):
        gone = hermes("honcho", "--target-profile", name, "mode")
        assert (gone.code, f"there is no profile '{name}'" in gone.err) == (1, True)


@pytest.mark.contract("5.13", "10.3")
def test_another_profiles_people_are_its_own(chosen: Path, home: Path, hermes: Hermes) -> None:
    (home / "profiles" / "coder").mkdir(parents=True)
    assert hermes("config", "set", "gateway.allow", "telegram:17").code == 0
    assert hermes("-p", "coder", "config", "set", "gateway.allow", "telegram:18").code == 0

    def people(*command: str) -> list[str]:
        found = json.loads(hermes("honcho", *command, "--json").out)
        return [one["who"] for one in found["people"]]

    assert people("peers") == people("status") == ["telegram:17"]
    assert people("--target-profile", "coder", "peers") == ["telegram:18"]
    assert people("--target-profile", "coder", "status") == ["telegram:18"]
    everyone = json.loads(hermes("honcho", "status", "--all", "--json").out)
    assert [[one["who"] for one in profile["people"]] for profile in everyone] == [["telegram:17"], ["telegram:18"]]


@pytest.mark.contract("5.13", "10.3")
def test_accounts_are_marked_as_yours_in_the_profile_that_is_set_up(chosen: Path, home: Path, hermes: Hermes) -> None:
    (home / "profiles" / "coder").mkdir(parents=True)
    assert hermes("config", "set", "gateway.allow", "telegram:17").code == 0
    assert hermes("-p", "coder", "config", "set", "gateway.allow", "telegram:18").code == 0
    setup = ("setup", "--yes", "--unchecked", "--identity", "just-me", "--user", "ann")
    assert hermes("honcho", "--target-profile", "coder", *setup).code == 0
    here, there = (hermes(*profile, "gateway", "people", "--json").out for profile in ((), ("-p", "coder")))
    assert [one["role"] for one in json.loads(here) if one["marked_at"]] == []
    assert [(one["who"], one["role"]) for one in json.loads(there) if one["marked_at"]] == [("telegram:18", "owner")]


@pytest.mark.contract("5.3", "10.3")
def test_all_profiles_end_with_1_when_one_is_broken(chosen: Path, home: Path, hermes: Hermes) -> None:
    add_profiles(home)
    assert hermes("honcho", "status", "--all").code == 0
    (home / "profiles" / "own" / "honcho.json").write_text("{", encoding="utf-8")
    ran = hermes("honcho", "status", "--all")
    assert (ran.code, "own: " in ran.out) == (1, True)


@pytest.mark.contract("10.3")
def test_sync_chooses_honcho_where_nobody_chose_a_provider(
    chosen: Path, home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HERMES_MEMORY_PROVIDER")
    add_profiles(home)
    (home / "profiles" / "writer" / "config.yaml").write_text("memory:\n  provider: none\n", encoding="utf-8")
    done = json.loads(hermes("honcho", "sync", "--json").out)
    assert "Honcho was chosen there" in done["coder"]
    assert done["writer"].endswith("it is not followed: memory.provider is none there"), "a choice of a person's stays"
    shown = hermes("-p", "coder", "honcho", "status", "--json")
    assert json.loads(shown.out)["server"] == "self-hosted at http://127.0.0.1:9", "the block is followed"
    assert hermes("-p", "writer", "config", "get", "memory.provider").out.strip() == "none"
