"""The scripted server as a program, and the cost of importing a model before it is called."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from hermes.llm.connection import Timeouts
from hermes.types import Json
from tests.llm.calling import REQUEST, complete, fail, model_at

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


async def test_the_server_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    script: Json = {
        "answers": [
            {"says": {"text": "one", "calls": [["read", "{}"]], "usage": {"prompt_tokens": 2}}},
            {"fails": {"status": 404, "message": "gone"}},
        ],
        "then": {"echo": True},
    }
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.llm.loopback", "--port", "0", "--script", path, stdout=PIPE, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        port = json.loads(await process.stdout.readline())["port"]
        model = model_at(f"http://127.0.0.1:{port}/v1", timeouts=Timeouts(first_byte=20))
        reply = await complete(model)
        assert (reply.text, reply.tool_calls[0].name) == ("one", "read")
        assert "gone" in (await fail(model)).message
        assert (await complete(model)).text == REQUEST.messages[0]["content"]
    finally:
        process.terminate()
        await process.communicate()


def test_a_program_that_only_holds_a_model_has_not_imported_the_http_library() -> None:
    code = (
        "import sys, hermes.llm.openai_compatible as o, hermes.llm.discover, hermes.llm.tokens;"
        "o.OpenAICompatible('http://127.0.0.1/v1', 'm', context_length=1);"
        "print([name for name in ('httpx', 'anyio', 'openai') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
