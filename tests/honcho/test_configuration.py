"""The value in force of each key, and the errors of invalid values."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.errors import ProviderError, SettingsError
from hermes.honcho import keys
from hermes.honcho.configuration import CLOUD, HOST, LOCAL, ROOT, login_name
from hermes.honcho.keys import TABLE, Key
from hermes.honcho.server import HonchoServer, find_server
from hermes.settings.kinds import plain
from tests.honcho.configuring import Machine
from tests.honcho.places import plugin
from tests.honcho.values import EXAMPLE, VALUES

TWO_PROFILES: dict[str, Any] = {
    "apiKey": "hch-key",
    "workspace": "hermes",
    "peerName": "yourname",
    "hosts": {
        "hermes": {"aiPeer": "hermes", "recallMode": "hybrid", "sessionStrategy": "per-directory"},
        "hermes_coder": {"aiPeer": "coder", "recallMode": "tools", "sessionStrategy": "per-repo"},
    },
}
DEFAULTS: dict[str, Any] = {
    "apiKey": "",
    "oauth": None,
    "baseUrl": "",
    "environment": "production",
    "server": "auto",
    "timeout": None,
    "enabled": None,
    "workspace": "",
    "peerName": "",
    "aiPeer": "",
    "pinUserPeer": False,
    "pinGuests": False,
    "userPeerAliases": {},
    "runtimePeerPrefix": "",
    "recallMode": "hybrid",
    "recallSync": False,
    "queryRewrite": False,
    "injection": {},
    "firstTurnBaseWait": None,
    "firstTurnDialecticWait": None,
    "initOnSessionStart": True,
    "logging": False,
    "observationMode": "directional",
    "observation": {},
    "writeFrequency": "async",
    "saveMessages": True,
    "sessionStrategy": "per-directory",
    "sessionPeerPrefix": False,
    "sessionAiPeerPrefix": False,
    "a2aSessions": True,
    "sessions": {},
    "newSessionPolicy": "keep",
    "dialecticDepth": 1,
    "dialecticDepthLevels": None,
    "dialecticReasoningLevel": "low",
    "dialecticDynamic": True,
    "dialecticMaxChars": 600,
    "dialecticMaxInputChars": 10000,
    "reasoningHeuristic": True,
    "reasoningLevelCap": "high",
    "contextTokens": None,
    "messageMaxChars": 25000,
    "contextCadence": 1,
    "dialecticCadence": 1,
    "injectionFrequency": "every-turn",
}
IN_BOTH = {
    "apiKey": "hch-key",
    "workspace": "hermes",
    "peerName": "username",
    "contextCadence": 2,
    "dialecticCadence": 3,
    "enabled": True,
    "sessions": {"/srv/myproject": "myproject-main"},
}
OBSERVING = {
    "user": {"observeMe": True, "observeOthers": True},
    "ai": {"observeMe": True, "observeOthers": True},
}
RESOLVED = {
    None: {
        **DEFAULTS,
        **IN_BOTH,
        "aiPeer": "hermes",
        "observation": OBSERVING,
        "dialecticDepth": 2,
    },
    "coder": {
        **DEFAULTS,
        **IN_BOTH,
        "aiPeer": "coder",
        "observation": {**OBSERVING, "user": {"observeMe": True, "observeOthers": False}},
        "sessionStrategy": "per-repo",
        "dialecticDepth": 1,
        "dialecticDepthLevels": ["low"],
    },
}
TWO = {**DEFAULTS, "apiKey": "hch-key", "workspace": "hermes", "peerName": "yourname"}
RESOLVED_TWO = {
    None: {**TWO, "aiPeer": "hermes"},
    "coder": {**TWO, "aiPeer": "coder", "recallMode": "tools", "sessionStrategy": "per-repo"},
}

# Of each key two values that differ, as a file has them, and one that is wrong.
VARIABLES = {
    "apiKey": "HONCHO_API_KEY",
    "baseUrl": "HONCHO_BASE_URL",
    "environment": "HONCHO_ENVIRONMENT",
    "logging": "HONCHO_LOGGING",
}
ROWS = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.key)


def values(machine: Machine, profile: str | None) -> dict[str, Any]:
    found = machine.load(profile).checked()
    return {row.key: plain(found.get(row)) for row in TABLE}


@pytest.mark.contract("5.2", "5.3")
@pytest.mark.parametrize("profile", [None, "coder"])
def test_the_example_resolves_key_by_key_for_both_hosts(machine: Machine, profile: str | None) -> None:
    machine.write(EXAMPLE)
    assert values(machine, profile) == RESOLVED[profile]
    machine.write(TWO_PROFILES)
    assert values(machine, profile) == RESOLVED_TWO[profile]


@pytest.mark.contract("5.3")
def test_without_a_file_every_key_has_its_default(machine: Machine) -> None:
    assert values(machine, None) == DEFAULTS


def test_the_tables_here_name_every_key() -> None:
    assert list(DEFAULTS) == [row.key for row in TABLE]
    assert VALUES.keys() == DEFAULTS.keys()
    assert {row.key: row.env for row in TABLE if row.env} == VARIABLES
    assert all(row.help for row in TABLE)


@pytest.mark.contract("5.2")
@ROWS
def test_the_host_block_comes_before_the_root_before_the_variable_before_the_default(
    machine: Machine, row: Key[Any]
) -> None:
    first, second, _ = VALUES[row.key]

    def in_force(value: dict[str, Any]) -> tuple[Any, str]:
        machine.write(value)
        found = machine.load().checked()
        return plain(found.get(row)), found.settings.origin(row)

    if row.env:
        machine.env[row.env] = str(first)
        assert in_force({}) == (first, "environment")
        machine.env[row.env] = ""
        assert in_force({}) == (DEFAULTS[row.key], "default")
        machine.env[row.env] = str(first)
    assert in_force({row.key: second}) == (second, ROOT)
    assert in_force({row.key: second, "hosts": {"hermes": {row.key: first}}}) == (first, HOST)
    machine.env.clear()
    assert in_force({}) == (plain(row.default), "default")


@pytest.mark.contract("5.3")
@ROWS
def test_invalid_value_error_names_file_key_value_and_allowed_values(machine: Machine, row: Key[Any]) -> None:
    wrong = VALUES[row.key][2]
    path = machine.write({"hosts": {"hermes": {row.key: wrong}}})
    found = machine.load()
    assert len(found.problems) == 1
    told = found.problems[0].message
    assert told.startswith(f"{path}, hosts.hermes: {row.key}")
    assert " takes " in told
    if row.secret:
        assert "(hidden)" in told
    with pytest.raises(SettingsError):
        found.checked()


@pytest.mark.contract("5.3")
def test_invalid_variable_error_names_it(machine: Machine) -> None:
    machine.env["HONCHO_ENVIRONMENT"] = "moon"
    [problem] = machine.load().problems
    assert problem.message == (
        "environment variable HONCHO_ENVIRONMENT: environment is 'moon', but takes one of production, local"
    )


@pytest.mark.contract("5.4")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, HonchoServer("embedded", "")),
        ({"apiKey": "k"}, HonchoServer("cloud", CLOUD, "k")),
        ({"baseUrl": "http://box:8000/v3"}, HonchoServer("self-hosted", "http://box:8000")),
        ({"baseUrl": "http://box:8000/v1/", "apiKey": "k"}, HonchoServer("self-hosted", "http://box:8000", "k")),
        ({"baseUrl": "http://box/v3/api"}, HonchoServer("self-hosted", "http://box/v3/api")),
        ({"baseUrl": "https://api.honcho.dev/v3", "apiKey": "k"}, HonchoServer("cloud", CLOUD, "k")),
        ({"environment": "local"}, HonchoServer("local", LOCAL)),
        ({"environment": "local", "baseUrl": "http://box:1"}, HonchoServer("self-hosted", "http://box:1")),
        ({"server": "embedded", "apiKey": "k", "baseUrl": "http://box:1"}, HonchoServer("embedded", "")),
    ],
)
def test_url_key_and_environment_say_which_server_is_meant(
    machine: Machine, value: dict[str, Any], expected: HonchoServer
) -> None:
    machine.write(value)
    assert find_server(machine.load().checked()) == expected


@pytest.mark.contract("5.4")
@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:1", "http://box:8000", "https://box"])
def test_a_server_of_ones_own_needs_no_key(machine: Machine, url: str) -> None:
    machine.write({"baseUrl": url})
    assert plugin(machine).is_available()


@pytest.mark.contract("5.4")
def test_the_cloud_by_its_url_needs_a_key(machine: Machine) -> None:
    machine.write({"baseUrl": "https://api.honcho.dev/v3"})
    with pytest.raises(ProviderError, match="needs a key"):
        plugin(machine).is_available()
    machine.write({"baseUrl": "https://api.honcho.dev/v3", "apiKey": "k"})
    assert plugin(machine).is_available()


@pytest.mark.contract("5.5")
@pytest.mark.parametrize(
    ("value", "user", "ai"),
    [
        ({}, (True, True), (True, True)),
        ({"observationMode": "unified"}, (True, False), (False, True)),
        ({"observationMode": "unified", "observation": {"ai": {"observeMe": True}}}, (True, False), (True, True)),
        ({"observation": {"user": {"observeOthers": False}}}, (True, False), (True, True)),
    ],
)
def test_what_observation_leaves_out_is_the_presets(
    machine: Machine, value: dict[str, Any], user: tuple[bool, bool], ai: tuple[bool, bool]
) -> None:
    machine.write(value)
    seen = machine.load().observation
    assert (tuple(seen["user"].values()), tuple(seen["ai"].values())) == (user, ai)


@pytest.mark.contract("5.5")
def test_old_words_are_understood(machine: Machine) -> None:
    machine.write({"recallMode": "auto", "pinPeerName": True, "peerName": "ann"})
    found = machine.load().checked()
    assert (found.get(keys.RECALL_MODE), found.identities.pin) == ("hybrid", True)
    machine.write({"pinPeerName": True, "pinUserPeer": False, "peerName": "ann"})
    assert machine.load().identities.pin is False


@pytest.mark.contract("5.5")
@pytest.mark.parametrize(
    ("word", "mode"), [("shared", "unified"), ("separate", "directional"), ("cross", "directional")]
)
def test_a_stock_word_for_who_observes_whom_is_understood(machine: Machine, word: str, mode: str) -> None:
    machine.write({"observationMode": word})
    assert machine.load().checked().get(keys.OBSERVATION_MODE) == mode


@pytest.mark.contract("5.3")
def test_a_number_with_a_fraction_is_no_whole_number(machine: Machine) -> None:
    path = machine.write({"dialecticDepth": 2.5})
    [problem] = machine.load().problems
    assert problem.message.startswith(f"{path}: dialecticDepth is 2.5, but takes a whole number")


@pytest.mark.contract("5.3")
@pytest.mark.parametrize("key", ["schlüssel", "two words", "a\nb", "a\x00"])
def test_a_key_that_no_request_can_carry_is_wrong_and_not_repeated(machine: Machine, key: str) -> None:
    path = machine.write({"apiKey": key})
    [problem] = machine.load().problems
    assert problem.message == f"{path}: apiKey is (hidden), but takes a key of letters, digits and signs"
    machine.write({"apiKey": " hch-key\n"})
    assert machine.load().checked().get(keys.API_KEY) == "hch-key"


@pytest.mark.contract("5.3")
def test_empty_grant_means_no_sign_in(machine: Machine) -> None:
    machine.write({"apiKey": "k", "oauth": {"refreshToken": "r"}, "hosts": {"hermes": {"apiKey": "k", "oauth": {}}}})
    found = machine.load().checked()
    assert (found.get(keys.OAUTH), found.grant) == (None, None)


@pytest.mark.contract("5.6")
def test_without_a_name_the_owner_is_the_login_name(machine: Machine) -> None:
    assert machine.load().identities.owner == "ann"
    assert login_name({"USER": "Ann Smith"}) == "Ann-Smith"
    assert login_name({"USER": "会"}) == "user"


@pytest.mark.contract("5.7")
def test_a_host_block_replaces_or_wipes_maps_and_prefix_as_a_whole(machine: Machine) -> None:
    root = {"userPeerAliases": {"1": "ann"}, "runtimePeerPrefix": "tg_"}
    machine.write({**root, "hosts": {"hermes": {"userPeerAliases": {}, "runtimePeerPrefix": ""}}})
    who = machine.load().identities
    assert (who.aliases, who.prefix) == ({}, "")
    machine.write({**root, "hosts": {"hermes": {"userPeerAliases": {"2": "bob"}}}})
    who = machine.load().identities
    assert (who.aliases, who.prefix) == ({"2": "bob"}, "tg_")


@pytest.mark.contract("5.6")
def test_the_owner_and_the_agent_are_never_one_peer(machine: Machine) -> None:
    machine.env["LOGNAME"] = "hermes"
    found = machine.load()
    assert (found.identities.owner, found.identities.ai) == ("user", "hermes")
    machine.write({"peerName": "bot", "aiPeer": "bot"})
    [problem] = machine.load().problems
    assert "you and the agent would both be the peer 'bot'" in problem.message
