"""Warnings: valid settings that are probably mistakes."""

from __future__ import annotations

import pytest

from hermes.honcho.keys import TABLE
from tests.honcho.configuring import Machine
from tests.honcho.places import plugin


@pytest.mark.contract("5.4", "P5")
@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"baseUrl": "http://box:8000"}, "http://box:8000 is not encrypted: what is said can be read on the way"),
        ({"baseUrl": "http://box", "apiKey": "k"}, "http://box is not encrypted: the key and what is said can be"),
        ({"baseUrl": "http://127.0.0.1:8000"}, None),
        ({"baseUrl": "https://box"}, None),
        ({"baseUrl": "http://box", "server": "embedded"}, None),
    ],
)
def test_unencrypted_server_is_a_warning(machine: Machine, value: dict[str, str], told: str | None) -> None:
    machine.write(value).chmod(0o600)
    remarks = plugin(machine).remarks([])
    assert [line[: len(told or "")] for line in remarks] == ([] if told is None else [told])


@pytest.mark.contract("5.3")
@pytest.mark.parametrize(
    ("key", "given", "counted"),
    [
        ("dialecticMaxInputChars", 10_001, 10_000),
        ("messageMaxChars", 40_000, 25_000),
        ("contextTokens", 20_000, 8_000),
        ("dialecticDepth", 2.0, 2),
        ("contextCadence", 3.0, 3),
    ],
)
def test_number_that_counts_as_another_is_a_warning_and_never_an_error(
    machine: Machine, key: str, given: float, counted: int
) -> None:
    path = machine.write({key: given})
    found = machine.load().checked()
    assert {row.key: found.get(row) for row in TABLE}[key] == counted
    assert found.remarks == [f"{path}: {key} is {given!r}, which counts as {counted}"]
    machine.write({key: counted})
    assert machine.load().checked().remarks == []


@pytest.mark.contract("5.3", "5.7")
def test_a_name_that_counts_as_another_and_an_alias_for_the_agent_are_said(machine: Machine) -> None:
    path = machine.write({"peerName": "Ann B.", "userPeerAliases": {"17": "hermes"}})
    assert machine.load().checked().remarks == [
        f"{path}: peerName is 'Ann B.', which counts as Ann-B-",
        f"{path}: userPeerAliases makes 17 the agent, hermes",
    ]


@pytest.mark.contract("5.2")
def test_ignored_block_of_an_earlier_version_is_a_warning(machine: Machine) -> None:
    path = machine.write({"hosts": {"hermes.coder": {"aiPeer": "old"}, "hermes_coder": {"aiPeer": "new"}}})
    found = machine.load("coder")
    assert found.identities.ai == "new"
    assert found.remarks == [f"{path}: hosts.hermes.coder is ignored: hosts.hermes_coder replaces it"]


@pytest.mark.contract("5.2")
def test_a_grant_counts_only_beside_the_key_in_force(machine: Machine) -> None:
    grant = {"refreshToken": "r", "clientId": "c"}
    machine.write({"apiKey": "hch-at-token", "oauth": grant})
    assert machine.load().checked().grant == grant
    path = machine.write({"apiKey": "hch-at-token", "oauth": grant, "hosts": {"hermes": {"apiKey": "own"}}})
    path.chmod(0o600)
    assert machine.load().checked().grant is None
    assert plugin(machine).remarks([]) == [f"{path}: the sign-in is not used: apiKey comes from {path}, hosts.hermes"]


@pytest.mark.contract("8.2")
def test_key_without_the_prefix_of_a_token_is_an_api_key(machine: Machine) -> None:
    path = machine.write({"apiKey": "token", "oauth": {"refreshToken": "hch-rt-1", "expiresAt": 1}})
    path.chmod(0o600)
    assert machine.load().checked().grant is None
    assert plugin(machine).remarks([]) == [f"{path}: the sign-in is not used: apiKey beside it is an API key"]


@pytest.mark.contract("5.3", "5.6")
def test_value_that_counts_as_another_is_a_warning(machine: Machine) -> None:
    path = machine.write({"dialecticDepth": 7, "dialecticDepthLevels": ["low"] * 4, "pinUserPeer": True})
    found = machine.load().checked()
    assert found.remarks == [
        f"{path}: dialecticDepth is 7, which counts as 3",
        "dialecticDepthLevels has 4 levels, but dialecticDepth is 3: the first 3 count",
        f"{path}: pinUserPeer is true but peerName is not set, so the pin is ignored",
    ]
    assert found.identities.pin is False


@pytest.mark.contract("5.3")
def test_unknown_keys_are_named_and_misspelt_ones_with_what_was_meant(machine: Machine) -> None:
    path = machine.write(
        {"recalMode": "tools", "theme": "dark", "hosts": {"hermes": {"peername": "x", "linkedHosts": []}}}
    )
    assert machine.load().checked().remarks == [
        f"{path}, hosts.hermes: there is no key peername (did you mean peerName?)",
        f"{path}, hosts.hermes: unknown keys, which are kept and not used: linkedHosts",
        f"{path}: there is no key recalMode (did you mean recallMode?)",
        f"{path}: unknown keys, which are kept and not used: theme",
    ]
    machine.write({f"key{number}-{'x' * 100}": 1 for number in range(12)})
    [remark] = machine.load().checked().remarks
    assert "key9-" in remark
    assert remark.endswith(" and 2 more")
    assert len(remark) < 1000


@pytest.mark.contract("5.1", "5.3")
def test_keys_of_other_programs_are_not_named_in_the_file_that_they_share(machine: Machine) -> None:
    path = machine.write(
        {"theme": "dark", "recalMode": "tools", "hosts": {"hermes": {"linkedHosts": []}, "other": {"theme": "light"}}},
        machine.folder / ".honcho" / "config.json",
    )
    assert machine.load().checked().remarks == [
        f"{path}, hosts.hermes: unknown keys, which are kept and not used: linkedHosts",
        f"{path}: there is no key recalMode (did you mean recallMode?)",
    ]
