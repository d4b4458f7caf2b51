"""A question to memory is a read: it neither waits for writers nor blocks them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from hermes.memory_server.db.schema import FILE, open_database
from tests.memory_server.inside import serving

CHAT = "/v3/workspaces/w/peers/ann/chat"
QUESTION = {"query": "Where does she live?"}


async def test_a_question_is_answered_while_another_program_holds_the_file(tmp_path: Path) -> None:
    async with serving(open_database(tmp_path)) as http:
        assert (await http.post(CHAT, json=QUESTION)).status_code == 200  # the first one makes the peer
        with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            async with asyncio.timeout(10):
                answer = await http.post(CHAT, json=QUESTION)
            writer.execute("ROLLBACK")
    assert (answer.status_code, answer.json()) == (200, {"content": None})


async def test_the_first_question_to_a_peer_makes_it(tmp_path: Path) -> None:
    async with serving(open_database(tmp_path)) as http:
        await http.post(CHAT, json=QUESTION)
        found = await http.post("/v3/workspaces/w/peers/list", json={})
    assert [peer["id"] for peer in found.json()["items"]] == ["ann"]
