"""What commands ask a server: by which key, and what a server's refusal becomes."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hermes.embedded.connect import stop
from hermes.errors import ProviderError
from hermes.home import Home
from hermes.honcho.recall_reader import Card, ask_server, try_server
from hermes.honcho.server import Machine as Here
from hermes.honcho.server import look_at
from tests.honcho.configuring import Machine
from tests.memory_server.serving import SECRET, Served, running


class Listening(ThreadingHTTPServer):
    """Records what it is asked and by which key, and answers everything with an empty object."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[tuple[str, str]] = []


class Answering(BaseHTTPRequestHandler):
    server: Listening

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.path, str(self.headers["Authorization"])))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET

    def log_message(self, *_: object) -> None: ...


@pytest.mark.contract("5.2")
@pytest.mark.parametrize(("value", "key"), [({"apiKey": "k"}, "k"), ({}, "local")])
def test_no_variable_of_another_program_decides_whom_a_command_asks_and_with_which_key(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, value: dict[str, str], key: str
) -> None:
    for name, wrong in (("API_KEY", "wrong"), ("URL", "http://wrong"), ("WORKSPACE_ID", "wrong")):
        monkeypatch.setenv(f"HONCHO_{name}", wrong)
    with Listening() as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        machine.write({**value, "baseUrl": f"http://127.0.0.1:{listening.server_port}/v3", "workspace": "lab"})
        here = Here(Home(machine.home), {})
        assert try_server(machine.load().checked(), here) == ""
        ask_server(machine.load().checked(), here, lambda server: server.get(Card, "peers"))
        listening.shutdown()
        thread.join()
    paths = ["/health", "/v3/workspaces", "/health", "/v3/workspaces/lab/peers"]
    assert listening.asked == [(path, f"Bearer {key}") for path in paths]


@pytest.mark.processes
@pytest.mark.contract("5.4")
def test_a_key_that_is_refused_is_told_without_it(machine: Machine, tmp_path: Path) -> None:
    with running(tmp_path / "guarded", AUTH_USE_AUTH="true", AUTH_JWT_SECRET=SECRET) as served:
        machine.write({"baseUrl": served.url, "apiKey": "hch-wrong-secret-key"})
        told = try_server(machine.load().checked(), Here(Home(machine.home), {}))
        assert look_at(machine.load().checked(), Here(Home(machine.home), {})) == "it answers, but refuses the key"
        machine.write({"baseUrl": served.url})
        assert look_at(machine.load().checked(), Here(Home(machine.home), {})) == "it answers, but wants a key"
    assert "answered 401" in told
    assert "Check `apiKey`" in told
    assert "hch-wrong" not in told


@pytest.mark.processes
@pytest.mark.contract("5.4")
def test_looking_at_a_server_makes_nothing_there(machine: Machine, server: Served) -> None:
    machine.write({"baseUrl": server.url, "workspace": "only-looked-at"})
    assert look_at(machine.load().checked(), Here(Home(machine.home), {})) == "it answers"
    with server.client() as client:
        found = client.post("/v3/workspaces/list", json={"filters": {"id": "only-looked-at"}}).json()
    assert found["items"] == []


def test_a_server_that_is_not_there_is_told_in_one_line(machine: Machine) -> None:
    machine.write({"baseUrl": "http://127.0.0.1:9"})
    here = Here(Home(machine.home), {})
    assert "the server cannot be reached" in try_server(machine.load(), here)
    with pytest.raises(ProviderError):
        ask_server(machine.load(), here, lambda server: server.get(Card, "peers"))


@pytest.mark.contract("5.4")
@pytest.mark.processes
def test_without_a_server_our_own_is_started_and_used(machine: Machine) -> None:
    here = Here(Home(machine.home), {})
    machine.home.mkdir()
    try:
        assert try_server(machine.load().checked(), here) == ""
    finally:
        stop(here.memory)
