"""Reviews of sessions that were left: at `/new`, at the end, or after the next start, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes.agent.agent import Policy
from hermes.agent.leftovers import process_leftovers
from hermes.agent.review import PROMPT, review_now
from hermes.cli.commands import run_command
from hermes.cli.conversation import TerminalConversation
from hermes.clock import SystemClock
from hermes.llm.events import Completed, Reply
from hermes.llm.model import ModelRequest
from hermes.memory.notes import Notes
from hermes.scope import Guest
from hermes.slash.context import Say
from hermes.store.store import Store
from tests.agent.agents import lending, make_agent, take_turn
from tests.agent.seam import calls, open_seam, requests, say
from tests.gateway.core import load_app, message, running_core
from tests.gateway.processes import appears, rows
from tests.llm.loopback import LoopbackServer, says
from tests.llm.scripted import ScriptedAnswer, ScriptedModel

SELDOM = Policy(review_every=6)
DUE = "SELECT session_id FROM hermes_reviews_due"


def is_review(request: ModelRequest) -> bool:
    return bool(request.messages[0]["content"] == PROMPT)


def noting(request: ModelRequest) -> ScriptedAnswer:
    """Return a model that notes the conversations it reviews, and replies to people."""
    if not is_review(request):
        return Reply("I see")
    if request.messages[-1]["role"] == "tool":
        return Reply("done")
    said = str(request.messages[1]["content"]).split("New conversation:\n")[1]
    return calls("memory", action="add", target="user", content=said.splitlines()[0].removeprefix("user: "))


@pytest.mark.contract("4.12")
async def test_unreviewed_messages_stay_due_on_the_disk_until_a_review_reads_them(tmp_path: Path) -> None:
    async with open_seam(tmp_path, noting, None, SELDOM) as agent:
        await say(agent, "I like figs")
        assert rows(tmp_path, DUE) == [(agent.session_id,)]
        await review_now(agent)
        assert rows(tmp_path, DUE) == []
        assert agent.notes.read("user") == "I like figs"
        await say(agent, "and dates")
        assert rows(tmp_path, DUE) == [(agent.session_id,)]


@pytest.mark.contract("4.12")
async def test_sessions_that_were_left_are_reviewed_after_the_next_start_and_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, noting, None, SELDOM) as agent:
        await say(agent, "I like figs")
    model = ScriptedModel(noting)
    async with await Store.open(tmp_path / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        lend = lending(store, model, SELDOM)
        await process_leftovers(store, lambda session: session.source == "telegram", lend, store.clock.now())
        assert model.requests == [], "it is for whoever serves that source"
        for _ in range(2):
            await process_leftovers(store, lambda session: session.source == "cli", lend, store.clock.now())
    assert len([request for request in model.requests if len(request.messages) == 2]) == 1
    assert (tmp_path / "memories" / "USER.md").read_text().strip() == "I like figs"


@pytest.mark.contract("4.12")
async def test_two_reviews_at_the_same_moment_read_a_turn_once(tmp_path: Path) -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    def answer(request: ModelRequest) -> ScriptedAnswer:
        if is_review(request):
            asked.set()
        return [gate, Completed(Reply("done"))] if is_review(request) else Reply("I see")

    async with open_seam(tmp_path, answer, None, SELDOM) as agent:
        await say(agent, "I like figs")
        first = asyncio.create_task(review_now(agent))
        await asked.wait()
        await review_now(agent)
        gate.set()
        await first
        assert len([request for request in requests(agent) if is_review(request)]) == 1


@pytest.mark.contract("4.11", "4.12")
async def test_what_was_said_incognito_is_not_due_for_ever(tmp_path: Path) -> None:
    async with open_seam(tmp_path, noting, None, SELDOM) as agent:
        await agent.store.write(lambda tx: agent.store.incognito.begin(tx, agent.session_id))
        await say(agent, "I like figs")
        await review_now(agent)
        assert not any(map(is_review, requests(agent)))
        assert rows(tmp_path, DUE) == []


@pytest.mark.contract("4.12")
@pytest.mark.parametrize(
    "content",
    [
        "No record of the person's favourite colour",
        "The user has not mentioned a job",
        "I have no information about her family",
        "Birthday: unknown",
        "There is no mention of allergies",
        "Nothing is known about their work",
    ],
)
async def test_review_never_notes_that_something_is_not_known(tmp_path: Path, content: str) -> None:
    script = [Reply("I see"), calls("memory", target="user", content=content), Reply("done")]
    async with open_seam(tmp_path, script, None, SELDOM) as agent:
        await say(agent, "hello")
        await review_now(agent)
        assert agent.notes.read("user") == ""
        assert rows(tmp_path, DUE) == []


async def test_review_adds_and_changes_nothing_that_is_noted(tmp_path: Path) -> None:
    script = [
        Reply("I see"),
        calls("memory", action="replace", target="user", old_text="figs", content="likes dates"),
        calls("memory", "c2", action="remove", target="user", old_text="figs", content=""),
        Reply("done"),
    ]
    async with open_seam(tmp_path, script, None, SELDOM) as agent:
        agent.notes.add("user", "likes figs")
        await say(agent, "hello")
        await review_now(agent)
        assert agent.notes.read("user").split("\n§\n") == ["likes figs", "likes dates"]


def notes_of_ann(home: Path) -> str:
    return Notes(home, Guest("fake", "ann"), {}).read("user")


@pytest.mark.contract("4.12")
async def test_new_in_a_chat_has_the_session_before_it_reviewed(tmp_path: Path) -> None:
    async with running_core(tmp_path, noting, memory__review_every=6) as core:
        await core.platform.deliver(message("I like figs"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        await core.platform.deliver(message("/new"))
        await appears(tmp_path, "SELECT 1 FROM hermes_reviews")
    assert notes_of_ann(tmp_path) == "I like figs"


@pytest.mark.contract("4.12")
async def test_gateway_reviews_after_its_next_start_what_it_could_not_before_its_end(tmp_path: Path) -> None:
    async with running_core(tmp_path, noting, memory__review_every=6) as core:
        await core.platform.deliver(message("I like figs"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
    assert len(rows(tmp_path, DUE)) == 1
    async with running_core(tmp_path, noting, memory__review_every=6):
        await appears(tmp_path, "SELECT 1 FROM hermes_reviews")
    assert rows(tmp_path, DUE) == []
    assert notes_of_ann(tmp_path) == "I like figs"


@pytest.mark.contract("4.12")
@pytest.mark.parametrize("left_by", ["new", "the end"])
async def test_session_of_a_terminal_is_reviewed_when_it_is_left(tmp_path: Path, left_by: str) -> None:
    note = says(calls=[("memory", '{"target": "user", "content": "likes figs"}')])
    answers = [says("I see"), *([] if left_by == "new" else [says("hello")]), note, says("done")]
    async with LoopbackServer(answers, then=says("hello")) as server:
        app = load_app(tmp_path, SystemClock(), model__base_url=server.base_url, model__default="loop-1")
        async with await app.open_store() as store:
            conversation = TerminalConversation(app, store)
            await talk(conversation, "I like figs")
            if left_by == "new":
                await run_command(conversation, "/new", asyncio.Event())
            else:
                await conversation.end()
                assert len(rows(tmp_path, DUE)) == 1
                conversation = TerminalConversation(app, store)
                await talk(conversation, "hello")
            await appears(tmp_path, "SELECT 1 FROM hermes_reviews")
            await conversation.end()
    assert (tmp_path / "memories" / "USER.md").read_text().strip() == "likes figs"


async def talk(conversation: TerminalConversation, text: str) -> None:
    async for _ in conversation.take_turn(Say(text), asyncio.Event()):
        pass


async def test_turn_of_an_agent_without_reviews_leaves_nothing_due(store: Store) -> None:
    session = await store.create_session("cli")
    await take_turn(make_agent(store, session.id, ScriptedModel([Reply("I see")])), "I like figs")
    assert await store.read(lambda tx: tx.execute(DUE).fetchall()) == []
