"""Details of commands: questions, secrets, existing files, help, and the model check."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.assembly import FLOOR_NOTICE
from hermes.cli.main import COMMANDS
from hermes.cli.status import recap
from hermes.clock import SystemClock
from hermes.store.store import Store
from tests.cli.chatting import configure, environment, serving
from tests.cli.filling import fill
from tests.cli.screen import ENTER, Screen
from tests.conftest import Ran
from tests.source_imports import parsed

Hermes = Callable[..., Ran]
SOURCE = Path(__file__).parents[2] / "src" / "hermes"
QUESTIONS = {"confirm", "prompt", "getpass", "input"}
"""Library functions that wait for a person."""


@pytest.mark.contract("10.49")
def test_questions_are_asked_in_one_place_which_looks_first_whether_anybody_is_there() -> None:
    asking = set()
    for path, tree in parsed(SOURCE, *QUESTIONS):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("typer.") in QUESTIONS:
                asking.add(path.relative_to(SOURCE).as_posix())
    assert asking == {"cli/dialog.py", "cli/gateway.py"}, "they ask by `dialog.confirm`"


@pytest.mark.contract("10.49")
@pytest.mark.parametrize(("stdin", "stdout"), [(True, False), (False, True), (False, False)])
def test_nobody_is_asked_unless_input_and_output_are_terminals(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch, stdin: bool, stdout: bool
) -> None:
    session = fill(home, "stamps")
    monkeypatch.setattr("sys.stdin.isatty", lambda: stdin, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: stdout, raising=False)
    ran = hermes("sessions", "delete", session)
    assert ran.code == 2
    assert "deleting needs a confirmation. Add --yes" in ran.err


@pytest.mark.processes
def test_enter_at_a_question_is_no_and_is_not_called_an_interruption(home: Path) -> None:
    session = fill(home, "stamps")
    with Screen("sessions", "delete", session, env=environment(home)) as screen:
        screen.wait_for("Delete it for good? [y/N]:")
        screen.type(ENTER)
        assert screen.ended() == 1
        # Typer writes the blank behind its question last: it is in the next row if Enter was faster.
        assert "Nothing was deleted." in map(str.strip, screen.rows)


@pytest.mark.processes
def test_a_remark_at_a_narrow_terminal_breaks_between_words(home: Path) -> None:
    with Screen("chat", "-q", "hello", env=environment(home), columns=40) as screen:
        assert screen.ended() == 0
    words = FLOOR_NOTICE.split()
    assert len(screen.rows[0]) < 40
    assert [word for row in screen.rows for word in row.split()][: len(words)] == words


async def test_who_goes_on_with_one_message_reads_one_message(home: Path) -> None:
    session = await asyncio.to_thread(fill, home, "stamps")
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        found = await store.read(lambda tx: store.sessions.get(tx, session))
        assert (await recap(store, found)).headline == f"Resuming {session} (1 message)."


def test_a_secret_is_not_printed_and_a_script_can_tell(home: Path, hermes: Hermes) -> None:
    assert (hermes("config", "get", "model.api_key").code, hermes("config", "get", "model.api_key").out) == (0, "\n")
    hermes("config", "set", "model.api_key", "sk-123")
    for options in ([], ["--json"]):
        ran = hermes("config", "get", "model.api_key", *options)
        assert (ran.code, ran.out) == (2, "")
        assert "model.api_key is set, and is a secret" in ran.err
        assert "sk-123" not in ran.err


def test_an_export_replaces_a_file_only_when_told_to(home: Path, hermes: Hermes, tmp_path: Path) -> None:
    session, target = fill(home, "stamps"), tmp_path / "out.md"
    target.write_text("mine")
    refused = hermes("sessions", "export", session, "-o", str(target))
    assert (refused.code, target.read_text()) == (2, "mine")
    assert "--force replaces it" in refused.err
    assert hermes("sessions", "export", session, "-f", "-o", str(target)).code == 0
    assert "stamps" in target.read_text()


def test_hermes_alone_shows_its_commands(hermes: Hermes) -> None:
    ran = hermes()
    assert (ran.code, ran.err) == (0, "")
    assert all(f"\n  {name} " in ran.out for name in COMMANDS)


@pytest.mark.parametrize("columns", ["60", "80"])
def test_what_help_says_of_a_command_is_never_cut_off(
    hermes: Hermes, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for group in ([], ["sessions"], ["memory"], ["gateway"], ["config"], ["memory", "outbox"]):
        listed = hermes(*group, "--help").out.partition("Commands:")[2]
        assert listed
        assert "..." not in listed
        assert all(len(line) <= int(columns) for line in listed.splitlines())


def test_what_a_model_sees_is_shown_below_whose_it_is(home: Path, hermes: Hermes) -> None:
    session = fill(home, "stamps", title="Post")
    head = hermes("sessions", "show", session).out.splitlines()[0]
    assert head.startswith(f"{session} · cli · ")
    assert head.endswith(" · Post")
    assert hermes("sessions", "show", "--live", session).out.splitlines()[0] == head


@pytest.mark.processes
def test_the_doctor_asks_for_the_model(home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.cli.doctor.LIST_TIMEOUT_SECONDS", 60.0)
    assert "model     none is configured: answers come from memory alone" in hermes("doctor").out
    pages = {"/v1/models": {"body": '{"data": [{"id": "tea-1"}]}'}}
    with serving([], pages=pages) as endpoint:
        configure(home, f"model:\n  base_url: {endpoint.base_url}\n  default: tea-1\n")
        assert f"ok    model     tea-1 at {endpoint.base_url} is there" in hermes("doctor").out
        configure(home, f"model:\n  base_url: {endpoint.base_url}\n")
        assert f"ok    model     tea-1, the first of 1 at {endpoint.base_url}, is there" in hermes("doctor").out
        configure(home, f"model:\n  base_url: {endpoint.base_url}\n  default: tee-1\n")
        assert f"WARN  model     tee-1 at {endpoint.base_url} is not among its models: tea-1" in hermes("doctor").out
    ran = hermes("doctor")
    assert ran.code == 0, "it may be there again in a minute"
    assert f"WARN  model     tee-1 at {endpoint.base_url}: " in ran.out


def test_help_is_a_command_too(hermes: Hermes) -> None:
    assert hermes("help").out == hermes("--help").out
    assert hermes("help", "memory", "search").out == hermes("memory", "search", "--help").out
    assert "Usage: hermes help" in hermes("help", "--help").out
    assert "no such" in hermes("help", "nonsense").err.lower()
    assert hermes("version").out == hermes("--version").out != ""


def test_a_set_up_without_a_terminal_says_how_it_is_done(hermes: Hermes) -> None:
    ran = hermes("setup")
    assert (ran.code, "`hermes config set owner.name NAME`" in ran.err) == (2, True)
