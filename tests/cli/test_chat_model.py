"""`hermes chat -m NAME`, and `hermes model`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hermes.cli.model import HOW_TO_CHOOSE
from tests.cli.chatting import chat, configure, environment, serving
from tests.cli.screen import CTRL_D, ENTER, Screen
from tests.conftest import Ran
from tests.db.processes import ROOT

pytestmark = pytest.mark.processes

PAGES = {"/v1/models": {"body": '{"data": [{"id": "loop-1"}, {"id": "loop-2"}]}'}}


@pytest.mark.contract("10.30")
def test_one_question_is_answered_by_the_model_that_is_named(tmp_path: Path) -> None:
    with serving([], then={"echo": True}, pages=PAGES) as endpoint:
        env = environment(tmp_path / "home", endpoint.base_url)
        asked = chat(env, "-m", "loop-2", "-q", "hello")
        assert (asked.code, asked.out, asked.err) == (0, "hello\n", "")
        gone_on = chat(env, "-c", "-q", "and now")
        assert gone_on.code == 0
        assert [body["model"] for body in endpoint.requests()] == ["loop-2", "loop-2"]


@pytest.mark.contract("10.30")
def test_a_name_that_is_not_there_is_one_line_and_begins_no_session(tmp_path: Path) -> None:
    with serving([], then={"echo": True}, pages=PAGES) as endpoint:
        env = environment(tmp_path / "home", endpoint.base_url)
        asked = chat(env, "-m", "loop-3", "-q", "hello")
        assert asked.code == 2
        assert "has no model 'loop-3' (did you mean loop-2 or loop-1?). `hermes model` lists the models\n" in asked.err
        assert endpoint.requests() == []
    without = chat(environment(tmp_path / "other"), "-m", "loop-1", "-q", "hello")
    assert without.err.startswith("hermes: no model is configured")


@pytest.mark.contract("10.30")
def test_an_endpoint_that_lists_nothing_is_believed_and_a_line_says_so(tmp_path: Path) -> None:
    with serving([], then={"echo": True}) as endpoint:
        asked = chat(environment(tmp_path / "home", endpoint.base_url), "-m", "loop-9", "-q", "hello")
        assert (asked.code, asked.out) == (0, "hello\n")
        assert asked.err.startswith("Whether loop-9 exists could not be checked")
        assert [body["model"] for body in endpoint.requests()] == ["loop-9"]


def model(env: Mapping[str, str], *words: str) -> Ran:
    command = [sys.executable, "-m", "hermes", "model", *words]
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.contract("10.50")
def test_model_lists_what_there_is_and_takes_one_of_them_alone(home: Path) -> None:
    pages = {"/v1/models": {"body": '{"data": [{"id": "an-embedding"}, {"id": "tea-2"}, {"id": "tea-1"}]}'}}
    with serving([], then={"echo": True}, pages=pages) as endpoint:
        configure(home, f"model:\n  base_url: {endpoint.base_url}\n")
        env = environment(home)
        shown = model(env).out.splitlines()
        assert shown[0] == f"tea-2 at {endpoint.base_url}, 128,000 tokens"
        assert shown[2:] == [
            "Tools: offered, by `model.tools`",
            f"{endpoint.base_url} has:",
            "  an-embedding",
            "* tea-2",
            "  tea-1",
            HOW_TO_CHOOSE,
        ]
        refused = model(env, "tea-3")
        assert refused.code == 2
        assert "has no model 'tea-3' (did you mean tea-2 or tea-1?). `hermes model` lists" in refused.err
        taken = model(env, "tea-1")
        assert (taken.code, taken.out, taken.err) == (0, "From now on tea-1 answers.\n", "")
        assert json.loads(model(env, "--json").out)["configured"]["model"] == "tea-1"
        asked = chat(env, "-q", "hello")
        assert (asked.out, asked.err) == ("hello\n", "")
        assert endpoint.requests()[-1]["model"] == "tea-1"


@pytest.mark.contract("7.11")
def test_a_model_is_tested_once_and_again_when_asked(home: Path) -> None:
    """With real processes: the verdict is stored in the home, the notice appears once, and three commands show it."""
    looks_up = {"says": {"calls": [["find_contact", '{"name": "Ada"}']]}}
    sends = {"says": {"calls": [["send_text", '{"number": "555-0142", "text": "home at six"}']]}}
    answers = [{"says": {"text": "I cannot."}}, {"echo": True}, {"echo": True}, looks_up, sends]
    with serving(answers, then={"echo": True}, pages=PAGES) as endpoint:
        configure(home, f"model:\n  base_url: {endpoint.base_url}\n")
        env = environment(home, HERMES_MODEL_TOOLS="auto")
        first, second = chat(env, "-q", "hello"), chat(env, "-q", "again")
        assert (first.out, second.out) == ("hello\n", "again\n")
        assert "loop-1 is offered no tools: it answered in words" in first.err
        assert "tools" not in second.err
        assert [len(body.get("tools", ())) for body in endpoint.requests()] == [2, 0, 0]
        command = [sys.executable, "-m", "hermes", "memory", "status"]
        status = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert "tools     loop-1: none: it answered in words" in status.stdout
        tested = model(env, "--test")
        assert tested.out == "loop-1 passed the test.\nTools: offered: it passed the test\n"
        chat(env, "-q", "now")
        assert "memory" in str(endpoint.requests()[-1]["tools"])


@pytest.mark.contract("7.11")
def test_tools_are_switched_per_model_and_yaml_takes_on_and_off(home: Path) -> None:
    with serving([], then={"echo": True}, pages=PAGES) as endpoint:
        configure(home, f"model:\n  base_url: {endpoint.base_url}\n  tools: {{loop-1: off, '*': on}}\n")
        env = environment(home)
        del env["HERMES_MODEL_TOOLS"]
        chat(env, "-q", "hello")
        chat(env, "-m", "loop-2", "-q", "hello")
        assert [bool(body.get("tools")) for body in endpoint.requests()] == [False, True]


@pytest.mark.contract("10.50")
def test_at_a_terminal_model_asks_which_one_shall_answer(home: Path) -> None:
    with serving([], then={"echo": True}, pages=PAGES) as endpoint:
        configure(home, f"model:\n  base_url: {endpoint.base_url}\n")
        for typed, taken in (("", "loop-1"), ("loop-2", "loop-2")):
            with Screen("model", env=environment(home), columns=100) as screen:
                screen.wait_for("*1  loop-1").wait_for("Number or word [loop-1]:").type(typed + ENTER)
                assert screen.ended() == 0
            assert f"default: {taken}" in (home / "config.yaml").read_text()


@pytest.mark.contract("10.50")
def test_the_status_line_names_the_model_that_will_answer(home: Path) -> None:
    with serving([], then={"echo": True}, pages=PAGES) as endpoint:
        env = environment(home, endpoint.base_url, HERMES_MODEL="")
        with Screen("chat", env=env, columns=100) as screen:
            screen.wait(lambda seen: seen.status.startswith("model loop-1 "))
            screen.type(f"hello{ENTER}")
            screen.wait_for("loop-1 answers, the first of 2 at")
            screen.wait_for_prompt().type(CTRL_D)
            assert screen.ended() == 0
        with Screen("chat", "-c", env=env, columns=100) as screen:
            screen.wait(lambda seen: seen.status.startswith("model loop-1 "))
