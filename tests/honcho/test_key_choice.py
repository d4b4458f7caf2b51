"""The key for each server: never one that belongs to another server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes.home import Home
from hermes.honcho.configuration import CLOUD, LOCAL
from hermes.honcho.server import NO_KEY, describe_server, find_server, try_server
from hermes.honcho.server import Machine as CommandContext
from tests.honcho.asking import Person
from tests.honcho.between import Between, Instead
from tests.honcho.configuring import Machine
from tests.honcho.places import plugin
from tests.honcho.setting_up import NOBODY, USE, Hermes, block, write
from tests.honcho.writing import Lane, Writer

SERVERS: dict[str, dict[str, str]] = {
    "loopback": {"baseUrl": "http://127.0.0.1:9"},
    "environment": {"environment": "local"},
    "private": {"baseUrl": "http://192.168.1.5:8000"},
    "public": {"baseUrl": "https://honcho.example.com"},
    "cloud": {"baseUrl": f"{CLOUD}/v3"},
}
"""The settings by which a layer names each kind of server."""
VARIABLES = {"apiKey": "HONCHO_API_KEY", "baseUrl": "HONCHO_BASE_URL", "environment": "HONCHO_ENVIRONMENT"}
EVERY, FAR = set(SERVERS), {"public", "cloud"}
SENT = {
    ("host", "host"): EVERY,
    ("host", "root"): EVERY,
    ("host", "env"): EVERY,
    ("root", "host"): FAR,
    ("root", "root"): EVERY,
    ("root", "env"): FAR,
    ("env", "host"): FAR,
    ("env", "root"): FAR,
    ("env", "env"): EVERY,
}
"""The kinds of servers that get the key, by the key's layer and the server's layer."""


def sent(machine: Machine, **layers: Mapping[str, str]) -> str:
    """Return the key for the server in force with these layers (`host`, `root`, `env`)."""
    machine.env = {VARIABLES[name]: value for name, value in layers.get("env", {}).items()}
    machine.write({**layers.get("root", {}), "hosts": {"hermes": layers.get("host", {})}})
    return find_server(machine.load().checked()).key


@pytest.mark.contract("5.2", "5.4")
@pytest.mark.parametrize("key_layer", ["host", "root", "env"])
@pytest.mark.parametrize("url_layer", ["host", "root", "env"])
def test_key_goes_to_a_local_server_only_from_its_layer_or_the_host_block(
    machine: Machine, key_layer: str, url_layer: str
) -> None:
    got = set()
    for kind, server in SERVERS.items():
        layers: dict[str, dict[str, str]] = {url_layer: dict(server)}
        layers.setdefault(key_layer, {})["apiKey"] = "k"
        if sent(machine, **layers):
            got.add(kind)
    assert got == SENT[key_layer, url_layer]
    assert sent(machine, **{key_layer: {"apiKey": "k"}}) == "k", "without a URL it is the key of the cloud"


@pytest.mark.contract("5.2", "5.4")
@pytest.mark.parametrize(("lower", "higher"), [("root", "host"), ("env", "host"), ("env", "root")])
def test_key_beside_one_server_is_not_sent_to_another(machine: Machine, lower: str, higher: str) -> None:
    for beside, own in SERVERS.items():
        for kind, other in SERVERS.items():
            layers = {lower: {**own, "apiKey": "k"}, higher: other}
            is_own = kind in (beside, "environment")  # a URL counts before an environment, whatever their layers
            assert sent(machine, **layers) == ("k" if is_own else ""), (beside, kind)
    for beside, own in SERVERS.items():
        cloud = {"baseUrl": "", "environment": "production"}
        assert sent(machine, **{lower: {**own, "apiKey": "k"}, "host": cloud}) == ("k" if beside == "cloud" else "")


@pytest.mark.contract("5.2", "5.4")
def test_next_layer_gives_the_key_when_a_higher_one_has_none_for_the_server(machine: Machine) -> None:
    here = {"baseUrl": NOBODY, "apiKey": "of-here"}
    assert sent(machine, root={"apiKey": "of-the-cloud"}, env=here) == "of-here"
    assert sent(machine, host={"apiKey": "of-here", "environment": "local"}, root=SERVERS["cloud"]) == ""
    both = {
        "host": {"apiKey": "of-here", "environment": "local"},
        "root": {**SERVERS["cloud"], "apiKey": "of-the-cloud"},
    }
    assert sent(machine, **both) == "of-the-cloud"


@pytest.mark.contract("5.3", "5.4")
def test_key_beside_a_server_that_cannot_be_read_is_not_sent_anywhere(machine: Machine) -> None:
    machine.write({"hosts": {"hermes": {"baseUrl": "localhost:8000", "apiKey": "k"}}})
    assert find_server(machine.load()).key == ""


@pytest.mark.contract("5.4")
@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("honcho.localhost", True),
        ("127.0.0.2", True),
        ("127.1", True),
        ("2130706433", True),
        ("0x7f.0.0.1", True),
        ("[::]", True),
        ("10.1.2.3", True),
        ("172.16.0.1", True),
        ("172.31.255.255", True),
        ("192.168.0.1", True),
        ("169.254.1.1", True),
        ("100.64.0.1", True),
        ("[::1]", True),
        ("[fe80::1%25eth0]", True),
        ("[fd00::1]", True),
        ("[::ffff:10.0.0.1]", True),
        ("[::ffff:127.0.0.1]", True),
        ("box", True),
        ("box.local", True),
        ("box.lan", True),
        ("host.docker.internal", True),
        ("box.home.arpa", True),
        ("honcho.example.com", False),
        ("local.example.com", False),
        ("8.8.8.8", False),
        ("172.32.0.1", False),
        ("100.128.0.1", False),
        ("[2606:4700::1]", False),
        ("[::ffff:8.8.8.8]", False),
    ],
)
def test_addresses_and_names_of_a_private_network_count_as_local(machine: Machine, host: str, is_local: bool) -> None:
    assert sent(machine, host={"baseUrl": f"http://{host}:8000"}, env={"apiKey": "k"}) == ("" if is_local else "k")


@pytest.mark.contract("5.4")
async def test_program_on_a_local_port_never_sees_the_key_of_the_cloud(machine: Machine, writer: Writer) -> None:
    with Between(NOBODY) as stranger:
        stranger.rule = lambda _: Instead({}, 404)
        lane = Lane(writer("", apiKey="hch-of-the-cloud", hosts={"hermes": {"baseUrl": stranger.url}}))
        lane.put("hello")
        await lane.attempt()
        delivered, here = len(stranger.asked), CommandContext(Home(machine.home), {})
        machine.env = {"HONCHO_API_KEY": "hch-of-the-cloud"}
        assert describe_server(machine.load().checked(), here) == "it answers"
        try_server(machine.load().checked(), here)
    assert 0 < delivered < len(stranger.asked) - 1
    assert {asked.authorization for asked in stranger.asked} == {f"Bearer {NO_KEY}"}


@pytest.mark.contract("5.4", "P5")
@pytest.mark.parametrize(
    ("layers", "told"),
    [
        (
            {"host": {"baseUrl": NOBODY}, "env": {"apiKey": "hch-k"}},
            "the key of HONCHO_API_KEY is not sent to a local server; put apiKey beside baseUrl in hosts.hermes",
        ),
        (
            {"host": {"environment": "local"}, "root": {"apiKey": "hch-k"}},
            "the key of the root is not sent to a local server; put apiKey beside baseUrl in hosts.hermes",
        ),
        (
            {"host": {"environment": "local", "apiKey": "hch-k"}, "root": {"baseUrl": "https://me:pw@example.com"}},
            f"the key of the host block belongs to {LOCAL} and is not sent to https://me:(hidden)@example.com; "
            "put apiKey beside baseUrl in hosts.hermes",
        ),
        ({"host": {"baseUrl": NOBODY, "apiKey": "hch-k"}, "env": {"apiKey": "hch-other"}}, None),
        ({"host": {"server": "embedded", "baseUrl": NOBODY}, "env": {"apiKey": "hch-k"}}, None),
    ],
)
def test_key_that_is_configured_but_not_sent_is_named(
    machine: Machine, layers: dict[str, dict[str, str]], told: str | None
) -> None:
    sent(machine, **layers)
    (machine.home / "honcho.json").chmod(0o600)
    assert plugin(machine).remarks([]) == ([] if told is None else [told])


@pytest.mark.contract("5.4", "10.3")
def test_status_says_which_key_is_used_and_why_another_is_not(
    chosen: Path, home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def auth(value: dict[str, Any]) -> str:
        write(home, value)
        ran = hermes("honcho", "status", "--json")
        assert "hch-" not in ran.out + ran.err + hermes("honcho", "status").out + hermes("doctor").out
        found: str = json.loads(ran.out)["auth"]
        return found

    local = {"baseUrl": NOBODY}
    withheld = "is not sent to a local server; put apiKey beside baseUrl in hosts.hermes"
    assert auth({"hosts": {"hermes": {**local, "apiKey": "hch-k"}}}) == "API key (host block)"
    assert auth({**local, "apiKey": "hch-k"}) == "API key (root)"
    monkeypatch.setenv("HONCHO_API_KEY", "hch-v")
    assert auth(local) == f"none: the key of HONCHO_API_KEY {withheld}"
    assert f"the key of HONCHO_API_KEY {withheld}" in " ".join(hermes("doctor").out.split())
    monkeypatch.setenv("HONCHO_BASE_URL", NOBODY)
    used = "API key (variable HONCHO_API_KEY)"
    assert auth({}) == used
    assert auth({"apiKey": "hch-root"}) == f"{used}; the key of the root {withheld}"
    assert auth({"oauth": {"refreshToken": "r"}, "apiKey": "hch-root"}).startswith(used), "a grant goes with its key"


@pytest.mark.contract("5.1", "5.4")
def test_file_whose_key_is_not_sent_is_still_one_with_a_secret(machine: Machine) -> None:
    path = machine.write({"apiKey": "k", "hosts": {"hermes": {"baseUrl": NOBODY}}})
    path.chmod(0o644)
    assert any(line.endswith(f"chmod 600 {path}") for line in plugin(machine).remarks([]))


@pytest.mark.contract("5.4", "10.3")
@pytest.mark.parametrize("asks", [False, True])
def test_setup_writes_a_key_for_a_local_server_though_the_variable_has_the_same(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    monkeypatch.setenv("HONCHO_API_KEY", "hch-k")
    options = ["--yes", "--server", "self-hosted", "--url", NOBODY, "--key", "hch-k"]
    if asks:
        Person("self-hosted", NOBODY, "hch-k", "", "", "", *USE).sits_down(monkeypatch)
    ran = hermes("memory", "setup", "honcho", "--unchecked", *([] if asks else options))
    assert (ran.code, block(home)["apiKey"]) == (0, "hch-k"), ran.err
    assert json.loads(hermes("honcho", "status", "--json").out)["auth"] == "API key (host block)"


@pytest.mark.contract("5.4", "10.3")
def test_setup_back_to_the_cloud_uses_the_variable_that_a_local_server_did_not_get(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONCHO_API_KEY", "hch-k")
    write(home, {"baseUrl": NOBODY, "environment": "local"})
    ran = hermes("memory", "setup", "honcho", "--unchecked", "--yes", "--server", "cloud")
    assert (ran.code, "The key of HONCHO_API_KEY is used" in ran.out) == (0, True), ran.err
    assert block(home) == {"baseUrl": "", "environment": "production"}
    write(home, {**SERVERS["cloud"], "hosts": {"hermes": {"environment": "local"}}})
    assert hermes("memory", "setup", "honcho", "--unchecked", "--yes", "--key", "hch-new").code == 0
    assert block(home) == {"environment": "production", "apiKey": "hch-new"}
