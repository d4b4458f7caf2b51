"""A fact forgotten by its number does not come back through a reply that repeated it, nor through a title."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.chatting import chat, serving
from tests.cli.screen import CTRL_D, ENTER, Screen
from tests.honcho.configuring import Machine
from tests.honcho.fresh import FreshHome, fresh_home

pytestmark = pytest.mark.contract("10.43")
TOLD, CODE = "My locker code is 8899.", "8899"
REPLY = "Got it. Your locker code is 8899. 8899 is a good one, I will remember it."
SEARCH = {"says": {"text": "", "calls": [["session_search", json.dumps({"query": "locker code 8899"})]]}}
CONFIG = "memory:\n  review_every: 0\n  first_deadline: 60\n"


@pytest.fixture
def folder(processes: None, machine: Machine, tmp_path: Path) -> Path:
    """A home's folder; the user's folder is another one."""
    return tmp_path


def configure(fresh: FreshHome) -> None:
    fresh.home.mkdir()
    (fresh.home / "config.yaml").write_text(CONFIG, encoding="utf-8")


def held_at_server(fresh: FreshHome) -> str:
    """Return everything on the server: messages, conclusions of both views, cards and summaries."""
    with fresh.at_server() as http:
        sections = ("messages", "conclusions", "cards", "sessions")
        return "".join(http.get(f"/ext/export/{section}").raise_for_status().text for section in sections)


def forget(fresh: FreshHome) -> tuple[str, str]:
    """Forget a fact, and return the output before and after the yes."""
    shown = chat(fresh.env, said="/memory search locker\n/memory forget 1\n")
    done = chat(fresh.env, said="/memory search locker\n/memory forget 1 --yes\n")
    return shown.out + shown.err, done.out + done.err


def test_the_reply_to_what_a_fact_was_learnt_from_is_forgotten_with_it(folder: Path) -> None:
    other = "My bike is green."
    script = [{"says": {"text": REPLY}}, {"says": {"text": "A green bike, nice."}}, SEARCH, {"says": {"text": "No."}}]
    with serving(script, then={"echo": True}) as endpoint, fresh_home(folder, endpoint.base_url) as fresh:
        configure(fresh)
        fresh.chat("-q", TOLD)
        fresh.chat("-c", "-q", other)
        fresh.deliver()
        assert REPLY in held_at_server(fresh)

        shown, told = forget(fresh)
        assert f"the reply: {REPLY}" in shown
        assert "Forgotten." in told
        fresh.deliver()
        assert CODE not in held_at_server(fresh)
        assert other in held_at_server(fresh), "the rest of the session stays"
        assert "A green bike, nice." in held_at_server(fresh)

        fresh.restart()
        fresh.chat("-q", "What is the code of my locker?")
        asked, searched = endpoint.requests()[-2:]
        assert CODE not in json.dumps(asked["messages"])
        [result] = [one["content"] for one in searched["messages"] if one["role"] == "tool"]
        assert CODE not in result.replace("locker code 8899", ""), "its own question aside"


def titles(fresh: FreshHome) -> str:
    with closing(sqlite3.connect(fresh.home / "state.db")) as file:
        return str(file.execute("SELECT title FROM sessions").fetchall())


def test_a_title_that_was_made_of_it_goes_and_is_made_of_the_rest(folder: Path) -> None:
    with fresh_home(folder, HERMES_AUTO_TITLE="true") as fresh:
        configure(fresh)
        with Screen("chat", env=fresh.env, columns=200, patience=120) as screen:
            screen.wait_for_prompt().type(TOLD + ENTER)
            screen.wait(lambda _: CODE in titles(fresh)).wait_for_prompt()
            fresh.deliver()
            screen.type("/memory search locker" + ENTER)
            screen.wait_for("1. My locker code is 8899.").wait_for_prompt().type("/memory forget 1 --yes" + ENTER)
            screen.wait_for("Forgotten.")
            assert CODE not in titles(fresh)
            screen.wait_for_prompt().type("My garden has three trees." + ENTER)
            screen.wait(lambda _: "garden" in titles(fresh)).wait_for_prompt().type(CTRL_D)
            assert screen.ended() == 0
        assert CODE not in titles(fresh)
