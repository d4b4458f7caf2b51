"""`/undo` and `/retry` in the real program: at a terminal, and from a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.chatting import chat, environment, serving
from tests.cli.screen import ENTER, Screen

pytestmark = pytest.mark.processes
ONE, TWO = {"says": {"text": "The first answer."}}, {"says": {"text": "The second answer."}}


@pytest.mark.contract("10.25", "10.26")
def test_at_a_terminal_the_new_reply_is_shown_as_it_comes_and_both_can_be_taken_back(home: Path) -> None:
    hanging = {"says": {"text": "The third begins", "ending": "hang"}}
    with (
        serving([ONE, TWO, hanging]) as endpoint,
        Screen("chat", env=environment(home, endpoint.base_url)) as screen,
    ):
        screen.wait_for_prompt().type("hello" + ENTER)
        screen.wait_for("The first answer.").wait_for_prompt().type("/retry" + ENTER)
        screen.wait_for("Asking again: “hello”")
        screen.wait_for("The second answer.").wait_for_prompt().type("/retry" + ENTER)
        screen.wait_for("The third begins").type("/stop" + ENTER)
        screen.wait_for("(stopped)").wait_for_prompt().type("/undo" + ENTER)
        screen.wait_for("Took back the last turn (2 messages): “hello” and what followed.")
        assert [m["content"] for m in endpoint.requests()[-1]["messages"] if m["role"] != "system"] == ["hello"]


@pytest.mark.contract("10.25", "10.26")
def test_from_a_pipe_a_retry_is_a_line_like_any_reply(home: Path) -> None:
    with serving([ONE, TWO]) as endpoint:
        ran = chat(environment(home, endpoint.base_url), said="hello\n/retry\n/undo\n/undo\n")
    assert ran.out == "The first answer.\nThe second answer.\n"
    assert "Took back the last turn (2 messages)" in ran.err
    assert "nothing was said yet" in ran.err
    assert ran.code == 1
