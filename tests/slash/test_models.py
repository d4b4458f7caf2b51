"""`/model`: another model of the same endpoint answers in a session."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes.cli.commands import AtTerminal, run_command
from hermes.cli.conversation import TerminalConversation
from hermes.errors import UsageError
from hermes.events import Notice
from hermes.slash.context import Say
from hermes.slash.models import OWNERS, STOPPED
from hermes.slash.table import complete
from hermes.store.people import mark
from tests.gateway.core import message, running_core
from tests.gateway.processes import rows
from tests.llm.loopback import Answer, LoopbackServer
from tests.slash.surfaces import ask, at_terminal, say

ECHO = Answer(echo=True)
LISTED = {"data": [{"id": "big"}, {"id": "small", "context_length": 4096}, {"id": "small:tiny"}]}


@asynccontextmanager
async def serving(listed: object = LISTED) -> AsyncIterator[LoopbackServer]:
    pages: Mapping[str, Answer] = {} if listed is None else {"/v1/models": Answer(body=json.dumps(listed))}
    async with LoopbackServer(then=ECHO, pages=pages) as server:
        yield server


@asynccontextmanager
async def talking(home: Path, server: LoopbackServer, **more: object) -> AsyncIterator[TerminalConversation]:
    settings = {"model__base_url": server.base_url, "model__default": "big", "compression__idle": 0, **more}
    async with at_terminal(home, **settings) as conversation:
        yield conversation


def asked_for(server: LoopbackServer) -> list[str]:
    """Return the models of the requests, in order."""
    return [request.body["model"] for request in server.requests]


@pytest.mark.contract("10.30")
@pytest.mark.parametrize(("settings", "tokens"), [({}, "4,096"), ({"model__context_length": 9000}, "9,000")])
async def test_context_length_comes_from_settings_else_from_the_endpoint(
    tmp_path: Path, settings: Mapping[str, object], tokens: str
) -> None:
    listed = {"data": [{"id": "small", "context_length": 4096}]}
    for name in ("small", ""):
        async with (
            serving(listed) as server,
            talking(tmp_path, server, model__default=name, **settings) as conversation,
        ):
            await say(conversation, "one")
            await ask(conversation, "/model")
            assert f"of {tokens} tokens" in await ask(conversation, "/status")
            await ask(conversation, "/new")


@pytest.mark.contract("10.5")
async def test_without_a_model_the_status_names_none_and_no_window(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        await say(conversation, "I like tea")
        lines = (await ask(conversation, "/status")).splitlines()
    assert lines[1] == "model none, answers come from memory alone"
    assert re.fullmatch(r"context ~[\d,]+ tokens, 0 compressions", lines[2])


@pytest.mark.contract("10.30")
async def test_switch_holds_from_the_next_message_on_and_after_a_restart(tmp_path: Path) -> None:
    async with serving() as server:
        async with talking(tmp_path, server) as conversation:
            await say(conversation, "one")
            told = await ask(conversation, "/model small")
            assert told.startswith("small answers in this session from your next message on.")
            assert "`hermes config set model.default NAME`" in told
            assert conversation.status.model == "small"
            await say(conversation, "two")
            first = conversation.session_id
            await ask(conversation, "/new")
            await say(conversation, "three")
            await ask(conversation, f"/resume {first}")
            await say(conversation, "four")
        async with talking(tmp_path, server) as conversation:
            await ask(conversation, f"/resume {first}")
            assert conversation.status.model == "small"
            assert "context ~" in await ask(conversation, "/status")
            await say(conversation, "five")
            assert (await ask(conversation, "/model default")).startswith("big answers")
            await say(conversation, "six")
        assert asked_for(server) == ["big", "small", "big", "small", "small", "big"]
    assert rows(tmp_path, "SELECT count(*) FROM hermes_chosen_models") == [(0,)]


@pytest.mark.contract("10.30")
async def test_compression_counts_with_the_window_of_the_model_that_answers(tmp_path: Path) -> None:
    async with serving() as server, talking(tmp_path, server) as conversation:
        for number in range(6):
            await say(conversation, f"{number} {'stamps from Malta ' * 60}")
        await ask(conversation, "/model small")
        assert "of 4,096 tokens" in await ask(conversation, "/status")
        assert rows(tmp_path, "SELECT 1 FROM hermes_compressions") == []
        await say(conversation, "and now?")
    assert rows(tmp_path, "SELECT count(*) FROM hermes_compressions") == [(1,)]


@pytest.mark.contract("10.30")
async def test_a_model_chosen_before_the_first_message_answers_it(tmp_path: Path) -> None:
    async with serving() as server, talking(tmp_path, server) as conversation:
        await ask(conversation, "/model small")
        assert conversation.status.model == "small"
        await say(conversation, "one")
        assert asked_for(server) == ["small"]


@pytest.mark.contract("10.30")
async def test_a_name_that_is_not_listed_is_refused_with_those_near_it(tmp_path: Path) -> None:
    async with serving() as server, talking(tmp_path, server) as conversation:
        with pytest.raises(UsageError, match=r"has no model 'smal' \(did you mean small or small:tiny\?\)"):
            await ask(conversation, "/model smal")
        with pytest.raises(UsageError, match=r"has no model 'bgi' \(did you mean big\?\)"):
            await ask(conversation, "/model bgi")
        for wrong in ("x" * 201, "two words"):
            with pytest.raises(UsageError, match="cannot be a model's name"):
                await ask(conversation, f"/model {wrong}")
        await say(conversation, "one")
        assert asked_for(server) == ["big"]


@pytest.mark.contract("10.30")
async def test_an_endpoint_without_a_list_is_believed_with_a_remark(tmp_path: Path) -> None:
    for listed in ("none", "empty"):
        async with (
            serving(None if listed == "none" else {"data": []}) as server,
            talking(tmp_path / listed, server) as conversation,
        ):
            assert "could not be checked" in await ask(conversation, "/model anything")
            await say(conversation, "one")
            assert asked_for(server) == ["anything"]


async def test_without_a_name_the_one_that_answers_and_the_list_are_shown(tmp_path: Path) -> None:
    async with serving() as server, talking(tmp_path, server) as conversation:
        shown = (await ask(conversation, "/model")).splitlines()
        assert shown[0] == "The default, big, answers."
        assert shown[1:5] == [f"{server.base_url} has:", "  big", "  small · 4,096 tokens", "  small:tiny"]
        await say(conversation, "one")
        await ask(conversation, "/model small")
        assert (await ask(conversation, "/model")).startswith("small answers here (4,096 tokens); the default is big.")


async def test_a_long_list_is_cut_and_says_so(tmp_path: Path) -> None:
    names = {"data": [{"id": f"m{number:05}"} for number in range(20_000)]}
    async with serving(names) as server, talking(tmp_path, server) as conversation:
        shown = (await ask(conversation, "/model")).splitlines()
        assert len(shown) == 44
        assert "  … and 19,960 more, which Tab completes" in shown
        here = AtTerminal(conversation, asyncio.Event())
        assert len(await complete(here, "/model m")) == 500
        assert await complete(here, "/model m19999") == [("m19999", "")]


@pytest.mark.contract("10.50")
async def test_endpoints_first_chat_model_is_the_default_without_a_configured_one(tmp_path: Path) -> None:
    listed = {"data": [{"id": "embed"}, {"id": "tea-2"}, {"id": "tea-1"}]}
    async with serving(listed) as server, talking(tmp_path, server, model__default="") as conversation:
        assert conversation.status.model == "", "nobody has asked yet"
        assert (await ask(conversation, "/model default")).startswith("tea-2 answers from your next message on")
        assert conversation.status.model == "tea-2"
        await ask(conversation, "/model tea-1")
        assert (await ask(conversation, "/model")).startswith("tea-1 will answer; the default is tea-2.")
        assert not [
            event async for event in conversation.take_turn(Say("one"), asyncio.Event()) if isinstance(event, Notice)
        ]
        await ask(conversation, "/model default")
        await say(conversation, "two")
        assert asked_for(server) == ["tea-1", "tea-2"]
    async with serving(None) as server, talking(tmp_path, server, model__default="") as conversation:
        assert (await ask(conversation, "/model default")).startswith("The endpoint's first model answers")


@pytest.mark.contract("10.30", "10.54")
async def test_names_are_completed_from_one_list_that_many_keystrokes_share(tmp_path: Path) -> None:
    async with serving() as server, talking(tmp_path, server) as conversation:
        here = AtTerminal(conversation, asyncio.Event())
        given_up = asyncio.create_task(complete(here, "/model s"))
        await asyncio.sleep(0)
        given_up.cancel()
        found = await asyncio.gather(*(complete(here, f"/model {typed}") for typed in ("sm", "sma")))
        assert found == [[("small", "4,096 tokens"), ("small:tiny", "")]] * 2
        assert [name for name, _ in await complete(here, "/model TINY")] == ["small:tiny"]
        assert server.connections == 1
    async with serving(None) as server, talking(tmp_path, server) as conversation:
        assert await complete(AtTerminal(conversation, asyncio.Event()), "/model s") == []


async def test_an_endpoint_that_does_not_say_can_be_left(tmp_path: Path) -> None:
    pages = {"/v1/models": Answer(body="{}", delay=600.0)}
    async with LoopbackServer(then=ECHO, pages=pages) as server, talking(tmp_path, server) as conversation:
        await say(conversation, "one")
        stop = asyncio.Event()
        asking = asyncio.create_task(run_command(conversation, "/model small", stop))
        asyncio.get_running_loop().call_later(0.1, stop.set)
        assert (await asking).text == STOPPED
        await say(conversation, "two")
        assert asked_for(server) == ["big", "big"]


async def test_another_endpoint_is_not_asked_for_a_model_of_the_last_one(tmp_path: Path) -> None:
    async with serving() as server, talking(tmp_path, server) as conversation:
        await say(conversation, "one")
        await ask(conversation, "/model small")
        first = conversation.session_id
    async with serving() as other, talking(tmp_path, other) as conversation:
        await ask(conversation, f"/resume {first}")
        await say(conversation, "two")
        assert asked_for(other) == ["big"]


@pytest.mark.contract("10.30")
async def test_in_a_chat_the_owner_switches_and_nobody_else(tmp_path: Path) -> None:
    async with serving() as server:
        async with running_core(tmp_path, model__base_url=server.base_url, model__default="big") as core:
            await core.store.write(lambda tx: mark(tx, "fake", "olga", is_owner=True, now=0.0))
            for number, (text, who) in enumerate([("/model small", "ann"), ("/model small", "olga"), ("hi", "olga")]):
                await core.platform.deliver(message(text, who, author=who))
                await core.platform.until(lambda wanted=number + 1: len(core.platform.sent) == wanted)  # type: ignore[misc]
            assert core.platform.texts("ann") == [OWNERS]
            switched, reply = core.platform.texts("olga")
            assert switched.startswith("small answers in this session")
            assert reply == "hi"
            assert asked_for(server) == ["small"]
