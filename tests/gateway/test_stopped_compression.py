"""`/stop` during `/compress`: the compression ends, and the conversation is unchanged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from hermes.compression.summarise import PROMPT
from hermes.llm.events import Completed, Reply, TextPiece
from hermes.llm.model import ModelRequest
from hermes.slash.acts import NOT_COMPRESSED
from tests.compression.checks import check_lines, read_lines
from tests.gateway.asking import ask, ask_async, in_session, reply
from tests.gateway.core import echo, message, running_core
from tests.gateway.processes import GatewayProcess, LoopbackModel, api_settings, echo_model, rows, write_config
from tests.llm.scripted import ScriptedAnswer
from tests.plain_http import PLAIN

pytestmark = pytest.mark.contract("2.6", "3.5", "3.9")
PADDING = "stamps from Malta " * 60
TURNS = 8


def is_summary(text: object) -> bool:
    return str(text).startswith(PROMPT[:40])


def _summaries(model: LoopbackModel) -> int:
    return sum(is_summary(asked[0]["content"]) for asked in model.requests())


@pytest.mark.processes
async def test_stopped_compression_over_http_removes_nothing_and_reports_it(empty_home: Path) -> None:
    with echo_model(summary=60.0) as model:
        write_config(empty_home, api_settings(model))
        with GatewayProcess(empty_home) as gateway:
            for number in range(TURNS):
                ask(gateway.url, f"{number} {PADDING}", headers=in_session("s"))
            before = rows(empty_home, "SELECT * FROM messages ORDER BY id")
            async with httpx.AsyncClient(verify=PLAIN) as client:
                compressing = asyncio.create_task(
                    ask_async(client, gateway.url, "/compress stamps", headers=in_session("s"))
                )
                while not _summaries(model):
                    assert not compressing.done(), "nothing was compressed"
                    await asyncio.sleep(0.02)
                stopped = await ask_async(client, gateway.url, "/stop", headers=in_session("s"))
                assert reply(stopped) == "Stopped."
                assert reply(await compressing) == NOT_COMPRESSED
                assert rows(empty_home, "SELECT * FROM messages ORDER BY id") == before
                held = "SELECT 1 FROM hermes_leases WHERE name LIKE 'compression:%' AND owner IS NOT NULL"
                assert rows(empty_home, held) == []
                await ask_async(client, gateway.url, "and now?", headers=in_session("s"))
            gateway.stop()
            seen = [m["content"][0] for m in model.requests()[-1] if m["role"] == "user"]
        assert seen == [*map(str, range(TURNS)), "a"]
    assert rows(empty_home, "SELECT 1 FROM hermes_compressions") == []
    lines = read_lines((empty_home / "logs" / "agent.log").read_text(encoding="utf-8"))
    assert check_lines(lines) == []
    assert len(lines) == 2


async def test_stopped_compression_is_reported_and_waiting_messages_are_answered(tmp_path: Path) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    def script(request: ModelRequest) -> ScriptedAnswer:
        if not is_summary(request.messages[0]["content"]):
            return echo(request)
        asked.set()
        return [TextPiece("They"), never, Completed(Reply("They talked."))]

    async with running_core(tmp_path, script) as core:
        for number in range(TURNS):
            await core.platform.deliver(message(f"{number} {PADDING}"))
            await core.platform.until(lambda count=number + 1: len(core.platform.sent) == count)  # type: ignore[misc]
        await core.platform.deliver(message("/compress"))
        await asked.wait()
        await core.platform.deliver(message("after it"))
        await core.platform.deliver(message("/stop"))
        await core.platform.until(lambda: len(core.platform.sent) == TURNS + 3)
        assert sorted(core.platform.texts("7")[TURNS:]) == sorted(["Stopped.", NOT_COMPRESSED, "echo: after it"])
        assert len(core.asked()) == TURNS + 1
    assert rows(tmp_path, "SELECT 1 FROM hermes_compressions") == []
