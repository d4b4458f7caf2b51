"""The session picker, at a real terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.cli.commands import NO_SESSIONS
from hermes.slash.acts import BEGINS
from tests.cli.filling import fill
from tests.cli.screen import ENTER, UP, Chat, Screen

pytestmark = pytest.mark.processes

DOWN, ESC = "\x1b[B", "\x1b"


def marked(screen: Screen) -> str:
    """Return the marked row, without its time and message count."""
    return next((row[26:] for row in screen.rows if row.startswith("› 2")), "")


@pytest.mark.contract("10.36")
def test_arrows_choose_letters_narrow_down_and_enter_goes_on(chat: Chat, home: Path) -> None:
    fill(home, "stamps from Malta", "yes")
    ferry = fill(home, "when does it go", "at nine", title="Ferry to Gozo")
    fill(home, "a blue pot", "nice")
    with chat() as screen:
        screen.wait_for_prompt().type("/resume" + ENTER)
        screen.wait(lambda screen: marked(screen) == "a blue pot").type(DOWN)
        screen.wait(lambda screen: marked(screen) == "Ferry to Gozo").type(DOWN + DOWN)
        screen.wait(lambda screen: marked(screen) == "a blue pot").type(UP)
        screen.wait(lambda screen: marked(screen) == "stamps from Malta").type("gozo")
        screen.wait(lambda screen: marked(screen) == "Ferry to Gozo").wait_for("resume: gozo")
        screen.wait(lambda screen: ferry in screen.rows)
        screen.type(ENTER)
        screen.wait_for(f"Resuming {ferry} “Ferry to Gozo”").wait_for_prompt()
        assert "type to filter" not in "\n".join(screen.rows)
        screen.wait_for("session Ferry to Gozo")


@pytest.mark.contract("10.36")
def test_esc_leaves_everything_as_it_was(chat: Chat, home: Path) -> None:
    fill(home, "stamps from Malta", "yes")
    with chat() as screen:
        screen.wait_for_prompt().type("/resume" + ENTER)
        screen.wait_for("type to filter").type("nothing like it" + ENTER)
        screen.wait_for("no match").type(ESC)
        screen.wait(lambda screen: "type to filter" not in "\n".join(screen.rows)).wait_for_prompt()
        screen.type("/resume" + ENTER)
        screen.wait_for("type to filter").type(ESC)
        screen.wait(lambda screen: "type to filter" not in "\n".join(screen.rows)).wait_for_prompt()
        screen.type("/status" + ENTER)
        screen.wait_for(BEGINS)


@pytest.mark.contract("10.36")
def test_sixty_columns_show_time_count_and_title_and_the_whole_id(chat: Chat, home: Path) -> None:
    wide = fill(home, "w " * 100, "yes", title="A title that is far too long for a window of sixty columns")
    with chat(columns=60) as screen:
        screen.wait_for_prompt().type("/resume" + ENTER)
        screen.wait_for("A title that is far too long")
        screen.wait(lambda screen: marked(screen).endswith("…") and wide in screen.rows)
        assert all(len(row) <= 60 for row in screen.rows)


def test_without_sessions_there_is_nothing_to_choose(chat: Chat) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type("/resume" + ENTER)
        screen.wait_for(NO_SESSIONS).wait_for_prompt()
