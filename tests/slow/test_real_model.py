"""A conversation with a real model: facts of one session are known in the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.real_model import NAME, WINDOW_TOKENS
from tests.cli.screen import CTRL_D, ENTER, Screen

REPLY_TIMEOUT_SECONDS = 300.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("HERMES_SLOW") != "1", reason="needs a model of 1.2 GB: `make slow` fetches it"),
]


@pytest.fixture
def env(base_url: str, home: Path) -> dict[str, str]:
    home.mkdir()
    settings = (
        f"model:\n  base_url: {base_url}\n  context_length: {WINDOW_TOKENS}\n  tools: on\nagent:\n  max_steps: 6\n"
    )
    (home / "config.yaml").write_text(settings, encoding="utf-8")
    passed = {name: os.environ[name] for name in ("PYTHONPATH", "LANG") if name in os.environ}
    return {**passed, "HERMES_HOME": str(home), "PYTHONUTF8": "1"}


def test_a_fact_told_in_one_session_is_noted_and_known_in_the_next(env: dict[str, str], home: Path) -> None:
    with Screen("chat", env=env, patience=REPLY_TIMEOUT_SECONDS) as screen:
        screen.wait_for_prompt()
        screen.type("Note this with the memory tool (action add, target user): my sister Ada lives in Oslo." + ENTER)
        screen.wait_for("Memory updated").wait(lambda screen: f"model {NAME}" in screen.status)
        screen.type("/new" + ENTER)  # waits for the end of the turn
        screen.wait(lambda screen: "session new" in screen.status)
        screen.type(CTRL_D)
        assert screen.ended() == 0
    notes = "".join(path.read_text(encoding="utf-8") for path in (home / "memories").glob("*.md"))
    assert "Oslo" in notes

    asked = [sys.executable, "-m", "hermes", "chat", "-q", "In which city does my sister Ada live? Answer in one word."]
    done = subprocess.run(asked, env={**os.environ, **env}, capture_output=True, text=True, check=True)
    assert "Oslo" in done.stdout


def test_the_configured_model_is_asked_and_answers(env: dict[str, str]) -> None:
    asked = [sys.executable, "-m", "hermes", "model", "--json"]
    done = subprocess.run(asked, env={**os.environ, **env}, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["configured"]["ok"]
