"""`hermes memory outbox retry` and `drop`: failed entries are retried or removed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.cli.outbox import LEASE, PUT_ASIDE
from hermes.cli.sessions import FORGETS_LATER
from hermes.clock import SystemClock
from hermes.db import leases
from hermes.db.leases import new_owner
from hermes.db.queue import FAILED
from hermes.store.store import Store
from tests.conftest import Ran
from tests.memory.page import install

Hermes = Callable[..., Ran]
CHOOSY = """
from hermes.memory.provider import Address, DeadLetter, Delivered, MemoryPlugin, MemorySession, Recalled

class Nothing(MemorySession):
    async def recall(self, question):
        return Recalled()

class Choosy(MemoryPlugin):
    name = "choosy"
    def is_available(self):
        return True
    def address(self, place):
        return Address("all")
    def open(self, conversation, address):
        return Nothing()
    async def deliver(self, entries, until):
        taken = self.host.home / "taken"
        if not taken.exists():
            return [DeadLetter("no room") for _ in entries]
        with taken.open("a") as file:
            file.writelines(f"{entry.text or entry.kind}\\n" for entry in entries)
        return [Delivered() for _ in entries]

create_plugin = Choosy
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a single question wait for its deliveries, however slow the machine is."""
    monkeypatch.setattr("hermes.cli.chat.ONE_SHOT_CLOSE_SECONDS", 60.0)
    monkeypatch.setattr("hermes.cli.sessions.FORGET_TIMEOUT_SECONDS", 60.0)


def entries(hermes: Hermes) -> list[dict[str, Any]]:
    listed = json.loads(hermes("memory", "outbox", "list", "--json").out)
    return [entry for provider in listed for entry in provider["entries"]]


@pytest.mark.contract("6.4", "6.9")
def test_dead_letters_are_retried_or_dropped_by_id(home: Path, hermes: Hermes) -> None:
    install(home, "choosy", CHOOSY)
    for text in ("figs", "dates", "plums", "pears"):
        assert hermes("chat", "-q", f"I like {text}").code == 0
    aside = entries(hermes)
    assert {(entry["state"], entry["reason"]) for entry in aside} == {(PUT_ASIDE, "no room")}
    assert len(aside) == 4
    told = json.loads(hermes("memory", "status", "--json").out)["outbox"]
    assert (told["waiting"], told["put_aside"], told["last_error"]) == (0, 4, "no room")
    dropped = hermes("memory", "outbox", "drop", str(aside[0]["id"]), str(aside[1]["id"]))
    assert (dropped.code, dropped.err) == (0, "2 entries dropped.\n")
    assert json.loads(hermes("memory", "outbox", "retry", str(aside[2]["id"]), "--json").out) == {
        "retried": [aside[2]["id"]]
    }
    assert [entry["state"] for entry in entries(hermes)] == ["waiting", PUT_ASIDE]
    assert hermes("memory", "outbox", "retry").err == "1 entry retried.\n"
    (home / "taken").touch()
    assert hermes("memory", "outbox", "deliver").code == 0
    [first, _] = (home / "taken").read_text().splitlines()
    assert first == "I like plums"
    assert entries(hermes) == []
    assert json.loads(hermes("memory", "status", "--json").out)["outbox"]["last_success"] is not None


@pytest.mark.contract("6.4")
def test_an_entry_that_is_not_there_changes_nothing(home: Path, hermes: Hermes) -> None:
    install(home, "choosy", CHOOSY)
    for text in ("figs", "dates"):
        assert hermes("chat", "-q", f"I like {text}").code == 0
    [one, _] = entries(hermes)
    ran = hermes("memory", "outbox", "drop", str(one["id"]), "999")
    assert (ran.code, f"there is no entry 999 that waits or {FAILED}" in ran.err) == (1, True)
    assert len(entries(hermes)) == 2
    ran = hermes("memory", "outbox", "retry", "999")
    assert f"there is no entry 999 that {FAILED}" in ran.err


@pytest.mark.contract("6.13")
def test_deleting_a_session_says_what_stays_with_the_provider_or_has_it_forgotten(home: Path, hermes: Hermes) -> None:
    install(home, "choosy", CHOOSY)
    (home / "taken").touch()
    for text in ("figs", "dates"):
        assert hermes("chat", "-q", f"I like {text}").code == 0
    first, second = (one["id"] for one in json.loads(hermes("sessions", "list", "--json").out))
    ran = hermes("sessions", "delete", first, "--yes")
    assert "Messages synced to choosy stay there; --everywhere has them forgotten too." in ran.out
    assert entries(hermes) == []
    ran = hermes("sessions", "delete", second, "--yes", "--everywhere")
    assert "choosy is asked to forget it" in ran.out
    assert (home / "taken").read_text().splitlines()[-1] == "forget", "it was told before the command ended"
    assert entries(hermes) == []


@pytest.mark.contract("6.13")
def test_a_deletion_that_cannot_be_delivered_now_is_left_to_another_process(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = 'if (self.host.home / "away").exists():\n            return [Later("away", after=3600) for _ in entries]'
    source = CHOOSY.replace("DeadLetter, Delivered", "DeadLetter, Later, Delivered")
    install(home, "choosy", source.replace("taken = self", f"{away}\n        taken = self"))
    (home / "taken").touch()
    assert hermes("chat", "-q", "I like figs").code == 0
    [session] = json.loads(hermes("sessions", "list", "--json").out)
    (home / "away").touch()
    started: list[Path] = []
    monkeypatch.setattr("hermes.cli.outbox.start_deliverer", lambda app: started.append(app.home.path))
    monkeypatch.setattr("hermes.cli.sessions.FORGET_TIMEOUT_SECONDS", 0.0)
    ran = hermes("sessions", "delete", session["id"], "--yes", "--everywhere")
    assert (ran.code, "Deleted." in ran.out) == (0, True)
    assert FORGETS_LATER in ran.err
    assert started == [home]
    [wish] = entries(hermes)
    assert (wish["kind"], wish["state"], wish["session_id"]) == ("forget", "waiting", None)
    (home / "away").unlink()


@pytest.mark.contract("6.13")
def test_a_wish_to_forget_of_a_provider_that_is_not_chosen_now_is_said_to_wait(home: Path, hermes: Hermes) -> None:
    install(home, "choosy", CHOOSY)
    (home / "taken").touch()
    assert hermes("chat", "-q", "I like figs").code == 0
    [session] = json.loads(hermes("sessions", "list", "--json").out)
    assert hermes("config", "set", "memory.provider", "none").code == 0
    ran = hermes("sessions", "delete", session["id"], "--yes", "--everywhere")
    assert (ran.code, "Deleted." in ran.out) == (0, True)
    assert "choosy is not the chosen memory provider: it forgets this when it is chosen again." in ran.err


@pytest.mark.contract("6.13")
def test_a_provider_that_takes_no_wish_to_forget_is_named(home: Path, hermes: Hermes) -> None:
    install(home, "choosy", CHOOSY.replace('Address("all")', 'Address("all", wants=frozenset({"said", "reply"}))'))
    (home / "taken").touch()
    for text in ("figs", "dates"):
        assert hermes("chat", "-q", f"I like {text}").code == 0
    first, second = (one["id"] for one in json.loads(hermes("sessions", "list", "--json").out))
    ran = hermes("sessions", "delete", first, "--yes", "--everywhere")
    assert "choosy cannot forget on request: messages synced to it stay there." in ran.out
    assert json.loads(hermes("sessions", "delete", second, "--yes", "--everywhere", "--json").out)["stays_with"] == [
        "choosy"
    ]
    assert entries(hermes) == []


@pytest.mark.contract("P5")
def test_what_does_not_arrive_is_said_by_status_and_doctor(home: Path, hermes: Hermes) -> None:
    install(home, "choosy", CHOOSY)
    assert hermes("chat", "-q", "I like figs").code == 0
    status, doctor = hermes("memory", "status"), hermes("doctor")
    assert (status.code, "failing since" in status.out) == (1, True)
    told = " ".join(doctor.out.split())
    assert (doctor.code, "deliveries to choosy have failed since" in told, "no room" in told) == (
        1,
        True,
        True,
    )
    (home / "taken").touch()
    hermes("memory", "outbox", "retry")
    assert hermes("memory", "outbox", "deliver").code == 0
    assert (hermes("memory", "status").code, hermes("doctor").code) == (0, 0)


def test_a_person_who_asks_for_delivery_gets_it_though_another_process_does_that_too(
    home: Path, hermes: Hermes
) -> None:
    install(home, "choosy", CHOOSY)
    assert hermes("chat", "-q", "I like figs").code == 0
    hermes("memory", "outbox", "retry")
    (home / "taken").touch()

    async def hold() -> None:
        async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
            now = store.clock.now()
            assert await store.write(lambda tx: leases.acquire(tx, LEASE, new_owner(), ttl=600, now=now))

    asyncio.run(hold())
    beside = hermes("memory", "outbox", "deliver", "--unless-running")
    assert (beside.code, "Another process is delivering" in beside.err, len(entries(hermes))) == (0, True, 1)
    ran = hermes("memory", "outbox", "deliver")
    assert (ran.code, ran.err) == (0, "All entries are delivered.\n")
    assert (home / "taken").read_text() == "I like figs\n"
