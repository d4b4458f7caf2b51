"""The SDK client of commands: its options, and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.embedded.connect import stop
from hermes.errors import ProviderError
from hermes.home import Home
from hermes.honcho.server import Machine as CommandContext
from hermes.honcho.server import describe_server, open_client, try_server
from tests.honcho.configuring import Machine
from tests.memory_server.serving import SECRET, Served, running


@pytest.mark.contract("5.2")
@pytest.mark.parametrize(
    ("value", "url", "key"),
    [
        ({"apiKey": "k"}, "https://api.honcho.dev", "k"),
        ({"baseUrl": "http://127.0.0.1:9/v3"}, "http://127.0.0.1:9", "local"),
        ({"environment": "local"}, "http://localhost:8000", "local"),
    ],
)
def test_sdk_gets_every_option_so_that_no_variable_decides(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, value: dict[str, str], url: str, key: str
) -> None:
    for name, wrong in (("API_KEY", "wrong"), ("URL", "http://wrong"), ("WORKSPACE_ID", "wrong")):
        monkeypatch.setenv(f"HONCHO_{name}", wrong)
    machine.write({**value, "workspace": "lab"})
    with open_client(machine.load().checked(), CommandContext(Home(machine.home), {})) as client:
        assert (client._http.base_url, client._http.api_key, client.workspace_id) == (url, key, "lab")
        assert client._http.max_retries == 0


@pytest.mark.processes
@pytest.mark.contract("5.4")
def test_refused_key_is_reported_without_its_value(machine: Machine, tmp_path: Path) -> None:
    with running(tmp_path / "guarded", AUTH_USE_AUTH="true", AUTH_JWT_SECRET=SECRET) as served:
        machine.write({"baseUrl": served.url, "apiKey": "hch-wrong-secret-key"})
        told = try_server(machine.load().checked(), CommandContext(Home(machine.home), {}))
        assert (
            describe_server(machine.load().checked(), CommandContext(Home(machine.home), {}))
            == "it answers, but refuses the key"
        )
        machine.write({"baseUrl": served.url})
        assert (
            describe_server(machine.load().checked(), CommandContext(Home(machine.home), {}))
            == "it answers, but wants a key"
        )
    assert "the server refuses the key" in told
    assert "hch-wrong" not in told


@pytest.mark.processes
@pytest.mark.contract("5.4")
def test_looking_at_a_server_makes_nothing_there(machine: Machine, server: Served) -> None:
    machine.write({"baseUrl": server.url, "workspace": "only-looked-at"})
    assert describe_server(machine.load().checked(), CommandContext(Home(machine.home), {})) == "it answers"
    with server.client() as client:
        found = client.post("/v3/workspaces/list", json={"filters": {"id": "only-looked-at"}}).json()
    assert found["items"] == []


def test_unreachable_server_is_one_line(machine: Machine) -> None:
    machine.write({"baseUrl": "http://127.0.0.1:9"})
    here = CommandContext(Home(machine.home), {})
    assert "the request to the server failed: Connection error" in try_server(machine.load(), here)
    with pytest.raises(ProviderError), open_client(machine.load(), here) as client:
        client.get_metadata()


@pytest.mark.contract("5.4")
@pytest.mark.processes
def test_without_a_server_our_own_is_started_and_used(machine: Machine) -> None:
    here = CommandContext(Home(machine.home), {})
    machine.home.mkdir()
    try:
        assert try_server(machine.load().checked(), here) == ""
    finally:
        stop(here.memory)
