"""`/usage`: tokens by model, as the endpoint counts them or estimated."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from hermes.store.usage import NOTHING
from tests.gateway.processes import rows
from tests.llm.loopback import LoopbackServer, says
from tests.slash.surfaces import ask, at_terminal, say

CALL = [("session_search", '{"query": "stamps"}')]


def counted(prompt: int, completion: int, cached: int = 0) -> dict[str, object]:
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, "completion_tokens": completion, **details}


@pytest.mark.contract("10.33")
async def test_endpoints_token_counts_are_summed_by_model_across_restarts(tmp_path: Path) -> None:
    answers = [
        says(calls=CALL, usage=counted(100, 10)),
        says("found", usage=counted(200, 20, cached=90)),
        says("of the other", usage=counted(1000, 5)),
    ]
    async with LoopbackServer(answers) as server:
        settings = {"model__base_url": server.base_url, "model__default": "big", "compression__idle": 0}
        async with at_terminal(tmp_path, **settings) as conversation:
            await say(conversation, "look for stamps")
            told = (await ask(conversation, "/usage")).splitlines()
            assert told[0] == "1 turn, 0 compressions"
            assert re.fullmatch(r"window ~\d,?\d+ of 128,000 tokens \(\d %\)", told[1])
            assert told[1].removeprefix("window ") in await ask(conversation, "/status")
            assert told[2] == "big: 2 requests, 300 tokens in (90 of them from its cache), 30 out"
            await ask(conversation, "/model small")
            await say(conversation, "and you?")
            session = conversation.session_id
        async with at_terminal(tmp_path, **settings) as conversation:
            await ask(conversation, f"/resume {session}")
            told = (await ask(conversation, "/usage")).splitlines()
            assert told[2:5] == [
                "small: 1 request, 1,000 tokens in, 5 out",
                "big: 2 requests, 300 tokens in (90 of them from its cache), 30 out",
                "in all: 3 requests, 1,300 tokens in (90 of them from its cache), 35 out",
            ]


@pytest.mark.contract("10.33")
async def test_what_the_endpoint_does_not_count_is_estimated_and_said(tmp_path: Path) -> None:
    async with LoopbackServer([says("four words of text"), says("more", usage=counted(7, 3))]) as server:
        settings = {"model__base_url": server.base_url, "model__default": "big", "compression__idle": 0}
        async with at_terminal(tmp_path, **settings) as conversation:
            await say(conversation, "one")
            assert "~5 out; all of them estimated" in await ask(conversation, "/usage")
            await say(conversation, "two")
            assert "~8 out; 1 of them estimated" in await ask(conversation, "/usage")


@pytest.mark.contract("10.33")
async def test_tokens_counted_by_another_version_are_shown_separately(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        await say(conversation, "hello")
        session = conversation.session_id
        assert (await ask(conversation, "/usage")).endswith(NOTHING)
    with sqlite3.connect(tmp_path / "state.db") as file:
        for column in ("input_tokens", "output_tokens"):
            file.execute(f"ALTER TABLE sessions ADD COLUMN {column} INTEGER DEFAULT 0")
        file.execute("UPDATE sessions SET input_tokens = 5000, output_tokens = 60")
    file.close()
    async with at_terminal(tmp_path) as conversation:
        await ask(conversation, f"/resume {session}")
        assert "another version counted 5,000 in, 60 out" in await ask(conversation, "/usage")
    assert rows(tmp_path, "SELECT count(*) FROM hermes_usage") == [(0,)]
