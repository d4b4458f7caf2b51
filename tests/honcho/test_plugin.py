"""Honcho as a plugin: addresses, the settings that sessions freeze, and its reported status."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from hermes.clock import SystemClock
from hermes.errors import ProviderError
from hermes.honcho.addresses import EntryTarget
from hermes.honcho.keys import TABLE, Key
from hermes.honcho.plugin import HonchoPlugin
from hermes.memory.contract import check_plugin
from hermes.memory.provider import Acquaintance, Address, EntryKind
from hermes.memory.registry import find_provider
from hermes.types import Json
from tests.honcho.configuring import Machine
from tests.honcho.hearing import OPENS
from tests.honcho.places import CHAT, GROUP, HERE, PLACES, plugin
from tests.honcho.recalling import Recalling
from tests.honcho.values import VALUES


def session(address: Address) -> str | None:
    return EntryTarget.from_json(address.data).session


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the places where the configuration is looked for."""
    seen: list[str] = []

    def count(path: Any) -> os.stat_result:
        seen.append(str(path))
        return Path(path).stat()

    monkeypatch.setattr("hermes.honcho.plugin.os", SimpleNamespace(stat=count, PathLike=os.PathLike))
    return seen


@pytest.mark.contract("4.1", "4.2")
async def test_it_is_found_by_its_entry_point_and_holds_to_the_contract_of_the_seam(
    recalling: Recalling, tmp_path: Path
) -> None:
    assert find_provider("honcho", tmp_path / "plugins") is HonchoPlugin
    recalling.configure()
    assert await check_plugin(HonchoPlugin, tmp_path) == []


def test_making_one_looks_at_no_file(machine: Machine, looks: list[str]) -> None:
    machine.write("{")
    with OPENS.counted() as operations:
        plugin(machine)
    assert (looks, operations) == ([], [])


@pytest.mark.contract("5.9", "5.10")
def test_entries_go_to_the_session_of_their_conversation_in_the_workspace(machine: Machine) -> None:
    machine.write({"workspace": "lab", "aiPeer": "bot"})
    found = plugin(machine)
    here = found.address(HERE)
    assert (here.lane, here.pace) == ("lab/app", "async")
    assert (here.data["workspace"], here.data["session"], here.data["aiPeer"]) == ("lab", "app", "bot")
    assert session(found.address(CHAT)) == "agent-main-telegram-dm-17"
    lanes = [found.address(place).lane for place in PLACES]
    assert len(set(lanes)) == len(PLACES)
    assert lanes[3:5] == ["lab/notes/ann", "lab/notes/17"]
    assert all(session(found.address(place)) is None for place in PLACES[3:])


@pytest.mark.contract("5.9")
def test_a_conversation_keeps_its_session_when_it_is_titled_or_continued_elsewhere(machine: Machine) -> None:
    machine.write({"sessionStrategy": "per-directory"})
    found = plugin(machine)
    first = found.address(HERE)
    later = replace(HERE, bound=first.data, title="Stamps of Malta")
    assert found.address(later) == first
    assert session(found.address(replace(later, bound=None))) == "Stamps-of-Malta", "a new one may be named by it"
    machine.write({"sessions": {"/code/app": "mine"}})
    assert session(found.address(later)) == "mine", "what the owner maps counts from then on"
    machine.write({"sessions": {"/elsewhere": "x"}})
    assert session(found.address(later)) == "app"


@pytest.mark.contract("5.10")
def test_a_prefix_is_the_peer_of_whose_conversation_it_is(machine: Machine) -> None:
    machine.write({"sessionPeerPrefix": True, "peerName": "boss"})
    found = plugin(machine)
    names = [session(found.address(place)) for place in (HERE, CHAT, GROUP)]
    assert names == ["boss-app", "17-agent-main-telegram-dm-17", "boss-agent-main-telegram-group--100"]


def test_a_repository_names_the_sessions_of_all_its_folders(machine: Machine, tmp_path: Path) -> None:
    machine.write({"sessionStrategy": "per-repo"})
    inside = tmp_path / "repo" / "deep"
    inside.mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    assert session(plugin(machine).address(replace(HERE, directory=inside))) == "repo"


@pytest.mark.parametrize(
    ("value", "wants", "pace"),
    [
        ({}, {"said", "reply", "note", "own", "forget", "correct", "undo"}, "async"),
        ({"saveMessages": False, "writeFrequency": 5}, {"own", "forget", "correct", "undo"}, 5),
        ({"enabled": False, "writeFrequency": "session"}, set(), "session"),
    ],
)
def test_settings_say_what_is_recorded_and_when_it_is_sent(
    machine: Machine, value: dict[str, Any], wants: set[EntryKind], pace: Json
) -> None:
    machine.write(value)
    found = plugin(machine).address(HERE)
    assert set(found.wants) == wants
    assert found.pace == pace


@pytest.mark.contract("4.5")
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.key)
def test_a_changed_key_changes_the_signature_unless_no_session_has_it(machine: Machine, row: Key[Any]) -> None:
    base: dict[str, Any] = {"peerName": "base", "aiPeer": "base-ai"}
    first, second, _ = VALUES[row.key]
    found, seen = plugin(machine), []
    for value in (first, second):
        machine.write({**base, row.key: value})
        seen.append((found.cache_busting_signature(), [found.address(place) for place in PLACES]))
    (one, addresses), (other, changed) = seen
    assert (one != other) is row.frozen
    if addresses != changed:
        assert row.frozen, f"{row.key} moves entries, so sessions must be opened anew"


@pytest.mark.contract("4.5")
def test_the_signature_covers_identity_and_holds_no_secret(machine: Machine) -> None:
    machine.write({"apiKey": "hch-secret", "oauth": {"refreshToken": "r-secret"}})
    signature = plugin(machine).cache_busting_signature()
    assert signature is not None
    named = {"peerName", "aiPeer", "pinUserPeer", "userPeerAliases", "runtimePeerPrefix"}
    assert {f"honcho.{key}" for key in named} <= signature.keys()
    assert "secret" not in str(signature)


@pytest.mark.contract("4.4", "4.5")
def test_a_touched_file_and_foreign_keys_leave_the_signature_as_it_was(machine: Machine) -> None:
    path = machine.write({"peerName": "ann"})
    found = plugin(machine)
    before = found.cache_busting_signature()
    os.utime(path, (1, 1))
    assert found.cache_busting_signature() == before
    machine.write({"foreign": 1, "peerName": "ann", "apiKey": "k", "hosts": {"other": {"peerName": "x"}}})
    assert found.cache_busting_signature() == before
    machine.write({"peerName": "bob"})
    assert found.cache_busting_signature() != before


@pytest.mark.contract("4.4")
def test_a_message_costs_one_look_per_place_and_no_reading(machine: Machine, looks: list[str]) -> None:
    machine.write({"peerName": "ann"})
    found = plugin(machine, "coder")
    found.cache_busting_signature()
    looks.clear()
    (machine.home / "honcho.json").chmod(0)  # it could not even be read now
    found.cache_busting_signature()
    places = found.machine.places
    assert looks == [str(path) for path in places.watched]
    assert len(looks) == 7


@pytest.mark.contract("5.3", "P5")
def test_a_broken_file_keeps_it_from_starting_and_says_why(machine: Machine) -> None:
    told: list[str] = []
    path = machine.write('{"recallMode": "all"}')
    found = plugin(machine, told=told)
    for ask in (found.is_available, found.cache_busting_signature, lambda: found.address(HERE)):
        with pytest.raises(ProviderError, match="recallMode is 'all', but takes one of hybrid, context, tools"):
            ask()
    assert told == [f"{path}: recallMode is 'all', but takes one of hybrid, context, tools"]


@pytest.mark.parametrize(
    ("value", "writing"),
    [
        ({}, "at once, in the background"),
        ({"writeFrequency": "session"}, "when a conversation ends"),
        ({"writeFrequency": 5}, "after every 5 turns"),
        ({"saveMessages": False}, "nothing by itself, only what tools write on request"),
    ],
)
async def test_status_says_what_is_written_when_and_how_is_recalled(
    machine: Machine, value: dict[str, Any], writing: str
) -> None:
    machine.write({"baseUrl": "http://127.0.0.1:9", **value})
    told = await plugin(machine).status(SystemClock().now() + 3)
    assert told["writing"] == writing
    assert told["recall"] == "hybrid"
    assert "does not answer" in told["access"]


@pytest.mark.contract("5.6", "P5")
def test_pin_warning_names_unmarked_people(machine: Machine) -> None:
    people = [
        Acquaintance("telegram", "17", "Ann"),
        Acquaintance("telegram", "18", "Bob", is_marked=True),
        Acquaintance("telegram", "19", "Me", is_owner=True, is_marked=True),
    ]
    machine.write({"pinUserPeer": True, "peerName": "ann"})
    [told] = plugin(machine).remarks(people)
    assert "telegram:17 is" in told
    assert "`hermes gateway people --me telegram:17`" in told
    machine.write({"peerName": "ann"})
    assert plugin(machine).remarks(people) == []
    machine.write({"pinUserPeer": True, "peerName": "ann", "pinGuests": True})
    [told] = plugin(machine).remarks(people)
    assert "each reads their conversation alone" in told


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_key_that_other_users_can_read_is_a_warning(machine: Machine) -> None:
    path = machine.write({"apiKey": "k"})
    path.chmod(0o644)
    [told] = plugin(machine).remarks([])
    assert told.endswith(f"chmod 600 {path}")
    path.chmod(0o600)
    assert plugin(machine).remarks([]) == []


def test_a_backup_holds_the_file_in_force(machine: Machine) -> None:
    found = plugin(machine)
    assert list(found.backup_paths()) == []
    path = found.save_config({"peerName": "ann"})
    assert list(found.backup_paths()) == [path]


@pytest.mark.contract("5.13")
def test_two_profiles_in_one_process_share_nothing(machine: Machine) -> None:
    machine.write({"hosts": {"hermes": {"workspace": "a"}, "hermes_coder": {"workspace": "b"}}})
    first, second = plugin(machine), plugin(machine, "coder")
    assert [one.address(HERE).lane for one in (first, second)] == ["a/app", "b/app"]
    assert first.cache_busting_signature() != second.cache_busting_signature()


@pytest.mark.contract("5.3")
def test_a_file_that_is_empty_for_a_moment_sends_nothing_elsewhere(machine: Machine) -> None:
    """Programs leave an empty file for a moment if they write in place instead of replacing it."""
    path = machine.write({"workspace": "one", "baseUrl": "http://127.0.0.1:9"})
    told: list[str] = []
    found = plugin(machine, told=told)
    before = found.address(HERE)
    path.write_text("", encoding="utf-8")
    assert found.address(HERE) == before
    assert len(told) == 1
    machine.write({"workspace": "two", "baseUrl": "http://127.0.0.1:9"})
    assert found.address(HERE).data["workspace"] == "two"
