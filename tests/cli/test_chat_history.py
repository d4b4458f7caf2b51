"""The input history of the Up key: no incognito input, and nothing that was deleted or forgotten."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.screen import CTRL_D, ENTER, UP, Chat, Screen, stored
from tests.conftest import Ran
from tests.gateway.processes import rows

Hermes = Callable[..., Ran]
CTRL_U = "\x15"
"""Clears the line; Ctrl-C would also stop a turn."""

pytestmark = pytest.mark.processes


def history(home: Path) -> list[str]:
    """Return the entries of the history file."""
    return [line[1:] for line in (home / "chat_history").read_text().splitlines() if line.startswith("+")]


def say(screen: Screen, home: Path, text: str) -> None:
    """Send a message and wait for the reply."""
    screen.wait_for_prompt()
    before = len(stored(home))
    screen.type(text + ENTER)
    screen.wait(lambda _: len(stored(home)) == before + 2)


@pytest.mark.contract("10.51")
def test_what_is_typed_incognito_is_kept_for_this_run_alone(home: Path, chat: Chat, hermes: Hermes) -> None:
    with chat() as screen:
        say(screen, home, "hello")
        screen.wait_for_prompt().type("/memory off" + ENTER + "typed ahead" + ENTER)
        screen.wait(lambda _: len(stored(home)) == 4)
        say(screen, home, "a secret")
        screen.wait_for_prompt().type(UP)
        screen.wait(lambda screen: screen.prompt == "› a secret").type(CTRL_U)
        screen.wait_for_prompt().type("/memory on" + ENTER)
        screen.wait_for("Memory is on again")
        say(screen, home, "no secret")
        screen.wait_for_prompt().type(CTRL_D)
        assert screen.ended() == 0
    assert history(home) == ["hello", "/memory off", "no secret"]
    [(session,)] = rows(home, "SELECT id FROM sessions")
    shown = hermes("sessions", "show", str(session)).out.splitlines()
    assert len([line for line in shown if line.endswith("kept out of memory]")]) == 4


@pytest.mark.contract("10.51")
def test_what_is_deleted_or_forgotten_is_taken_out_of_the_file(home: Path, chat: Chat, hermes: Hermes) -> None:
    for words in ("about figs", "about dates"):
        with chat() as screen:
            say(screen, home, words)
            say(screen, home, f"more {words}")
            screen.wait_for_prompt().type("/usage" + ENTER + CTRL_D)
            assert screen.ended() == 0
    (home / "chat_history").chmod(0o644)
    [(first,)] = rows(home, "SELECT DISTINCT session_id FROM messages WHERE content = 'about figs'")
    assert hermes("sessions", "delete", str(first), "--yes").code == 0
    assert history(home) == ["/usage", "about dates", "more about dates", "/usage"]
    assert stat.S_IMODE((home / "chat_history").stat().st_mode) == 0o600
    hermes("memory", "forget", "more", "dates", "--yes")
    assert history(home) == ["/usage", "about dates", "/usage"]
