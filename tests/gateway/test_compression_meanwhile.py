"""Messages that arrive while a conversation is being compressed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from hermes.compression.summarise import PROMPT
from tests.gateway.asking import ask, ask_async, in_session, reply
from tests.gateway.processes import (
    GatewayProcess,
    LoopbackModel,
    api_settings,
    appears,
    echo_model,
    rows,
    said,
    write_config,
)
from tests.plain_http import PLAIN

pytestmark = pytest.mark.processes

LATE_MESSAGES = 40
PADDING = "stamps from Malta " * 150


@pytest.mark.contract("2.4", "3.5", "P1", "P3")
async def test_messages_during_a_compression_reach_the_model_once_and_in_order(empty_home: Path) -> None:
    with echo_model() as model:
        write_config(empty_home, api_settings(model, model__context_length=8000))
        with GatewayProcess(empty_home) as gateway:
            for number in range(3):
                ask(gateway.url, f"long {number} {PADDING}", headers=in_session("s"))
            assert not _summaries(model)
            model.hold()
            async with httpx.AsyncClient(verify=PLAIN) as client:
                trigger = asyncio.create_task(
                    ask_async(client, gateway.url, f"trigger {PADDING}", headers=in_session("s"))
                )
                while not _summaries(model):
                    assert not trigger.done(), "no compression was triggered"
                    await asyncio.sleep(0.02)
                asked = []
                for number in range(LATE_MESSAGES):
                    headers = in_session("s", f"late-{number}")
                    asked.append(asyncio.create_task(ask_async(client, gateway.url, f"late {number}", headers=headers)))
                    await appears(empty_home, "SELECT 1 FROM hermes_queue WHERE key LIKE ?", f'%"late-{number}"]')
                model.go_on()
                assert reply(await trigger) == f"echo: trigger {PADDING}"
                answers = [await answer for answer in asked]
        requests = [_late(request) for request in model.requests() if request not in _summaries(model)]
    # Each request to the model holds every late message so far, in order and once.
    assert [seen for seen in requests if seen] == [
        [f"late {number}" for number in range(upto + 1)] for upto in range(LATE_MESSAGES)
    ]
    assert [reply(answer) for answer in answers] == [f"echo: late {number}" for number in range(LATE_MESSAGES)]
    assert {answer.headers["x-hermes-session-id"] for answer in answers} == {"s"}
    assert said(empty_home, "s")[-LATE_MESSAGES:] == [f"late {number}" for number in range(LATE_MESSAGES)]
    assert rows(empty_home, "SELECT count(*) FROM hermes_compressions WHERE session_id = 's'") == [(1,)]


def _summaries(model: LoopbackModel) -> list[list[dict[str, str]]]:
    return [asked for asked in model.requests() if asked[0]["content"].startswith(PROMPT[:40])]


def _late(request: list[dict[str, str]]) -> list[str]:
    return [m["content"] for m in request if m["role"] == "user" and m["content"].startswith("late ")]
