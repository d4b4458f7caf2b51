"""Deleted conclusions stay deleted: against re-derivation, import, backfill, scopes and merges. A new statement may
restore them."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes.memory_server.db.schema import FILE, open_for_work
from hermes.memory_server.db.sqlite import FILE as KEY_FILE
from hermes.memory_server.db.sqlite import folder_key
from hermes.memory_server.engine.derive import embed_statements, read_statements, remember
from hermes.memory_server.engine.word_vectors import WordVectors
from tests.memory_server.in_file import wait_for_work
from tests.memory_server.serving import Served, inside, running
from tests.memory_server.talking import conclude, say, settle

pytestmark = pytest.mark.contract("9.5")
SECRET = "I keep my quokka in the bathtub."
LONG_AGO = "2026-01-02T10:00:00Z"


def listed(http: httpx.Client, **filters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.post("/conclusions/list", json={"filters": filters}).json()["items"]
    return found


def tell(http: httpx.Client, text: str, session: str = "s", peer: str = "ann", at: str | None = LONG_AGO) -> None:
    said = {"content": text, "peer_id": peer} | ({} if at is None else {"created_at": at})
    assert http.post(f"/sessions/{session}/messages", json={"messages": [said]}).is_success
    settle(http)


def forget(http: httpx.Client) -> None:
    for one in listed(http):
        if "quokka" in one["content"]:
            assert http.delete(f"/conclusions/{one['id']}").is_success


@contextmanager
def in_lab(folder: Path) -> Iterator[tuple[Served, httpx.Client]]:
    with running(folder) as served, inside(served, "lab") as client:
        yield served, client


async def test_a_message_that_is_read_again_brings_nothing_back(processes: None, tmp_path: Path) -> None:
    with in_lab(tmp_path) as (_, client):
        tell(client, SECRET)
        forget(client)
    database = open_for_work(tmp_path)
    try:
        statements = await embed_statements(WordVectors(), await database.read(lambda tx: read_statements(tx, [1])))
        assert [one.content for one in statements] == [f"ann: {SECRET}"]
        await database.write(lambda tx: remember(tx, 1, [1], statements, 1))
    finally:
        await database.close()
    with in_lab(tmp_path) as (_, client):
        assert listed(client) == []


def test_an_older_message_that_is_sent_again_brings_nothing_back(http: httpx.Client) -> None:
    tell(http, SECRET)
    forget(http)
    tell(http, SECRET.upper().replace(".", " !"), session="backfill", at="2025-01-01T00:00:00Z")
    assert listed(http) == []


def test_no_clause_of_a_deleted_sentence_comes_back(http: httpx.Client) -> None:
    whole = "My bank is Monzo and I keep my quokka in Lisbon, and I live in Lisbon."
    conclude(http, f"ann: {whole}")
    forget(http)
    tell(http, whole)
    assert listed(http) == []


def test_an_import_brings_nothing_back(http: httpx.Client) -> None:
    tell(http, SECRET)
    exported = http.get("/ext/export/conclusions").json()["items"]
    forget(http)
    told = http.post("/ext/import/conclusions", json={"items": exported}).json()
    assert told["added"] == 0
    assert "was deleted on this server" in told["refused"][0]["reason"]
    assert listed(http) == []


def test_what_was_deleted_in_a_message_is_not_imported_either(http: httpx.Client) -> None:
    [message] = say(http, "s", SECRET)
    settle(http)
    exported = http.get("/ext/export/conclusions").json()["items"]
    assert http.delete(f"/ext/sessions/s/messages/{message['id']}").is_success
    assert http.post("/ext/import/conclusions", json={"items": exported}).json()["added"] == 0


def test_a_scope_loses_its_copy_and_gets_none_again(server: Served, http: httpx.Client) -> None:
    tell(http, SECRET)
    http.post("/scopes", json={"id": "work"})
    assert http.post("/scopes/work/sessions", json={"session_ids": ["s"]}).is_success
    wait_for_work(server.folder)
    assert len({one["observer_id"] for one in listed(http)}) == 2, "the scope has a copy"
    [own] = listed(http, observer_id="ann")
    assert http.delete(f"/conclusions/{own['id']}").is_success
    assert listed(http) == []
    http.post("/scopes", json={"id": "late"})
    assert http.post("/scopes/late/sessions", json={"session_ids": ["s"]}).is_success
    wait_for_work(server.folder)
    assert listed(http) == []


def test_a_merge_brings_nothing_back(server: Served, http: httpx.Client) -> None:
    tell(http, SECRET)
    forget(http)
    tell(http, SECRET, session="t", peer="anna")
    assert len(listed(http)) == 1
    assert http.post("/ext/peers/anna/merge", json={"into": "ann"}).is_success
    wait_for_work(server.folder)
    assert listed(http) == []


def test_what_was_deleted_about_a_peer_stays_deleted_when_it_is_merged(server: Served, http: httpx.Client) -> None:
    tell(http, SECRET, peer="anna")
    forget(http)
    say(http, "other", "Hello.", peer="ann")
    assert http.post("/ext/peers/anna/merge", json={"into": "ann"}).is_success
    wait_for_work(server.folder)
    tell(http, SECRET, session="again", at="2025-01-01T00:00:00Z")
    assert listed(http) == []


def test_what_is_said_anew_returns_and_says_that_it_was_forgotten(http: httpx.Client) -> None:
    tell(http, SECRET)
    forget(http)
    tell(http, SECRET, session="today", at=None)
    [back] = listed(http)
    assert http.get(f"/ext/conclusions/{back['id']}/history").json()["forgotten_at"]


def test_words_are_gone_and_the_key_is_private(processes: None, tmp_path: Path) -> None:
    with in_lab(tmp_path) as (_, client):
        [message] = say(client, "s", SECRET)
        settle(client)
        assert not (tmp_path / KEY_FILE).exists(), "made when it is first needed"
        forget(client)
        assert client.delete(f"/ext/sessions/s/messages/{message['id']}").is_success
        wait_for_work(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and b"quokka" in path.read_bytes()] == []
    with closing(sqlite3.connect(tmp_path / FILE)) as file:
        assert file.execute("SELECT count(*) FROM tombstones").fetchone() == (1,)
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert folder_key(tmp_path) == folder_key(tmp_path)
    assert len(folder_key(tmp_path)) == 32
