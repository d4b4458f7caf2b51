"""Automatic titles of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from hermes.agent.titles import PROMPT, clean_title
from hermes.assembly import earlier_conversation, open_people
from hermes.cli.commands import run_command
from hermes.cli.conversation import TerminalConversation
from hermes.db.engine import Tx
from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from tests.gateway.core import echo as echo_reply
from tests.gateway.core import message, running_core
from tests.gateway.processes import rows
from tests.llm.loopback import Answer, LoopbackServer, Received, fails, says
from tests.llm.scripted import ScriptedAnswer
from tests.slash.surfaces import at_terminal, say

ECHO = Answer(echo=True)
ASKED = "where do the stamps come from?"


def talking(
    home: Path, server: LoopbackServer | None, *, for_one_turn: bool = False
) -> AbstractAsyncContextManager[TerminalConversation]:
    model = {} if server is None else {"model__base_url": server.base_url, "model__default": "loop-1"}
    return at_terminal(home, for_one_turn, compression__idle=0, sessions__auto_title=True, **model)


async def until(true: Callable[[], bool]) -> None:
    """Wait for background work."""
    async with asyncio.timeout(100):
        while not true():  # noqa: ASYNC110 - what is waited for is in the store
            await asyncio.sleep(0.01)


def titles(home: Path) -> list[str | None]:
    return [
        None if title is None else str(title)
        for (title,) in rows(home, "SELECT title FROM sessions ORDER BY started_at")
    ]


def has_tried(home: Path, times: int) -> bool:
    return rows(home, "SELECT tries FROM hermes_auto_titles") == [(times,)]


def is_for_a_title(body: dict[str, list[dict[str, str]]]) -> bool:
    return body["messages"][0]["content"] == PROMPT


@pytest.mark.contract("10.34")
async def test_a_session_gets_a_title_by_the_model_after_its_first_exchange(tmp_path: Path) -> None:
    async with LoopbackServer([says("From Malta."), says('**"Stamps from Malta."**\n\nBecause …')]) as server:
        async with talking(tmp_path, server) as conversation:
            await say(conversation, ASKED)
            await until(lambda: conversation.status.session == "Stamps from Malta")
        [reply, title] = server.requests
        assert not is_for_a_title(reply.body)
        assert is_for_a_title(title.body)
        assert "tools" not in title.body
        assert ASKED in title.body["messages"][1]["content"]
    assert titles(tmp_path) == ["Stamps from Malta"]
    assert rows(tmp_path, "SELECT count(*) FROM messages") == [(2,)]


@pytest.mark.contract("10.34")
async def test_without_a_model_the_first_words_are_the_title(tmp_path: Path) -> None:
    async with talking(tmp_path, None) as conversation:
        await say(conversation, "hi")
        await say(conversation, "My stamps come from Malta, Gozo and Comino, and from Sicily too.")
        await until(lambda: conversation.status.session == "My stamps come from Malta, Gozo and Comino")
    async with talking(tmp_path / "other", None) as conversation:
        await say(conversation, "hi")
        await say(conversation, "you?")
        await until(lambda: conversation.status.session == "hi")


@pytest.mark.contract("10.34")
async def test_a_title_that_a_person_set_or_took_away_is_never_touched(tmp_path: Path) -> None:
    async with LoopbackServer(then=ECHO) as server, talking(tmp_path, server) as conversation:
        await run_command(conversation, "/title Mine", asyncio.Event())
        await say(conversation, ASKED)
        mine = conversation.session_id
        await say(conversation, ASKED)
        await conversation.leave()
        await say(conversation, "hi")  # too little to be named
        await conversation.store.write(
            lambda tx: conversation.store.sessions.set_title(tx, conversation.session_id or "", None)
        )
        await say(conversation, ASKED)
        await conversation.store.write(lambda tx: conversation.store.sessions.set_title(tx, mine or "", None))
    async with LoopbackServer(then=ECHO) as server, talking(tmp_path, server) as conversation:
        await say(conversation, "hi")
        await say(conversation, "what is left over is looked at now")
        await until(lambda: len(titles(tmp_path)) == 3 and titles(tmp_path)[2] is not None)
        assert [is_for_a_title(request.body) for request in server.requests].count(True) == 1
    assert titles(tmp_path)[:2] == [None, None]


@pytest.mark.contract("10.25", "10.34")
async def test_a_title_made_from_undone_messages_is_removed_with_them(tmp_path: Path) -> None:
    async with talking(tmp_path, None) as conversation:
        await say(conversation, "My stamps come from Malta.")
        await until(lambda: titles(tmp_path) == ["My stamps come from Malta"])
        await run_command(conversation, "/undo", asyncio.Event())
        assert (titles(tmp_path), "stamps" in conversation.status.session) == ([None], False)
        await say(conversation, "My figs come from Gozo.")
        await until(lambda: titles(tmp_path) == ["My figs come from Gozo"])
        await say(conversation, "And my dates too.")
        await run_command(conversation, "/undo", asyncio.Event())
        assert titles(tmp_path) == ["My figs come from Gozo"], "nothing that it was made of is taken back"
        await run_command(conversation, "/title Fruit", asyncio.Event())
        await run_command(conversation, "/undo", asyncio.Event())
        assert titles(tmp_path) == ["Fruit"], "a person chose it"


@pytest.mark.contract("10.34")
async def test_an_incognito_session_gets_no_title_and_nothing_of_it_goes_into_one(tmp_path: Path) -> None:
    async with LoopbackServer(then=ECHO) as server:
        async with talking(tmp_path, server) as conversation:
            await run_command(conversation, "/memory off", asyncio.Event())
            await say(conversation, "my secret is the blue pot")
            await say(conversation, "my secret is the red pot")
            await run_command(conversation, "/memory on", asyncio.Event())
            await say(conversation, ASKED)
            await until(lambda: titles(tmp_path) != [None])
        asked = [request.body for request in server.requests if is_for_a_title(request.body)]
        assert len(asked) == 1
        assert "secret" not in str(asked)


@pytest.mark.contract("10.34")
async def test_a_title_that_was_missed_is_made_after_the_next_start(tmp_path: Path) -> None:
    async with LoopbackServer([says("From Malta.")]) as server:
        async with talking(tmp_path, server, for_one_turn=True) as conversation:
            await say(conversation, ASKED)
        assert len(server.requests) == 1, "one question is not followed by another request"
    answers = [says("hello"), says("Stamps from Malta")]
    async with LoopbackServer(answers) as server, talking(tmp_path, server) as conversation:
        await say(conversation, "hi")
        await until(lambda: titles(tmp_path) == ["Stamps from Malta", None])


@pytest.mark.contract("10.34")
async def test_the_next_message_does_not_wait_for_a_title_and_it_is_made_after_it(tmp_path: Path) -> None:
    answers = [says("From Malta."), says("Sta", ending="hang"), says("Since 1860."), says("Old stamps")]
    async with LoopbackServer(answers) as server, talking(tmp_path, server) as conversation:
        await say(conversation, ASKED)
        await until(lambda: len(server.requests) == 2)
        await say(conversation, "since when?")
        async with asyncio.timeout(100):
            await server.hung_up.wait()
        await until(lambda: conversation.status.session == "Old stamps")


@pytest.mark.contract("10.34")
async def test_after_three_failures_the_first_words_are_taken(tmp_path: Path) -> None:
    answers = [says("From Malta."), fails(401, "no")] * 3
    async with LoopbackServer(answers) as server, talking(tmp_path, server) as conversation:
        for tries in (1, 2, 3):
            await say(conversation, f"{tries} {ASKED}")
            await until(partial(has_tried, tmp_path, tries))
        await until(lambda: conversation.status.session == "1 where do the stamps come from?")


class LateForTitles(LoopbackServer):
    """A server that never answers title requests in time."""

    def _choose(self, received: Received) -> Answer:
        return says("late", delay=3600.0) if is_for_a_title(received.body) else super()._choose(received)


@pytest.mark.contract("10.34")
async def test_a_model_that_takes_too_long_for_a_title_has_failed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.agent.titles.MODEL_TIMEOUT_SECONDS", 0.05)
    async with LateForTitles(then=says("From Malta.")) as server, talking(tmp_path, server) as conversation:
        for tries in (1, 2, 3):
            await say(conversation, f"{tries} {ASKED}")
            await until(partial(has_tried, tmp_path, tries))
        await until(lambda: conversation.status.session == "1 where do the stamps come from?")


async def test_where_a_file_wants_titles_to_be_unique_the_second_gets_a_number(tmp_path: Path) -> None:
    async with talking(tmp_path, None) as conversation:
        await conversation.store.write(lambda tx: tx.execute("CREATE UNIQUE INDEX one_each ON sessions (title)"))
        await say(conversation, ASKED)
        await until(lambda: conversation.status.session == ASKED)
        await conversation.leave()
        await say(conversation, ASKED)
        await until(lambda: conversation.status.session == f"{ASKED} (2)")
    assert titles(tmp_path) == [ASKED, f"{ASKED} (2)"]


@pytest.mark.contract("10.34")
async def test_chats_get_titles_too(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> ScriptedAnswer:
        return Reply("Stamps") if request.messages[0]["content"] == PROMPT else echo_reply(request)

    async with running_core(tmp_path, script, sessions__auto_title=True) as core:
        await core.platform.deliver(message(ASKED))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        await until(lambda: titles(tmp_path) == ["Stamps"])


@pytest.mark.contract("10.34")
async def test_providers_see_titles_that_a_person_chose_and_no_automatic_ones(tmp_path: Path) -> None:
    async with talking(tmp_path, None) as conversation:
        store, people = conversation.store, open_people(conversation.app)
        await say(conversation, ASKED)
        await until(lambda: conversation.status.session == ASKED)

        async def as_memory_knows_it() -> str | None:
            def read(tx: Tx) -> str | None:
                session = store.sessions.get(tx, conversation.session_id or "")
                return earlier_conversation(people, store, tx, session).title

            return await store.read(read)

        assert await as_memory_knows_it() is None
        await run_command(conversation, "/title Malta", asyncio.Event())
        assert await as_memory_knows_it() == "Malta"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Stamps from Malta", "Stamps from Malta"),
        ('\n\n  # "Stamps from Malta."  \nmore', "Stamps from Malta"),
        ("Title: Stamps\x1b[31m", "Stamps [31m"),
        ("one two three four five six seven eight nine", "one two three four five six seven eight"),
        ("x" * 100, "x" * 60),
        ("wordwordword " * 8, "wordwordword wordwordword wordwordword wordwordword"),
        ("マルタの切手", "マルタの切手"),
        ("  \n ", ""),
        ('"."', ""),
        ("**Stamps** from `Malta`, __1850__", "Stamps from Malta, 1850"),
        ("snake_case_names and 2 * 3", "snake_case_names and 2 * 3"),
        ("Here is a title:\n**Stamps from Malta**", "Stamps from Malta"),
    ],
)
def test_a_title_is_one_short_line(text: str, title: str) -> None:
    assert clean_title(text) == title
