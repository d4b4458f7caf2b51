"""Search finds messages, but no tool results and no text that only repeats memory."""

from __future__ import annotations

import pytest

from hermes.agent.builtin_tools import session_search_tool
from hermes.agent.offline import Inquiry, OfflineModel
from hermes.llm.model import ModelRequest
from hermes.scope import OWNER
from hermes.store.reach import Narrowed
from hermes.store.store import Store
from hermes.types import ECHO, Draft, RecalledLine, ToolCall


async def talk(store: Store) -> str:
    """Store one message and four echoes of it."""
    session = await store.create_session("cli")
    call = ToolCall("c", "session_search", '{"query": "stamps"}')
    await store.append(
        session.id,
        Draft("user", "I collect stamps from Malta"),
        Draft("assistant", "Saved: I collect stamps from Malta", finish_reason=ECHO),
        Draft("assistant", tool_calls=(call,)),
        Draft("tool", "user: I collect stamps from Malta", tool_call_id="c", tool_name="session_search"),
        Draft("tool", "Noted in USER.md: collects stamps", tool_call_id="d", tool_name="memory"),
        Draft("assistant", "From memory: “I collect stamps from Malta”", finish_reason=ECHO),
    )
    return session.id


@pytest.mark.contract("1.7")
async def test_results_of_tools_and_quotes_from_memory_are_not_found(store: Store) -> None:
    await talk(store)
    await store.index()
    found = await store.read(lambda tx: store.search.find(tx, "stamps", OWNER, limit=10))
    assert [hit.message.content for hit in found] == ["I collect stamps from Malta"]
    answer = await session_search_tool(store, OWNER).run({"query": "stamps from Malta", "limit": 10})
    assert answer.text.count("stamps") == 1


@pytest.mark.contract("1.7")
async def test_results_of_tools_that_an_older_index_holds_are_not_found(store: Store) -> None:
    session = await talk(store)
    await store.index()

    def index_all(tx: object) -> None:
        rows = tx.execute("SELECT id, content FROM messages WHERE role = 'tool'").fetchall()  # type: ignore[attr-defined]
        for row in rows:
            tx.execute("INSERT INTO hermes_search (rowid, text) VALUES (?, ?)", tuple(row))  # type: ignore[attr-defined]

    await store.write(index_all)
    found = await store.read(lambda tx: store.search.find(tx, "stamps", OWNER, limit=10, narrowed=Narrowed(session)))
    assert [hit.message.role for hit in found] == ["user"]


async def test_answers_without_a_model_are_marked_as_echoes() -> None:
    async def recollect(_: Inquiry) -> list[RecalledLine]:
        return [RecalledLine("I collect stamps")]

    for text in ("I collect stamps", "What do I collect?"):
        events = [e async for e in OfflineModel(recollect).stream(ModelRequest([{"role": "user", "content": text}]))]
        assert events[-1].reply.finish_reason == ECHO  # type: ignore[union-attr]
