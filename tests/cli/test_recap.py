"""The recap of a resumed session."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.cli.terminal import UNANSWERED
from tests.cli.screen import CTRL_D, ENTER, Chat, Screen

pytestmark = pytest.mark.processes

REPLY = "# Teas\n\n- **green** tea\n- black tea\n"
LONG = "\n".join(f"- item {number}" for number in range(40))


def talk_once(screen: Screen, said: str, wait_for: str) -> None:
    screen.wait_for_prompt().type(said + ENTER)
    screen.wait_for(wait_for).wait_for_prompt().type(CTRL_D)
    assert screen.ended() == 0


@pytest.mark.contract("10.37")
@pytest.mark.parametrize("way", ["-c", "/resume"])
def test_the_last_exchange_is_seen_as_it_was_shown_then(chat: Chat, way: str) -> None:
    with chat({"says": {"text": REPLY}}) as screen:
        talk_once(screen, "Which teas are there?", "black tea")
    with chat(more=["-c"]) if way == "-c" else chat() as screen:
        if way == "/resume":
            screen.wait_for_prompt().type("/resume" + ENTER)
            screen.wait_for("Esc").type(ENTER)
        screen.wait_for("Resuming 2").wait_for("black tea").wait_for_prompt()
        rows = "\n".join(screen.rows)
        seen = rows[rows.index("Resuming") :].split("\n")[1:6]
        assert seen == ["› Which teas are there?", "Teas", "", "• green tea", "• black tea"]
        assert screen.style_of("Teas")[1], "a heading is bold"


@pytest.mark.contract("10.37")
def test_a_long_reply_is_shown_by_its_beginning(chat: Chat) -> None:
    with chat({"says": {"text": LONG}}) as screen:
        talk_once(screen, "List them", "item 39")
    with chat(more=["-c"]) as screen:
        screen.wait_for("shows all of it)").wait_for_prompt()
        shown = [row for row in screen.rows if "item " in row]
        assert (shown[0], len(shown)) == ("• item 0", 10)


@pytest.mark.contract("10.37")
def test_a_message_without_a_reply_is_told_with_the_way_to_have_it_answered(chat: Chat, home: Path) -> None:
    with chat({"fails": {"status": 401, "message": "bad key"}}) as screen:
        talk_once(screen, "Which teas are there?", "bad key")
    with chat({"says": {"text": "Green ones."}}, more=["-c"]) as screen:
        screen.wait_for_rows("› Which teas are there?", UNANSWERED, "", "›")
        screen.type("/retry" + ENTER)
        screen.wait_for("Green ones.")
