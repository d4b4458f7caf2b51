"""Repairs: every kind of damage is found, explained and repaired once, and nothing else changes."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.store.store import Store
from tests.audit.looking import backups, bytes_of, findings
from tests.audit.stock_wounds import CASES
from tests.audit.wounds import Wound, wounded
from tests.conftest import Ran
from tests.scale import FULL
from tests.store import old_files as old

Hermes = Callable[..., Ran]
pytestmark = pytest.mark.stress


def of_wounds(cases: list[tuple[Wound, int]]) -> pytest.MarkDecorator:
    """Parametrize a test with these wounds."""
    return pytest.mark.parametrize(("wound", "layout"), cases, ids=[f"{wound}-{layout}" for wound, layout in cases])


def sample() -> list[tuple[Wound, int]]:
    """Return every wound in one of the layouts, alternating; in each layout under `make stress`."""
    by_wound: dict[str, list[tuple[Wound, int]]] = {}
    for wound, layout in CASES:
        by_wound.setdefault(str(wound), []).append((wound, layout))
    return CASES if FULL else [cases[number % len(cases)] for number, cases in enumerate(by_wound.values())]


every_wound = of_wounds(sample())


@every_wound
@pytest.mark.contract("3.12")
def test_damage_is_found_and_explained_and_finding_changes_nothing(
    hermes: Hermes, home: Path, wound: Wound, layout: int
) -> None:
    wounded(home, wound, layout)
    before = bytes_of(home)
    ran = hermes("doctor", "--json")
    assert ran.code == 1
    (found,) = findings(ran)
    assert found["code"] == wound.code
    assert set(wound.named) <= set(found["sessions"])
    for session in wound.named:
        assert session in found["detail"]
    assert found["remedy"]
    text = hermes("doctor")
    assert text.code == 1
    assert f"FAIL  sessions  [{wound.code}]" in text.out
    whole = [line for line in text.out.splitlines() if "it is whole" in line]
    assert not any(session in line for line in whole for session in wound.named)
    assert bytes_of(home) == before


@every_wound
@pytest.mark.contract("3.12", "1.5")
def test_repair_makes_a_backup_and_a_second_run_finds_nothing(
    hermes: Hermes, home: Path, wound: Wound, layout: int
) -> None:
    file = wounded(home, wound, layout)
    before, messages = old.dump(file.path), old.dump(file.path, ["messages"])
    ran = hermes("doctor", "--repair", "--yes", "--json")
    assert ran.code == 0, ran.out
    assert [mended["code"] for mended in json.loads(ran.out)["repair"]["mended"]] == [wound.code]
    (backup,) = backups(home)
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert old.dump(backup) == before
    assert old.dump(file.path, ["messages"]) == messages, "no message is rewritten"
    after = bytes_of(home)
    again = hermes("doctor", "--repair", "--yes", "--json")
    assert again.code == 0
    assert findings(again) == []
    assert "repair" not in json.loads(again.out)
    assert bytes_of(home) == after


@every_wound
@pytest.mark.contract("3.12")
def test_conversations_and_keys_are_right_after_a_repair(hermes: Hermes, home: Path, wound: Wound, layout: int) -> None:
    file = wounded(home, wound, layout)
    assert hermes("doctor", "--repair", "--yes").code == 0

    async def look() -> None:
        async with await Store.open(file.path, clock=SystemClock(), lock_timeout=10) as store:
            routes = await store.read(store.routes.all)
            assert {key: routes.get(key) for key in wound.routes} == wound.routes
            listed = await store.read(lambda tx: store.sessions.recent(tx, limit=-1, everything=True))
            ends = {entry.session.id: entry.session.end_reason for entry in listed}
            assert {session: ends[session] for session in wound.open_sessions} == dict.fromkeys(wound.open_sessions)
            assert {session: ends[session] for session in wound.ended} == wound.ended
            for session, wanted in wound.sees.items():
                assert [m.content for m in (await store.view(session)).messages] == wanted

    asyncio.run(look())


@every_wound
@pytest.mark.contract("3.12")
def test_only_duplicates_and_foreign_messages_are_hidden(hermes: Hermes, home: Path, wound: Wound, layout: int) -> None:
    file = wounded(home, wound, layout)
    sessions = [str(row[0]) for row in file.rows("SELECT id FROM sessions ORDER BY id")]
    before = exported(hermes, sessions)
    assert hermes("doctor", "--repair", "--yes").code == 0
    after = exported(hermes, sessions)
    for session in sessions:
        assert sorted([*after[session], *wound.hidden.get(session, [])]) == sorted(before[session])


@of_wounds([case for case in CASES if case[0].hidden])
def test_deleting_a_repaired_session_deletes_its_marks(hermes: Hermes, home: Path, wound: Wound, layout: int) -> None:
    file = wounded(home, wound, layout)
    assert hermes("doctor", "--repair", "--yes").code == 0
    for session in wound.hidden:
        assert hermes("sessions", "delete", session, "--yes").code == 0
        assert file.rows("SELECT count(*) FROM hermes_hidden") == [(0,)]


def exported(hermes: Hermes, sessions: list[str]) -> dict[str, list[str]]:
    """Return the messages of each session, in one export."""
    said: dict[str, list[str]] = {session: [] for session in sessions}
    name = ""
    for line in map(json.loads, hermes("sessions", "export", *sessions).out.splitlines()):
        if line["type"] == "session":
            name = line["id"]
        elif line["type"] == "message" and "content" in line:
            said[name].append(line["content"])
    return said
