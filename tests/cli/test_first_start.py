"""The first start of a home: a model on this machine is offered to a person, and to nobody else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.cli.first_start import SENT_AS_MESSAGE, read_name
from hermes.cli.model import WAYS_TO_GET_A_MODEL
from tests.cli.chatting import Endpoint, environment, serving
from tests.cli.screen import CTRL_D, ENTER, Screen
from tests.db.processes import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.contract("10.49")]

PROGRAM = """
import sys
from functools import partial
import hermes.cli.first_start as first
from hermes.__main__ import main
from hermes.llm.discover import PROBES, Probe, find_local

ollama = PROBES[0]
probe = Probe(ollama.kind, {port}, ollama.models_path, ollama.context_path, ollama.read_context)
first.find_local = partial(find_local, (probe,), 60.0)  # it may be slow, and it is there
sys.exit(main())
"""
TAGS = {"models": [{"name": "nomic-embed-text"}, {"name": "tea-1"}, {"name": "tea-2"}]}


@pytest.fixture
def ollama(processes: None) -> Iterator[Endpoint]:
    pages = {"/api/tags": {"body": json.dumps(TAGS)}, "/api/ps": {"body": '{"models": [{"context_length": 8192}]}'}}
    with serving([], pages=pages, then={"echo": True}) as served:
        yield served


def first_start(home: Path, port: int, *arguments: str) -> Screen:
    """Run `hermes chat` at a terminal; Ollama is searched for at this port."""
    program = (sys.executable, "-c", PROGRAM.format(port=port))
    return Screen("chat", *arguments, env=environment(home), columns=100, program=program)


def test_a_model_on_this_machine_is_offered_once_and_answers_from_then_on(home: Path, ollama: Endpoint) -> None:
    with first_start(home, ollama.port) as screen:
        screen.wait_for("Which model should answer?")
        assert "nomic-embed-text" not in "\n".join(screen.rows), "it cannot talk"
        screen.wait_for("Number or word [tea-1]:").type(f"2{ENTER}")
        screen.wait_for("From now on tea-2 answers.").wait_for_prompt()
        screen.type(f"hello{ENTER}")
        screen.wait(lambda seen: sum("hello" in row for row in seen.rows) > 1)
        screen.wait_for_prompt().type(CTRL_D)
        assert screen.ended() == 0
    assert ollama.requests()[-1]["model"] == "tea-2"
    with first_start(home, ollama.port) as screen:
        screen.wait_for_prompt()
        assert "Which one" not in "\n".join(screen.rows)


def test_without_a_model_the_three_ways_are_said_once(home: Path) -> None:
    with first_start(home, 1) as screen:
        screen.wait_for("There are three ways:").wait_for_prompt()
        shown = " ".join(" ".join(screen.rows).split())
        assert all(" ".join(way.split()) in shown for way in WAYS_TO_GET_A_MODEL)
        screen.type(CTRL_D)
        assert screen.ended() == 0
    with first_start(home, 1) as screen:
        screen.wait_for_prompt()
        assert "three ways" not in "\n".join(screen.rows)


def test_who_wants_none_is_not_asked_again(home: Path, ollama: Endpoint) -> None:
    with first_start(home, ollama.port) as screen:
        screen.wait_for("Number or word [tea-1]:").type(f"none{ENTER}")
        screen.wait_for_prompt().type(CTRL_D)
        assert screen.ended() == 0
    assert not (home / "config.yaml").exists()
    with first_start(home, ollama.port) as screen:
        screen.wait_for_prompt()
        assert "Which one" not in "\n".join(screen.rows)


@pytest.mark.parametrize("way", ["question at a terminal", "lines from a pipe", "output to a file"])
def test_a_script_is_never_asked(home: Path, ollama: Endpoint, tmp_path: Path, way: str) -> None:
    program = (sys.executable, "-c", PROGRAM.format(port=ollama.port))
    if way == "question at a terminal":
        with first_start(home, ollama.port, "-q", "My cat is called Miso.") as screen:
            assert screen.ended() == 0
            said = "\n".join(screen.rows)
    elif way == "lines from a pipe":
        ran = subprocess.run(
            [*program, "chat"],
            cwd=ROOT,
            env=environment(home),
            input="My cat is called Miso.\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        said = ran.stdout + ran.stderr
    else:
        shell = f'"$0" -c "$1" chat > {tmp_path}/out'
        with Screen(program[2], env=environment(home), program=("sh", "-c", shell, program[0])) as screen:
            screen.type(f"My cat is called Miso.{ENTER}")
            screen.wait(lambda _: "Saved" in (tmp_path / "out").read_text() if (tmp_path / "out").exists() else False)
            screen.type(CTRL_D)
            assert screen.ended() == 0
        said = (tmp_path / "out").read_text()
    assert "Saved: My cat is called Miso." in said
    assert "Which one" not in said


def unnamed(home: Path, *arguments: str, **more: str) -> Screen:
    """`hermes` at a terminal, in a home without a name and on a machine without a model."""
    program = ("env", "-u", "HERMES_OWNER_NAME", sys.executable, "-c", PROGRAM.format(port=1))
    return Screen(*arguments, env=environment(home, **more), columns=100, program=program)


def test_the_first_start_asks_the_name_once_and_keeps_it(home: Path) -> None:
    with unnamed(home, "chat") as screen:
        screen.wait_for("What is your name?").type(f"I'm Nina{ENTER}")
        screen.wait_for("Hello Nina!").wait_for_prompt().type(CTRL_D)
        assert screen.ended() == 0
    assert "name: Nina" in (home / "config.yaml").read_text()
    assert (home / "memories" / "USER.md").read_text().strip() == "My name is Nina."
    with unnamed(home, "chat") as screen:
        screen.wait_for_prompt()
        assert "your name" not in "\n".join(screen.rows)


def test_a_name_may_be_skipped_and_is_not_asked_again(home: Path) -> None:
    with unnamed(home, "chat") as screen:
        screen.wait_for("What is your name?").type(ENTER)
        screen.wait_for_prompt().type(CTRL_D)
        assert screen.ended() == 0
    assert not (home / "config.yaml").exists()
    with unnamed(home, "chat") as screen:
        screen.wait_for_prompt()
        assert "your name" not in "\n".join(screen.rows)


def test_a_message_typed_where_a_name_was_asked_is_said(home: Path) -> None:
    with unnamed(home, "chat") as screen:
        screen.wait_for("What is your name?").type(f"Please remember that my cat is called Miso.{ENTER}")
        screen.wait_for("Saved: Please remember that my cat is called Miso.").type(CTRL_D)
        assert screen.ended() == 0
    assert not (home / "config.yaml").exists()


def test_a_message_typed_where_memory_asked_is_said(home: Path) -> None:
    (home / "memory").mkdir(parents=True)
    (home / "memory" / "memory.db").touch()
    with (
        serving([], then={"echo": True}) as endpoint,
        unnamed(home, "chat", OPENAI_BASE_URL=endpoint.base_url, HERMES_MODEL="tea-1", HERMES_OWNER_NAME="") as screen,
    ):
        screen.wait_for("What is your name?").type(ENTER)
        screen.wait_for("May memory use it?").type(f"What is my cat called?{ENTER}")
        screen.wait_for(SENT_AS_MESSAGE.partition(";")[0])
        screen.wait(lambda seen: sum("What is my cat called?" in row for row in seen.rows) > 2)  # asked, said, echoed
        screen.wait_for_prompt().type(CTRL_D)
        assert screen.ended() == 0
    assert not (home / "memory" / "model.json").exists(), "the next start asks again"


def test_a_question_from_a_script_asks_no_name(home: Path) -> None:
    with unnamed(home, "chat", "-q", "My cat is called Miso.") as screen:
        assert screen.ended() == 0
        assert "your name" not in "\n".join(screen.rows)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("nina", "nina"),
        ("My name is Nina.", "Nina"),
        ("Anna Maria Müller", "Anna Maria Müller"),
        ("Иван", "Иван"),
        ("hi", None),
        ("What can you do?", None),
        ("/help", None),
        ("Remember that my cat is called Miso", None),
        ("x" * 61, None),
        ("</memory>", None),
        ("", None),
    ],
)
def test_only_a_name_is_taken_for_one(given: str, name: str | None) -> None:
    assert read_name(given) == name
