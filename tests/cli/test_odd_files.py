"""Unusable files in the home: reported at once and by name, and never changed."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.config_file import LED_NOWHERE, write_setting
from hermes.errors import HomeError
from hermes.files import NOT_UTF8
from hermes.settings import COLOR
from tests.cli.chatting import chat, environment, serving, turns
from tests.conftest import Ran
from tests.memory.page import install
from tests.small_disk import fill, small_disk

Hermes = Callable[..., Ran]
LATIN = "- likes caf\xe9s\n".encode("latin-1")
HANG_TIMEOUT_SECONDS = 120.0
"""A command that takes longer counts as hanging."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")


def put_note(home: Path, name: str, data: bytes) -> Path:
    path = home / "memories" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def sessions(home: Path) -> int:
    with sqlite3.connect(home / "state.db") as connection:
        [count] = connection.execute("SELECT count(*) FROM sessions").fetchone()
    connection.close()
    return int(count)


@pytest.mark.processes
@pytest.mark.contract("P4", "P5")
def test_a_note_that_is_not_utf_8_is_named_and_chat_goes_on(home: Path, hermes: Hermes) -> None:
    path = put_note(home, "MEMORY.md", LATIN)
    put_note(home, "USER.md", b"- is called Ada\n")
    with serving([], then={"echo": True}) as endpoint:
        ran = chat(environment(home, endpoint.base_url), said="one\ntwo\n")
        prompt = endpoint.requests()[0]["messages"][0]["content"]
    assert (ran.code, ran.out) == (0, "one\ntwo\n")
    assert ran.err.count(f"WARNING: answering without a note: cannot read {path}: {NOT_UTF8}") == 1
    assert "is called Ada" in prompt
    assert path.read_bytes() == LATIN
    doctor = hermes("doctor")
    assert doctor.code == 1
    assert f"FAIL  notes     cannot read {path}: it is not UTF-8 text → Save it as UTF-8" in doctor.out


@pytest.mark.processes
@pytest.mark.contract("P5")
def test_a_note_that_was_mended_is_used_in_the_same_session_and_that_is_said(home: Path) -> None:
    path = put_note(home, "MEMORY.md", LATIN)
    with serving([], then={"echo": True}) as endpoint:
        env = environment(home, endpoint.base_url)
        [events] = turns(chat(env, "--json", "-q", "one").out)
        path.write_bytes(b"- likes figs\n")
        again = chat(env, "-c", "-q", "two")
        assert (again.code, again.out, again.err) == (0, "two\n", "")
        first, second = (request["messages"][0]["content"] for request in endpoint.requests())
    assert "likes" not in first
    assert "likes figs" in second
    assert [event["text"][:7] for event in events if event["type"] == "Notice"] == ["WARNING"]
    assert sessions(home) == 1


@pytest.mark.processes
@pytest.mark.contract("10.5")
def test_without_a_model_a_note_that_is_not_utf_8_keeps_nobody_from_an_answer(home: Path) -> None:
    put_note(home, "MEMORY.md", LATIN)
    put_note(home, "USER.md", b"- is called Ada\n")
    ran = chat(environment(home), "-q", "What am I called?")
    assert ran.code == 0
    assert "is called Ada" in ran.out
    assert "MEMORY.md: it is not UTF-8 text" in ran.err
    assert NOT_UTF8 in chat(environment(home), said="/memory\n").err


@pytest.mark.processes
def test_a_soul_that_cannot_be_read_is_said_before_a_session_is_begun(home: Path, hermes: Hermes) -> None:
    home.mkdir()
    (home / "SOUL.md").write_bytes(LATIN)
    for _ in range(2):
        ran = chat(environment(home), "-q", "hello")
        assert (ran.code, ran.out) == (1, "")
        why = "it is not UTF-8 text. Repair the file or move it away"
        assert ran.err == f"hermes: cannot read {home / 'SOUL.md'}: {why}\n"
    assert sessions(home) == 0
    assert f"FAIL  notes     cannot read {home / 'SOUL.md'}" in hermes("doctor").out


@pytest.mark.processes
def test_a_url_that_cannot_be_called_leaves_no_session_behind(home: Path) -> None:
    ran = chat(environment(home, "nonsense"), "-q", "hello")
    assert ran.code == 2
    assert "OPENAI_BASE_URL: model.base_url is 'nonsense', but takes an http:// or https:// URL" in ran.err
    assert not (home / "state.db").exists()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.mkdir()


def lead_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD = {"a pipe": make_pipe, "a folder": make_folder, "a device": lead_to_zeros}


@pytest.mark.processes
@pytest.mark.contract("10.6")
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", [".env", "config.yaml", "SOUL.md", "memories/USER.md"])
def test_what_is_no_file_is_said_at_once(home: Path, hermes: Hermes, name: str, kind: str) -> None:
    path = home / name
    path.parent.mkdir(parents=True)
    ODD[kind](path)
    ran = chat(environment(home), "-q", "I like tea", timeout=HANG_TIMEOUT_SECONDS)
    assert f"cannot read {path}: it is {kind}, not a file" in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ("Saved: I like tea\n" if "memories" in name else "")
    doctor = hermes("doctor")
    assert doctor.code == 1
    assert doctor.out.count(f"cannot read {path}: it is {kind}, not a file") == 1


@pytest.mark.processes
def test_a_pipe_in_the_place_of_the_log_is_said_at_once(home: Path, hermes: Hermes) -> None:
    (home / "logs").mkdir(parents=True)
    os.mkfifo(home / "logs" / "agent.log")
    ran = chat(environment(home), "-q", "hello", timeout=HANG_TIMEOUT_SECONDS)
    assert ran.code == 1
    assert ran.err.startswith(f"hermes: cannot write the log {home / 'logs' / 'agent.log'}: it is a pipe")
    assert ran.err.count("\n") == 1
    assert f"cannot read {home / 'logs' / 'agent.log'}: it is a pipe" in hermes("doctor").out


@pytest.mark.parametrize("name", ["state.db", "config.yaml", ".env", "SOUL.md", "memories/MEMORY.md"])
def test_doctor_names_a_link_that_leads_nowhere(home: Path, hermes: Hermes, name: str) -> None:
    path, target = home / name, home / "unmounted" / "thing"
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    ran = hermes("doctor")
    assert ran.code == 1
    assert f"FAIL  home      {path} is a link to {target}, which does not exist → {LED_NOWHERE}" in ran.out
    assert path.is_symlink()


@pytest.mark.parametrize("name", ["config.yaml", ".env"])
def test_settings_behind_a_link_to_a_missing_disk_are_not_taken_for_the_defaults(
    home: Path, hermes: Hermes, name: str
) -> None:
    """The hidden settings may turn memory off."""
    path, target = home / name, home / "unmounted" / "thing"
    home.mkdir(exist_ok=True)
    path.symlink_to(target)
    ran = hermes("chat", "-q", "hello")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(
        f"hermes: cannot read {path}: it is a link to {target}, which does not exist. {LED_NOWHERE}"
    )
    assert [path.name for path in home.iterdir()] == [name], "nothing was kept"


@pytest.mark.processes
@pytest.mark.contract("P5")
def test_a_full_disk_is_not_taken_for_one_of_somebody_else(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk"):
        home = tmp_path / "disk" / "home"
        home.mkdir()
        fill(tmp_path / "disk" / "ballast")
        with pytest.raises(HomeError) as refused:
            write_setting(home / "config.yaml", COLOR, "never")
        told = f"cannot write {home / 'config.yaml'}: No space left on device. Free some space and try again"
        assert refused.value.line().startswith(told)


@pytest.mark.contract("4.3")
def test_doctor_names_a_memory_provider_that_is_not_there_and_those_that_are(home: Path, hermes: Hermes) -> None:
    (home / "plugins" / "mine").mkdir(parents=True)
    (home / "plugins" / "mine" / "__init__.py").write_text("raise SystemExit('it leaves')\n")
    (home / "config.yaml").write_text("memory:\n  provider: honchoo\n")
    ran = hermes("doctor", "--json")
    [found] = [finding for finding in json.loads(ran.out)["findings"] if finding["check"] == "memory"]
    assert (ran.code, found["level"]) == (1, "fail")
    assert "'honchoo'" in found["detail"]
    assert "mine, none" in found["detail"]
    assert "hermes config set memory.provider" in found["fix"]
    hermes("config", "set", "memory.provider", "mine")
    ran = hermes("doctor")
    assert (ran.code, "cannot be loaded: SystemExit: it leaves" in ran.out) == (1, True)


@pytest.mark.contract("4.3", "P4")
def test_doctor_waits_no_longer_than_it_wants_for_a_provider(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.memory.plugin_host.CONFIGURATION_TIMEOUT_SECONDS", 0.05)
    install(home, "slow", "import threading\nthreading.Event().wait(60)\n")
    ran = hermes("doctor")
    assert (ran.code, "memory provider slow did not answer" in ran.out) == (1, True)
