"""Incognito: no memory ever sees messages sent between `/memory off` and `/memory on`."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.agent.agent import Agent, Policy
from hermes.agent.builtin_tools import session_search_tool
from hermes.agent.loop import NO_TOOLS
from hermes.agent.offline import Inquiry, OfflineModel
from hermes.agent.recollection import recollect
from hermes.agent.review import PROMPT, review
from hermes.agent.undo import retry
from hermes.clock import SystemClock
from hermes.events import ToolFinished
from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from hermes.store.store import Store
from hermes.store.turns import NoRecord
from hermes.types import Draft
from tests.agent.seam import calls, offered, open_seam, requests, say
from tests.llm.scripted import ScriptedAnswer
from tests.memory.providers import Recorder
from tests.scale import scale


async def switch(agent: Agent, word: str) -> None:
    change = agent.store.incognito.begin if word == "off" else agent.store.incognito.end
    await agent.store.write(lambda tx: change(tx, agent.session_id))


async def answer_again(agent: Agent, cause: str) -> None:
    async for _ in retry(agent, cause, asyncio.Event(), NoRecord()):
        pass


@pytest.mark.contract("4.11")
async def test_an_incognito_turn_neither_queries_nor_feeds_memory(tmp_path: Path) -> None:
    provider = Recorder()
    script = [
        Reply("one"),
        calls("memory", action="add", target="user", content="secret"),
        calls("lookup", "c2", what="secret"),
        calls("session_search", "c3", query="open talk"),
        calls("delegate", "c4", task="secret task"),
        calls("session_search", "c5", query="open talk"),
        Reply("secret result"),
        Reply("two"),
        Reply("three"),
    ]
    async with open_seam(tmp_path, script, provider) as agent:
        agent.notes.add("user", "likes figs")
        await say(agent, "open talk")
        before, told = list(provider.calls), list(provider.entries)
        await switch(agent, "off")
        events = await say(agent, "secret talk")
        assert (provider.calls, provider.entries) == (before, told)
        asked = requests(agent)[1]
        assert offered(asked) == {"delegate"}
        assert "likes figs" not in str(asked.messages)
        assert "The block of the provider." not in str(asked.messages)
        assert "memory-context" not in str(asked.messages)
        finished = {event.name: event for event in events if isinstance(event, ToolFinished)}
        assert not any(finished[name].ok for name in ("memory", "lookup", "session_search"))
        assert NO_TOOLS in str(requests(agent)[6].messages)
        assert finished["delegate"].ok
        assert agent.notes.read("user") == "likes figs"
        await switch(agent, "on")
        await say(agent, "open again")
        assert "likes figs" in str(requests(agent)[-1].messages[0])
        assert requests(agent)[-1].messages[0] == requests(agent)[0].messages[0]
    assert "secret" not in str(provider.calls)
    assert provider.told("said") == ["open talk", "open again"]


@pytest.mark.contract("4.11")
async def test_a_session_that_starts_incognito_gets_its_notes_when_memory_is_on(tmp_path: Path) -> None:
    provider = Recorder()
    async with open_seam(tmp_path, [Reply("one"), Reply("two")], provider) as agent:
        agent.notes.add("user", "likes figs")
        await switch(agent, "off")
        await say(agent, "secret talk")
        assert provider.calls == []
        assert "likes figs" not in str(requests(agent)[0].messages)
        await switch(agent, "on")
        await say(agent, "open talk")
        assert "likes figs" in str(requests(agent)[1].messages[0])
        assert "The block of the provider." in str(requests(agent)[1].messages[0])


@pytest.mark.contract("4.11")
async def test_incognito_survives_a_restart(tmp_path: Path) -> None:
    provider = Recorder()
    async with open_seam(tmp_path, [Reply("one")], provider) as agent:
        session = agent.session_id
        await switch(agent, "off")
        await say(agent, "secret talk")
    async with open_seam(tmp_path, [Reply("two")], provider, session_id=session) as agent:
        await say(agent, "still secret")
        assert offered(requests(agent)[0]) == {"delegate"}
    assert provider.calls == []


@pytest.mark.contract("4.11")
async def test_incognito_without_a_model_neither_recalls_nor_claims_to_save(tmp_path: Path) -> None:
    async with open_seam(tmp_path, []) as agent:
        offline = OfflineModel(partial(recollect, agent.store, agent.notes))
        agent.model, agent.answers_from_memory = offline, True
        await say(agent, "My cat is called Miso.")
        assert "Miso" in str((await say(agent, "What is my cat called?"))[-1])
        await switch(agent, "off")
        told = str((await say(agent, "My other cat is called Nori."))[-1])
        assert "Kept in this conversation alone: My other cat is called Nori." in told
        assert "Saved" not in told
        assert "I remember nothing" in str((await say(agent, "What is my cat called?"))[-1])
        await switch(agent, "on")
        answer = str((await say(agent, "What is my cat called?"))[-1])
        assert "Miso" in answer
        assert "Nori" not in answer


@pytest.mark.contract("4.11", "10.26")
async def test_a_retried_incognito_message_stays_out_of_memory_with_its_reply(tmp_path: Path) -> None:
    provider = Recorder()
    script = [Reply("one"), calls("delegate", "c1", task="secret task"), Reply("secret result"), Reply("secret reply")]
    async with open_seam(tmp_path, script, provider) as agent:
        await switch(agent, "off")
        await say(agent, "secret talk")
        await switch(agent, "on")
        await answer_again(agent, "retry")
        history = [message.content for message in (await agent.store.view(agent.session_id)).messages]
        assert history[0] == "secret talk"
        assert history[-1] == "secret reply"
        await agent.store.index()
        found = await session_search_tool(agent.store, agent.scope).run({"query": "secret"})
        untold = await agent.store.read(lambda tx: agent.store.unsynced.messages(tx, "another", agent.session_id))
    assert found.text == "Nothing was said about: secret"
    assert untold == []
    assert provider.entries == []


async def last_look(agent: Agent) -> None:
    """Run the last look of a compression, in which the provider sees the messages it may know."""
    view = await agent.store.view(agent.session_id)
    known = await agent.store.read(lambda tx: agent.store.incognito.remembered(tx, view.messages))
    await agent.memory.before_compress(known)


class Listener:
    """Records everything that any consumer of memory received."""

    def __init__(self) -> None:
        self.provider = Recorder()
        self.reviewed: list[str] = []

    def answer(self, request: ModelRequest) -> ScriptedAnswer:
        if request.messages[0]["content"] == PROMPT:
            self.reviewed.append(str(request.messages))
            return Reply("done")
        said = [str(m["content"]) for m in request.messages if m["role"] == "user"][-1]
        return Reply(f"reply to {said.split()[0]}")

    async def heard(self, agent: Agent) -> str:
        await agent.store.index()
        tool = session_search_tool(agent.store, agent.scope)
        found = await tool.run({"query": "word reply", "limit": 20})
        recalled = await recollect(agent.store, agent.notes, Inquiry("word", "oneself"))
        told = [call for call in self.provider.calls if call[0] != "open"]
        return f"{told} {self.reviewed} {found.text} {recalled}"


steps = st.lists(
    st.sampled_from(["say", "say", "say", "off", "on", "retry", "review", "restart", "other", "compress"]), max_size=14
)


@pytest.mark.contract("4.11")
@settings(max_examples=scale(15, 300))
@given(steps)
def test_no_memory_ever_hears_what_was_said_incognito(plan: list[str]) -> None:
    async def live(home: Path) -> None:
        listener, session, incognito, number = Listener(), None, False, 0
        secret: list[str] = []
        known: list[str] = []
        waiting = [*plan, "on", "say", "review"]
        while waiting:
            policy = Policy(review_every=2)
            async with open_seam(home, listener.answer, listener.provider, policy, session_id=session) as agent:
                session = agent.session_id
                while waiting and (step := waiting.pop(0)) != "restart":
                    if step in ("on", "off"):
                        await switch(agent, step)
                        incognito = step == "off"
                    elif step == "say":
                        number += 1
                        (secret if incognito else known).append(f"m{number}x")
                        await say(agent, f"m{number}x word")
                    elif step == "retry" and number:
                        await answer_again(agent, f"retry {len(waiting)}")
                    elif step == "other":
                        elsewhere = await agent.store.create_session("cli")
                        await agent.store.append(elsewhere.id, Draft("user", "elsewhere word"))
                    elif step == "compress":
                        await last_look(agent)
                    else:
                        await review(agent)
                    while agent.background:
                        await asyncio.wait(agent.background)
                if not waiting:
                    heard = await listener.heard(agent)
        assert [text for text in secret if text in heard] == []
        assert [text for text in known if text not in heard] == []
        assert all(f"{text} word" in str(listener.reviewed) for text in known)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(Path(folder)))


@pytest.mark.contract("4.11")
async def test_a_file_that_keeps_no_count_of_deleted_rows_hides_incognito_messages_too(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, started_at REAL NOT NULL)")
        file.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, role TEXT NOT NULL, "
            "content TEXT, timestamp REAL NOT NULL)"
        )
    async with await Store.open(path, clock=SystemClock(), lock_timeout=10.0) as store:
        session = (await store.create_session("cli")).id
        seen = await store.append(session, Draft("user", "open"))
        await store.write(lambda tx: store.incognito.begin(tx, session))
        seen += await store.append(session, Draft("user", "secret"))
        await store.write(lambda tx: store.incognito.end(tx, session))
        seen += await store.append(session, Draft("user", "open too"))
        kept = await store.read(lambda tx: store.incognito.remembered(tx, seen))
        assert [message.content for message in kept] == ["open", "open too"]
