"""A wrong note and a wrong fact are corrected at a terminal; neither comes back after a restart, a review and a
compression."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from hermes.types import Json
from tests.cli.chatting import serving
from tests.cli.screen import CTRL_D, ENTER, Screen
from tests.conftest import Ran
from tests.db.processes import ROOT
from tests.honcho.configuring import Machine
from tests.honcho.fresh import FreshHome, fresh_home

pytestmark = pytest.mark.contract("10.41", "10.43")
TOLD = "My dog is called Rex."
FILLER = "Here is a long story about the garden, the shed and the fence. " * 100
BACKSPACE = "\x7f"
OK, DONE = {"says": {"text": "ok"}}, {"says": {"text": "done"}}
NAMED = "Rex is a good one, I will remember it."
REPLY = {"says": {"text": f"Got it. {NAMED}"}}
SUMMARY = "The person has a dog called Rex and told a long story about the garden."


def notes(text: str, says: str = "") -> Json:
    """Return a model's answer to a review that writes this note."""
    return {"says": {"text": says, "calls": [["memory", json.dumps({"target": "user", "content": text})]]}}


SCRIPT = [
    *(REPLY, notes("Has a dog called Rex"), DONE),  # it is told, and a review notes it
    *(OK, notes("The user's dog is named Rex"), DONE),  # after the correction: a turn, and a review that reads it again
    *(OK, DONE) * 3,  # a longer conversation
    *(OK, DONE),  # what is asked in the end
]


@pytest.fixture
def folder(processes: None, machine: Machine, tmp_path: Path) -> Path:
    """A home's folder; the user's folder is another one."""
    return tmp_path


CONFIG = """
memory:
  review_every: 1
  first_deadline: 60
compression:
  keep_turns: 1
model:
  context_length: 16000
"""
RIGHT = ["Has a dog called Max", "My dog is called Max."]


AT_LEISURE = """
import sys, hermes.agent.agent, hermes.cli.main
hermes.agent.agent.Agent.close.__kwdefaults__["deadline"] = 120.0
sys.exit(hermes.cli.main.run(sys.argv[1:]))
"""
"""Makes the chat wait for its reviews, however slow the machine is."""


def chat(env: Mapping[str, str], *arguments: str, said: str = "") -> Ran:
    """Run `hermes chat` until its reviews end."""
    command = [sys.executable, "-c", AT_LEISURE, "chat", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=env, input=said, capture_output=True, text=True, timeout=180, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def correct_at_the_terminal(fresh: FreshHome) -> None:
    """List what memory holds, and correct both entries at the terminal."""
    fresh.hermes("memory", "model", "--off")  # else the chat asks whether memory may use its model
    with Screen("chat", env=fresh.env, columns=200, patience=120) as screen:
        screen.wait_for_prompt().type("/memory" + ENTER)
        screen.wait_for("1. Has a dog called Rex").wait_for("2. My dog is called Rex.")
        screen.wait_for_prompt().type("/memory edit 1" + ENTER)
        screen.wait(lambda screen: screen.prompt == "› /memory edit 1 Has a dog called Rex")
        screen.type(BACKSPACE * 3 + "Max" + ENTER)
        screen.wait_for("Corrected. It said: Has a dog called Rex")
        screen.wait_for_prompt().type("/memory edit 2 My dog is called Max." + ENTER)
        screen.wait_for("Corrected. It said: My dog is called Rex.")
        screen.wait_for_prompt().type(CTRL_D)
        assert screen.ended() == 0


def let_reviews_read_it_all_again(fresh: FreshHome) -> None:
    with closing(sqlite3.connect(fresh.home / "state.db")) as file:
        file.execute("DELETE FROM hermes_reviews")
        file.commit()


def held(fresh: FreshHome) -> list[str]:
    entries = json.loads(fresh.hermes("memory", "list", "--json").out)["entries"]
    return [one["text"] for one in entries if "dog" in one["text"]]


def compress(fresh: FreshHome) -> None:
    """Compress the chat. The review and the summary are requested concurrently, so both get the same answer, which
    repeats the wrong fact."""
    with serving([], then=notes("Owns a dog called Rex", SUMMARY)) as endpoint:
        done = chat({**fresh.env, "OPENAI_BASE_URL": endpoint.base_url}, "-c", said="/compress\n")
        assert "Compressed:" in done.err, done
        assert "Do not note it again" in str(endpoint.requests()), "the review was refused"


def test_neither_comes_back_after_a_restart_a_review_and_a_compression(folder: Path) -> None:
    with serving(SCRIPT, then={"echo": True}) as endpoint, fresh_home(folder, endpoint.base_url) as fresh:
        fresh.home.mkdir()
        (fresh.home / "config.yaml").write_text(CONFIG, encoding="utf-8")
        chat(fresh.env, "-q", TOLD)
        fresh.deliver()
        assert held(fresh) == ["Has a dog called Rex", TOLD]

        correct_at_the_terminal(fresh)
        assert held(fresh) == RIGHT
        fresh.restart()
        let_reviews_read_it_all_again(fresh)
        chat(fresh.env, "-c", "-q", "Tell me about my dog")
        for _ in range(3):
            chat(fresh.env, "-c", "-q", FILLER)
        let_reviews_read_it_all_again(fresh)
        compress(fresh)
        fresh.deliver()
        fresh.restart()
        chat(fresh.env, "-c", "-q", "What is my dog called?")

        assert len(endpoint.requests()) == len(SCRIPT), "every review took place"
        assert held(fresh)[:2] == RIGHT
        assert not any("Rex" in text for text in held(fresh))
        check_request(endpoint.requests()[-2]["messages"])


def check_request(messages: list[Json]) -> None:
    """Check the last request: it states the corrected fact, and marks each line of memory that contradicts it."""
    prompt, asked = str(messages[0]["content"]), str(messages[-1]["content"])
    assert "- wrong: Has a dog called Rex | right: Has a dog called Max" in prompt
    assert f"- wrong: {TOLD} | right: My dog is called Max." in prompt
    assert any(SUMMARY in str(message["content"]) for message in messages), "the compression says it still"
    assert "Max" in asked, "the fact is recalled"
    assert NAMED in asked, "so is what was replied"
    for line in asked.splitlines():
        assert "Rex" not in line or "corrected by the person" in line
