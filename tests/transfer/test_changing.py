"""An export through the public API contains everything that existed throughout, whatever others delete meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes.errors import TransferError
from hermes.transfer.importing import export_workspace
from hermes.transfer.public_source import PublicSource
from hermes.transfer.remote import Remote
from tests.memory_server.serving import Served, inside
from tests.memory_server.talking import say
from tests.plain_http import PLAIN
from tests.transfer.carrying import Cut, items

pytestmark = [pytest.mark.contract("9.12"), pytest.mark.processes]


class Meddling(httpx.BaseTransport):
    """Runs an action right before a page of a list is first requested."""

    def __init__(self, path: str, page: str, meddle: Callable[[], None]) -> None:
        self._inner = httpx.HTTPTransport(verify=PLAIN)
        self._path, self._page = path, page
        self._meddle: Callable[[], None] | None = meddle

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        asked = request.url.params
        if self._meddle and request.url.path.endswith(self._path) and asked["page"] == self._page:
            meddle, self._meddle = self._meddle, None
            meddle()
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


def export(served: Served, workspace: str, path: Path, transport: httpx.BaseTransport) -> dict[str, list[Any]]:
    remote = Remote(served.url, None, workspace, transport=transport)
    try:
        export_workspace(PublicSource(remote), workspace, path, lambda _section, _count: None)
    finally:
        remote.close()
    return items(path)


def say_many(http: httpx.Client, session: str, count: int) -> list[str]:
    """Return the ids of `count` messages."""
    texts = [f"m{n}" for n in range(count)]
    return [made["id"] for start in range(0, count, 100) for made in say(http, session, *texts[start : start + 100])]


def delete_message(http: httpx.Client, session: str, message: str) -> None:
    http.delete(f"/ext/sessions/{session}/messages/{message}").raise_for_status()


@pytest.mark.parametrize("gone", [[5], [98, 99], range(85, 100), [5, 150], range(70)])
def test_messages_that_others_delete_take_no_other_message_out_of_the_export(
    new: Served, workspace: str, tmp_path: Path, gone: list[int]
) -> None:
    with inside(new, workspace) as http:
        made = say_many(http, "s", 250)

        def meddle() -> None:
            for number in gone:
                delete_message(http, "s", made[number])
            say(http, "s", *(f"new {n}" for n in range(len(gone))))  # so that there are as many as before

        told = export(new, workspace, tmp_path / "a.jsonl", Meddling("/sessions/s/messages/list", "2", meddle))
    ids = [message["id"] for message in told["messages"]]
    assert len(ids) == len(set(ids))
    kept = {*made} - {made[number] for number in gone}
    assert kept <= {*ids}
    assert [one for one in ids if one in {*made}] == sorted({*ids} & {*made}, key=made.index), "in their order"
    assert [message["seq"] for message in told["messages"]] == [*range(1, len(ids) + 1)]


def test_messages_deleted_between_two_runs_take_no_other_message_out_of_the_export(
    new: Served, workspace: str, tmp_path: Path
) -> None:
    def cut() -> None:
        raise Cut

    path = tmp_path / "a.jsonl"
    with inside(new, workspace) as http:
        made = say_many(http, "s", 250)
        with pytest.raises(Cut):
            export(new, workspace, path, Meddling("/sessions/s/messages/list", "2", cut))
        for number in (3, 4):
            delete_message(http, "s", made[number])
        told = export(new, workspace, path, httpx.HTTPTransport(verify=PLAIN))
    assert [message["id"] for message in told["messages"]] == made, "those two were in the file already"


def test_sessions_that_others_delete_take_no_other_session_out_of_the_export(
    new: Served, workspace: str, tmp_path: Path
) -> None:
    with inside(new, workspace) as http:
        for number in range(130):
            http.post("/sessions", json={"id": f"s{number}"}).raise_for_status()
        for number in (99, 100, 101):
            say(http, f"s{number}", f"I am in {number}.")

        def meddle() -> None:
            for number in (7, 98):
                http.delete(f"/sessions/s{number}").raise_for_status()

        told = export(new, workspace, tmp_path / "a.jsonl", Meddling("/sessions/s98/messages/list", "1", meddle))
    assert {message["session_id"] for message in told["messages"]} == {"s99", "s100", "s101"}
    assert len(told["sessions"]) == 130


def test_list_that_changed_beyond_recognition_stops_the_export(new: Served, workspace: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with inside(new, workspace) as http:
        made = say_many(http, "s", 250)

        def meddle() -> None:
            last = {"first_id": made[70], "last_id": made[99]}
            http.delete("/ext/sessions/s/messages", params=last).raise_for_status()

        with pytest.raises(TransferError, match="changed too much while it was read"):
            export(new, workspace, path, Meddling("/sessions/s/messages/list", "2", meddle))
    assert not path.exists()
    assert json.loads((tmp_path / "a.jsonl.part").read_text(encoding="utf-8").split("\n")[0])
