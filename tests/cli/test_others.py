"""Messages added elsewhere to the session that is open at a terminal."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.chatting import configure
from tests.cli.screen import ENTER, Chat, Screen, plain_env, stored

pytestmark = pytest.mark.processes


def say_elsewhere(home: Path, session: str, *said: str) -> None:
    """Ask questions from other processes in the same session."""
    for text in said:
        command = [sys.executable, "-m", "hermes", "chat", "-s", session, "-q", text]
        subprocess.run(command, env=plain_env(home), capture_output=True, check=True)


def session_of(home: Path) -> str:
    """Return the only session."""
    connection = sqlite3.connect(home / "state.db")
    try:
        [(session,)] = connection.execute("SELECT id FROM sessions").fetchall()
        return str(session)
    finally:
        connection.close()


def shown(screen: Screen) -> str:
    return "\n".join(screen.rows)


@pytest.mark.contract("10.24")
def test_turns_of_others_appear_once_in_order_and_are_told_apart(chat: Chat, home: Path) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type("mine" + ENTER)
        screen.wait_for_rows("› mine", "mine", "", "›")
        say_elsewhere(home, session_of(home), "first of another", "second of another")
        screen.wait_for("» second of another").type("half a li")
        screen.wait(lambda screen: screen.prompt == "› half a li").type("ne" + ENTER)
        screen.wait_for_rows("› half a line", "half a line", "", "›")
        order = [shown(screen).index(text) for text in ("› mine", "» first of", "» second of", "› half a line")]
        assert order == sorted(order)
        assert shown(screen).count("» first of another") == 1
        assert len(re.findall(r"\(elsewhere, \d\d:\d\d\)", shown(screen))) == 2, "a reply may come after a look"
        screen.wait(lambda _: len(stored(home)) == 8)


@pytest.mark.contract("10.24")
def test_no_turn_of_another_is_shown_in_the_middle_of_a_reply(chat: Chat, home: Path) -> None:
    with chat({"says": {"text": "one"}}, {"says": {"text": "two words\nand\nmore", "pause": 0.2}}) as screen:
        screen.wait_for_prompt().type("mine" + ENTER)
        screen.wait_for_rows("one", "", "›").type("again" + ENTER)
        screen.wait_for("two")
        say_elsewhere(home, session_of(home), "of another")
        screen.wait_for("» of another")
        screen.wait_for_rows("› again", "two words", "and", "more", "")


@pytest.mark.contract("10.24")
def test_what_was_said_before_a_session_was_opened_here_does_not_come_as_news(chat: Chat, home: Path) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type("an old one" + ENTER)
        screen.wait_for_rows("an old one", "", "›")
        session = session_of(home)
    with chat(more=("-s", session)) as screen:
        screen.wait_for("Resuming").wait_for_prompt()
        screen.wait(lambda screen: "tokens" in screen.status)
        say_elsewhere(home, session, "a new one")
        screen.wait_for("» a new one")
        assert "» an old one" not in shown(screen)


def switch_elsewhere(home: Path, session: str, command: str) -> None:
    """Run a command from another terminal in the same session."""
    chatting = [sys.executable, "-m", "hermes", "chat", "-s", session]
    subprocess.run(chatting, env=plain_env(home), input=f"{command}\n", text=True, capture_output=True, check=True)


@pytest.mark.contract("10.24", "4.11", "10.51")
def test_that_another_place_makes_the_session_incognito_or_ends_it_is_seen_here(chat: Chat, home: Path) -> None:
    with chat(columns=120) as screen:
        screen.wait_for_prompt().type("mine" + ENTER)
        screen.wait_for_rows("› mine", "mine", "", "›")
        switch_elsewhere(home, session_of(home), "/memory off")
        screen.wait(lambda screen: screen.status.endswith("memory incognito")).type("a secret" + ENTER)
        screen.wait_for_rows("› a secret", "a secret", "", "›")
        switch_elsewhere(home, session_of(home), "/memory on")
        screen.wait(lambda screen: screen.status.endswith("memory notes")).type("known" + ENTER)
        screen.wait_for_rows("› known", "known", "", "›")
    typed = (home / "chat_history").read_text(encoding="utf-8")
    assert "known" in typed
    assert "a secret" not in typed


@pytest.mark.contract("10.22")
def test_the_status_line_tells_what_was_spent_and_how_full_the_window_is(chat: Chat, home: Path) -> None:
    counted = {"says": {"text": "one", "usage": {"prompt_tokens": 700, "completion_tokens": 34}}}
    configure(home, "model:\n  context_length: 8192\n")
    with chat(counted, {"says": {"text": "two"}}, columns=120) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        screen.wait(lambda screen: " · 734 tokens · window " in screen.status).type("on" + ENTER)
        screen.wait_for("two")
        screen.wait(lambda screen: " · ~" in screen.status and screen.status.endswith("% · memory notes"))
        screen.type("/new" + ENTER)
        screen.wait(lambda screen: screen.status == "model loop-1 · session new · memory notes")


@pytest.mark.contract("10.24")
def test_a_chat_whose_session_is_deleted_elsewhere_stays_open_and_begins_a_new_one(chat: Chat, home: Path) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type("mine" + ENTER)
        screen.wait_for_rows("› mine", "mine", "", "›").wait(lambda _: len(stored(home)) == 2)
        gone = session_of(home)
        delete = [sys.executable, "-m", "hermes", "sessions", "delete", gone, "--yes"]
        subprocess.run(delete, env=plain_env(home), capture_output=True, check=True)
        time.sleep(2.5)  # the terminal has looked for what others said
        screen.type("still here" + ENTER)
        screen.wait_for("hermes: the session was deleted, and the message with it")
        screen.wait(lambda screen: screen.prompt == "› still here").type(ENTER)
        screen.wait_for_rows("› still here", "still here", "", "›")
        assert session_of(home) != gone
