"""Rows of another program with invalid UTF-8: shown with U+FFFD everywhere, and reported by the doctor."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.chatting import chat, environment
from tests.cli.filling import fill
from tests.conftest import Ran

Hermes = Callable[..., Ran]


def spoil(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


@pytest.mark.processes
@pytest.mark.contract("1.4", "1.7")
def test_row_with_text_that_is_no_utf_8_is_shown_with_replacement_characters(hermes: Hermes, home: Path) -> None:
    other = fill(home, "stamps from Gozo")
    session = fill(home, "stamps from Malta", "I see", title="stamps")
    spoil(
        home,
        "UPDATE messages SET content = CAST(x'7374616d707320ff2078' AS TEXT) WHERE content = 'stamps from Malta'",
        f"UPDATE sessions SET title = CAST(x'7469fe746c65' AS TEXT) WHERE id = '{session}'",
    )
    assert "stamps \ufffd x" in hermes("sessions", "show", session).out
    assert "ti\ufffdtle" in hermes("sessions", "list").out
    found = {row["session_id"] for row in json.loads(hermes("sessions", "search", "stamps", "--json").out)}
    assert found == {other, session}
    exported = [json.loads(line) for line in hermes("sessions", "export", session).out.splitlines()]
    assert "stamps \ufffd x" in [line.get("content") for line in exported]
    gone_on = chat(environment(home), "-s", session, "-q", "What stamps do I collect?")
    assert gone_on.code == 0, gone_on.err
    told = json.loads(hermes("doctor", "--json").out)
    [finding] = [finding for finding in told["findings"] if finding["code"] == "not-utf8"]
    assert finding["sessions"] == [session]
    assert f"sessions {session}" in finding["detail"]
    assert "messages 2" in finding["detail"]
    assert hermes("sessions", "delete", session, "--yes").code == 0
    assert "not-utf8" not in hermes("doctor").out


@pytest.mark.parametrize("form", ["jsonl", "md"])
def test_text_that_is_no_utf_8_makes_nothing_shown_or_exported_twice(hermes: Hermes, home: Path, form: str) -> None:
    session = fill(home, "stamps from Gozo", "I see")
    fill(home, "stamps from Malta")
    spoil(home, "UPDATE messages SET content = CAST(x'49ff736565' AS TEXT) WHERE content = 'I see'")
    exported = hermes("sessions", "export", "--all", "--format", form).out
    assert [exported.count(text) for text in ("stamps from Malta", "stamps from Gozo", "I\ufffdsee")] == [1, 1, 1]
    shown = hermes("sessions", "show", session).out
    assert [shown.count(text) for text in (session, "stamps from Gozo", "I\ufffdsee")] == [1, 1, 1]


@pytest.mark.contract("10.6")
@pytest.mark.parametrize("name", ["hermes_routes", "sessions"])
def test_doctor_names_a_schema_that_cannot_even_be_quoted(hermes: Hermes, home: Path, name: str) -> None:
    fill(home, "hello")
    spoil(
        home,
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET sql = CAST(x'4352454154450ff0ff' AS TEXT) WHERE name = '{name}'",
    )
    for ran in (hermes("doctor"), hermes("sessions", "list")):
        assert ran.code == 1, ran.err
        assert "is damaged" in ran.out + ran.err
        assert "Traceback" not in ran.err
