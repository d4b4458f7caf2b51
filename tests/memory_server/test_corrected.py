"""A conclusion that a person corrected is not derived from its message again."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.memory_server.db.schema import open_for_work
from hermes.memory_server.engine.derive import embed_statements, read_statements, remember
from hermes.memory_server.engine.word_vectors import WordVectors
from tests.memory_server.serving import running
from tests.memory_server.talking import settle

SAID = "My dog is called Rex."


@pytest.mark.contract("10.43")
async def test_a_message_that_is_read_again_brings_back_nothing_that_was_corrected(
    processes: None, tmp_path: Path
) -> None:
    with running(tmp_path) as served, served.client() as client:
        client.base_url = client.base_url.join("/v3/workspaces/lab")
        peers = {"ann": {"observe_others": True}, "bot": {"observe_others": True}}
        assert client.post("/sessions", json={"id": "s", "peers": peers}).is_success
        said = {"messages": [{"peer_id": "ann", "content": text} for text in (SAID, "I like figs.")]}
        assert client.post("/sessions/s/messages", json=said).is_success
        settle(client)
        wrong = [one for one in client.post("/conclusions/list", json={}).json()["items"] if "Rex" in one["content"]]
        assert len(wrong) == 2, "each observer has its own"
        for one in wrong:
            assert client.put(f"/ext/conclusions/{one['id']}", json={"content": "ann: It is Max."}).is_success
        before = client.post("/conclusions/list", json={}).json()["items"]
    database = open_for_work(tmp_path)
    try:
        statements = await database.read(lambda tx: read_statements(tx, [1, 2]))
        ready = await embed_statements(WordVectors(), statements)
        assert [one.content for one in ready] == [f"ann: {SAID}", "ann: I like figs."]
        await database.write(lambda tx: remember(tx, 1, [1, 2], ready, 1))
    finally:
        await database.close()
    with running(tmp_path) as served, served.client() as client:
        after = client.post("/v3/workspaces/lab/conclusions/list", json={}).json()["items"]
    assert sorted(one["content"] for one in after) == sorted(one["content"] for one in before)
