"""`hermes memory approve` and `clients`: what the owner of a memory server types and reads."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest

from hermes.cli.memory_clients import NO_REQUEST
from hermes.clock import SystemClock
from hermes.memory_server import times
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.engine.grants import TokenKey
from hermes.memory_server.engine.sign_ins import begin_on_device, has_approval, label_of, list_open
from tests.cli.screen import Screen
from tests.conftest import Ran
from tests.memory_server.serving import SECRET
from tests.memory_server.signing import LoopbackClient, consent_form, parameters_of
from tests.plain_http import PLAIN

pytestmark = pytest.mark.contract("8.5")
Cli = Callable[..., Ran]
KEY = TokenKey(SECRET, 3600)


def waiting(folder: Path, number: int) -> list[Record]:
    """Create sign-in requests of `count` devices, newest first."""

    def begin(tx: Tx) -> list[Record]:
        at = times.now(SystemClock())
        for _ in range(number):
            begin_on_device(tx, KEY, "honcho-cli", "", "192.0.2.7", at)
        return list(list_open(tx, at))

    async def run() -> list[Record]:
        database = open_database(folder)
        try:
            return await database.write(begin)
        finally:
            await database.close()

    return asyncio.run(run())


def fits(folder: Path, request: Record, code: str) -> bool:
    """Return True if the code approves a request now."""

    async def run() -> bool:
        database = open_database(folder)
        try:
            rows = await database.read(lambda tx: list_open(tx, request.created_at))
            current = next(row for row in rows if row.id == request.id)
            return await database.read(partial(has_approval, sign_in=current, code=code))
        finally:
            await database.close()

    return asyncio.run(run())


def test_approve_prints_the_code_of_the_only_request(hermes: Cli, tmp_path: Path) -> None:
    [request] = waiting(tmp_path, 1)
    first = hermes("memory", "approve", "--data", str(tmp_path))
    assert re.fullmatch(r"[A-Z]{4}-[A-Z]{4}\n", first.out)
    assert label_of(request) in first.err
    assert "honcho-cli" in first.err
    assert "192.0.2.7" in first.err
    assert fits(tmp_path, request, first.out)
    again = json.loads(hermes("memory", "approve", "--data", str(tmp_path), "--json").out)
    assert (again["request"], again["client"]) == (label_of(request), "honcho-cli")
    assert fits(tmp_path, request, again["code"])
    assert not fits(tmp_path, request, first.out)


def test_one_of_several_requests_has_to_be_named(hermes: Cli, tmp_path: Path) -> None:
    newest, other = waiting(tmp_path, 2)
    unnamed = hermes("memory", "approve", "--data", str(tmp_path))
    assert unnamed.code == 2
    assert unnamed.out == ""
    assert label_of(newest) in unnamed.err
    assert label_of(other) in unnamed.err
    named = hermes("memory", "approve", label_of(other).lower(), "--data", str(tmp_path))
    assert fits(tmp_path, other, named.out)
    assert not fits(tmp_path, newest, named.out)


def test_without_a_request_or_a_memory_the_reason_is_told(hermes: Cli, tmp_path: Path) -> None:
    missing = hermes("memory", "approve", "--data", str(tmp_path / "none"))
    assert (missing.code, "there is no memory in" in missing.err) == (2, True)
    assert not (tmp_path / "none").exists()
    waiting(tmp_path, 0)
    nobody = hermes("memory", "approve", "--data", str(tmp_path))
    assert (nobody.code, NO_REQUEST in nobody.err) == (2, True)
    assert hermes("memory", "clients", "grants", "--data", str(tmp_path)).code == 0
    listed = json.loads(hermes("memory", "clients", "list", "--data", str(tmp_path), "--json").out)
    assert [client["name"] for client in listed] == ["hermes-agent", "honcho-cli"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AUTH_PUBLIC_URL", "memory.example"),
        ("AUTH_PUBLIC_URL", "https://memory.example/path"),
        ("AUTH_PUBLIC_URL", "https://me@memory.example"),
        ("AUTH_ACCESS_SECONDS", "0"),
        ("AUTH_ACCESS_SECONDS", "an hour"),
        ("AUTH_ACCESS_SECONDS", "9" * 30),
    ],
)
def test_wrong_variable_of_signing_in_is_named(
    hermes: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    ran = hermes("memory", "serve", "--port", "0", "--data", str(tmp_path))
    assert (ran.code, name in ran.err) == (2, True)


@pytest.mark.processes
def test_terminal_of_the_server_shows_the_code_of_each_request(tmp_path: Path) -> None:
    env = {"HERMES_HOME": str(tmp_path), "AUTH_USE_AUTH": "true", "AUTH_JWT_SECRET": SECRET, "PATH": os.environ["PATH"]}
    data = str(tmp_path / "memory")
    with Screen("memory", "serve", "--port", "0", "--data", data, env=env) as screen:
        found = re.search(r"http://127\.0\.0\.1:\d+", "\n".join(screen.wait_for("memory server on").rows))
        assert found
        with httpx.Client(base_url=found[0], verify=PLAIN) as browser:
            page = browser.get(LoopbackClient().link(found[0])).text
            assert "The server's terminal shows it" in page
            shown = re.search(r"one-time code (\S+)", "\n".join(screen.wait_for("one-time code").rows))
            assert shown
            answer = browser.post("/authorize", data=consent_form(page, shown[1]), headers={"Origin": found[0]})
            assert parameters_of(answer)["code"]
