"""`hermes honcho peers map` on a server that can merge two peers: a stand-in that records its requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.honcho.asking import Person

Hermes = Callable[..., Ran]
PREVIEW = {"messages": 12, "sessions": 2, "conclusions": 3, "cards": 1}


class Merging(ThreadingHTTPServer):
    """A stand-in for `/health` and the two routes of a merge."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[tuple[str, str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    server: Merging

    def do_GET(self) -> None:
        if "/peers/nobody/" in self.path:
            self._answer(404, {"detail": "Peer not found"})
        else:
            health = {"status": "ok", "extensions": ["merge_peers"]}
            self._answer(200, health if self.path == "/health" else PREVIEW)

    def do_POST(self) -> None:
        self._answer(202, {"id": "m1", "state": "running"})

    def _answer(self, status: int, body: object) -> None:
        given = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.server.asked.append((self.command, self.path, given))
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server(home: Path, hermes: Hermes) -> Iterator[Merging]:
    """The server that the home has chosen."""
    with Merging() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        options = ("--server", "self-hosted", "--url", made.url, "--workspace", "lab", "--unchecked")
        assert hermes("memory", "setup", "honcho", "--yes", *options).code == 0
        yield made
        made.shutdown()
        thread.join()


MERGED = ("POST", "/v3/workspaces/lab/ext/peers/17/merge", '{"into":"bea"}')


@pytest.mark.contract("5.6")
def test_what_is_known_of_the_old_peer_becomes_the_new_ones_when_the_person_says_so(
    home: Path, hermes: Hermes, server: Merging, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person("merge").sits_down(monkeypatch)
    assert hermes("honcho", "peers", "map", "17", "bea").code == 0
    assert person.heard[0].startswith("17 has 12 messages, and 3 conclusions concern it.")
    assert server.asked[1][1] == "/v3/workspaces/lab/ext/peers/17/merge?into=bea"
    assert server.asked[-1] == MERGED
    found = json.loads((home / "honcho.json").read_text(encoding="utf-8"))
    assert found["hosts"]["hermes"]["userPeerAliases"] == {"17": "bea"}


@pytest.mark.contract("5.6")
def test_someone_of_whom_nothing_is_known_is_mapped_without_a_question(
    hermes: Hermes, server: Merging, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person().sits_down(monkeypatch)
    assert hermes("honcho", "peers", "map", "nobody", "bea").code == 0
    assert person.heard[0] == "Nothing is known of nobody yet."


@pytest.mark.contract("5.6")
@pytest.mark.parametrize(("option", "merged"), [("--merge", True), ("--leave", False)])
def test_an_option_answers_without_a_person(hermes: Hermes, server: Merging, option: str, merged: bool) -> None:
    assert hermes("honcho", "peers", "map", "17", "bea", option).code == 0
    assert (MERGED in server.asked) is merged


@pytest.mark.contract("5.6")
def test_a_merge_that_the_server_cannot_do_changes_nothing(home: Path, hermes: Hermes) -> None:
    options = ("--server", "self-hosted", "--url", "http://127.0.0.1:9", "--unchecked")
    assert hermes("memory", "setup", "honcho", "--yes", *options).code == 0
    before = (home / "honcho.json").read_text(encoding="utf-8")
    ran = hermes("honcho", "peers", "map", "17", "bea", "--merge")
    assert (ran.code, "the request to the server failed" in ran.err) == (1, True)
    assert (home / "honcho.json").read_text(encoding="utf-8") == before


@pytest.mark.contract("5.6", "P6")
def test_memory_of_a_peer_that_is_more_than_one_id_is_never_moved(
    home: Path, hermes: Hermes, server: Merging, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in ("111", "222"):
        assert hermes("honcho", "peers", "map", one, "bea", "--leave").code == 0
    refused = hermes("honcho", "peers", "map", "222", "bob", "--merge")
    assert refused.code == 2
    assert "bea is not 222 alone" in refused.err
    person = Person("leave").sits_down(monkeypatch)
    assert hermes("honcho", "peers", "map", "222", "bob").code == 0
    assert "bea is not this id alone, so its memory stays where it is." in person.heard
    assert not [asked for asked in server.asked if asked[0] == "POST"]
