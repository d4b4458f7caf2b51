"""`hermes memory status` and `outbox list`: the chosen provider, its health, and its queue."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.cli.memory import server_lines
from hermes.db.queue import FAILED
from hermes.memory.registry import NONE_CHOSEN
from hermes.types import Json
from tests.conftest import Ran
from tests.memory.page import install

Hermes = Callable[..., Ran]
BROKEN = """
from hermes.memory.provider import MemoryPlugin

class Broken(MemoryPlugin):
    name = "broken"
    def is_available(self):
        raise RuntimeError("no server at http://me:secret@here")
    def address(self, place): ...
    def open(self, conversation, address): ...
    async def deliver(self, entries, until): ...

create_plugin = Broken
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a single question wait for its deliveries, however slow the machine is."""
    monkeypatch.setattr("hermes.cli.chat.ONE_SHOT_CLOSE_SECONDS", 60.0)


@pytest.mark.contract("4.17", "P5")
def test_without_a_provider_nothing_waits(hermes: Hermes) -> None:
    ran = hermes("memory", "status")
    assert ran.code == 0
    assert ran.out.startswith("provider  none\nserver    not running")
    listed = hermes("memory", "outbox", "list")
    assert (listed.code, listed.err) == (0, "The outbox is empty.\n")
    delivered = hermes("memory", "outbox", "deliver")
    assert (delivered.code, NONE_CHOSEN in delivered.err) == (2, True)


@pytest.mark.contract("4.3", "P5")
def test_a_provider_that_does_not_start_is_said_without_its_password(home: Path, hermes: Hermes) -> None:
    install(home, "broken", BROKEN)
    ran = hermes("memory", "status")
    assert ran.code == 1
    assert "provider  broken (failing)" in ran.out
    assert "is_available failed: RuntimeError: no server at" in ran.out
    assert "secret" not in ran.out
    told = json.loads(hermes("memory", "status", "--json").out)
    assert (told["provider"], told["outbox"]) == ("broken", None)


@pytest.mark.contract("10.40")
def test_a_provider_that_does_not_list_what_it_holds_is_said_once_beside_the_notes(home: Path, hermes: Hermes) -> None:
    install(home, "broken", BROKEN)
    (home / "memories").mkdir()
    (home / "memories" / "USER.md").write_text("likes figs", encoding="utf-8")
    listed = hermes("memory", "list")
    assert "likes figs" in listed.out
    [said] = listed.err.splitlines()
    assert said.startswith("hermes: what broken holds is not shown: is_available failed: RuntimeError: no server at")
    assert "secret" not in said
    assert (listed.code, hermes("memory", "list", "--json").code) == (1, 1)


@pytest.mark.contract("10.40")
def test_a_provider_that_does_not_list_what_it_holds_is_not_told_as_nothing(home: Path, hermes: Hermes) -> None:
    assert "Memory is empty." in hermes("memory", "list").err
    install(home, "broken", BROKEN)
    listed = hermes("memory", "list")
    assert (listed.code, listed.out) == (1, "")
    assert "Memory is empty." not in listed.err


@pytest.mark.contract("4.17")
def test_the_example_works_and_what_it_was_told_is_counted(home: Path, hermes: Hermes) -> None:
    install(home)
    assert hermes("chat", "-q", "I like figs").code == 0
    told = json.loads(hermes("memory", "status", "--json").out)
    assert (told["problem"], told["outbox"]["waiting"], told["outbox"]["put_aside"]) == (None, 0, 0)
    assert told["outbox"]["last_success"] is not None
    assert f"0 waiting, 0 {FAILED}, last delivered" in hermes("memory", "status").out
    assert hermes("memory", "outbox", "deliver").code == 0


@pytest.mark.contract("9.9")
def test_status_names_work_of_the_memory_server_that_keeps_failing() -> None:
    lag = {"waiting_jobs": 1, "oldest_job_seconds": 9, "retried": {"representation": 7}}
    facts = {"url": "u", "pid": 1, "version": "v", "kind": "background", "started_at": 0.0, "folder": "f"}
    for more, told in (({"reasons": {"representation": "ValueError"}}, "ValueError"), ({}, "?")):
        health = {"status": "ok", "lag": {**lag, **more}}
        lines = server_lines({**facts, "problem": None, "running": True, "health": health})
        assert lines[-1].strip() == f"not done yet: representation tried 7 times ({told})"


@pytest.mark.contract("9.9")
@pytest.mark.parametrize(("waiting", "told"), [(0, "no jobs wait; 2.0 GB"), (3, "3 jobs wait, the oldest for 9.5 s;")])
def test_status_names_the_oldest_job_only_where_one_waits(waiting: int, told: str) -> None:
    facts = {"url": "u", "pid": 1, "version": "v", "kind": "background", "started_at": 0.0, "folder": "f"}
    lag = {"waiting_jobs": waiting, "oldest_job_seconds": 9.5 * bool(waiting)}
    health = {"status": "ok", "lag": lag, "disk_free_bytes": 2e9}
    assert told in server_lines({**facts, "problem": None, "running": True, "health": health})[1]


def test_a_provider_elsewhere_is_not_called_our_own_server(home: Path, hermes: Callable[..., Ran]) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("memory:\n  provider: honcho\n", encoding="utf-8")
    (home / "honcho.json").write_text('{"baseUrl": "http://127.0.0.1:9"}', encoding="utf-8")
    told = hermes("memory", "status").out + hermes("memory", "list").err
    assert "self-hosted at http://127.0.0.1:9" in told
    assert "our own" not in told


@pytest.mark.contract("9.3", "P5")
def test_status_names_the_model_of_the_memory_server_and_what_waits_for_it() -> None:
    facts = {"url": "u", "pid": 1, "version": "v", "kind": "background", "started_at": 0.0, "folder": "f"}
    today = {"summary": {"calls": 3, "failures": 1, "tokens": 1200, "milliseconds": 9}}
    failed = {"kind": "refused", "at": "2026-11-18T17:00:00Z"}
    model: dict[str, Json] = {
        "name": "tea-1",
        "class": "point",
        "state": "down",
        "last_failure": failed,
        "today": today,
    }
    model |= {"cap_calls": 2000, "cap_tokens": 5000, "waiting": {"summary": 2}}
    health = {"status": "ok", "lag": {}, "model": model}
    said = "\n".join(server_lines({**facts, "problem": None, "running": True, "health": health}))
    assert "model tea-1, down, class point: 3 calls and 1,200 tokens today" in said
    assert "caps 2,000 and 5,000 per workspace), last failure refused at 2026-11-18T17:00:00Z" in said
    assert "waiting for the model: 2 summary" in said
