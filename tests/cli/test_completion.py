"""Shell completion: what is offered, and that real shells offer it on Tab."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.cli.command_tree import FILE
from hermes.cli.completing import complete
from hermes.clock import SystemClock
from hermes.store.store import Store
from scripts.write_command_tree import render
from tests.cli.chatting import environment
from tests.cli.screen import TAB, Screen
from tests.conftest import Ran
from tests.parts import need_commands

pytestmark = pytest.mark.contract("10.48")

TERMINAL = ("setsid", "--ctty", "--wait")
"""fish needs a controlling terminal."""
START = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
    "fish": ("fish", "-i"),
}
ASKING = ("$", ">", "#")
"""Ends of shell prompts."""
SOURCE = {
    "bash": "source <(hermes completion bash)",
    "zsh": "autoload -U compinit; compinit -u -d $HOME/dump; source <(hermes completion zsh)",
    "fish": "hermes completion fish | source",
}


def offered(*words: str) -> list[str]:
    return [word for word, _ in complete(words)]


@pytest.fixture
def titled(home: Path) -> str:
    """Store a session with a title and return its id."""

    async def make() -> str:
        home.mkdir(parents=True)
        async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
            session = await store.create_session("cli", title="Garden plans")
            return session.id

    return asyncio.run(make())


def test_the_tree_is_what_the_command_line_is() -> None:
    assert FILE.read_text(encoding="utf-8") == render(), "run `make docs`"


def test_commands_options_and_words_are_offered() -> None:
    assert offered("se") == ["setup", "sessions"]
    assert "search" in offered("sessions", "")
    assert offered("sessions", "export", "--form") == ["--format"]
    assert offered("sessions", "export", "--format", "") == ["jsonl", "md"]
    assert offered("sessions", "export", "-o", "some") == [":files"]
    assert offered("nosuch", "") == []
    assert offered("completion", "") == ["bash", "zsh", "fish"]
    assert offered("completion", "bash", "") == [], "it takes no more"
    assert offered("chat", "-q", "--") == [], "that is the question"


def test_settings_and_what_they_take_are_offered() -> None:
    assert offered("config", "get", "display.c") == ["display.color"]
    assert offered("config", "set", "display.color", "a") == ["auto", "always"]


def test_sessions_are_offered_by_id_and_by_title(home: Path, titled: str) -> None:
    assert complete(["sessions", "show", ""]) == [(titled, "Garden plans")]
    assert complete(["chat", "-s", "Gar"]) == [("Garden plans", titled)]
    assert offered("sessions", "export", titled, "") == [titled], "it takes many"
    assert offered("-p", "other", "chat", "-s", "") == [], "another profile has other sessions"
    assert not (home / "profiles").exists(), "completion makes nothing"


def test_profiles_are_offered(home: Path) -> None:
    (home / "profiles" / "work").mkdir(parents=True)
    assert offered("-p", "") == ["default", "work"]


def test_a_home_that_cannot_be_read_offers_nothing(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "state.db").write_text("this is no database")
    assert offered("sessions", "show", "") == []


def test_a_shell_that_is_not_known_is_refused(hermes: Callable[..., Ran]) -> None:
    assert hermes("completion", "tcsh").code == 2


@pytest.mark.processes
def test_little_is_imported_to_offer_a_command(home: Path) -> None:
    code = (
        "import sys; from hermes.__main__ import main; sys.argv[1:] = ['__complete', 'c']; main(); print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *words, modules = ran.stdout.splitlines()
    assert [word.split("\t")[0] for word in words] == ["chat", "completion", "config"]
    assert not {"typer", "asyncio", "msgspec", "sqlite3"} & set(modules.split())


@pytest.mark.processes
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_tab_in_a_real_shell_completes(shell: str, home: Path, titled: str, tmp_path: Path) -> None:
    need_commands((shell,), (shell,))
    found = str(Path(sys.executable).parent)
    env = environment(home, HOME=str(tmp_path), PS1="$ ", TERM="xterm", PROMPT="$ ")
    with Screen(
        env={**env, "PATH": f"{found}:{env['PATH']}"}, program=(*TERMINAL, *START[shell]), columns=200
    ) as screen:
        screen.wait(lambda seen: seen.prompt.endswith(ASKING))
        screen.type(f"{SOURCE[shell]}; echo re''ady\r")
        screen.wait_for("\nready").wait(lambda seen: seen.prompt.endswith(ASKING))
        screen.type(f"hermes sess{TAB}")
        screen.wait_for("hermes sessions").type(f"show {titled[:4]}{TAB}")
        screen.wait_for(f"hermes sessions show {titled}")
        screen.type("\x15")
        screen.type(f"hermes chat -s Gar{TAB}")
        screen.wait(lambda seen: any(f"-s {quoted}" in seen.prompt for quoted in ("Garden\\ plans", "'Garden plans'")))
        screen.type(f"\x15hermes config set display.color al{TAB}")
        screen.wait_for("display.color always")
        screen.type(f"\x15hermes sessions export -o {tmp_path}/ho{TAB}")
        screen.wait_for(f"{tmp_path}/home")
