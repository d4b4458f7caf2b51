"""A conversation on screen: Markdown, styles, tool calls, pastes."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from hermes.cli.talk import PLAIN_GREETING
from tests.cli.chatting import configure
from tests.cli.screen import CTRL_D, ENTER, PAINT, UP, Chat, Screen, stored

pytestmark = pytest.mark.processes

REPLY = """# Sorting

It takes **memory** and `compare()`.

```python
import x
```

| name | cost |
|------|-----:|
| merge | 12 |
"""
AS_MEANT = (
    *("Sorting", "", "It takes memory and compare().", "", "```python", "import x", "```", ""),
    *("name   cost", "─────  ────", "merge    12"),
)
AS_WRITTEN = REPLY.rstrip("\n").split("\n")
LONG = "".join(f"line {number}\n" for number in range(2000))


def paste(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


@pytest.mark.contract("10.20")
def test_markdown_is_shown_as_it_is_meant_and_stored_as_it_was_written(chat: Chat, home: Path) -> None:
    with chat({"says": {"text": REPLY}}) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        screen.wait_for_rows("› go", *AS_MEANT, "", "›")
        assert screen.style_of("memory") == ("default", True)
        assert screen.style_of("import") == ("magenta", False)
        screen.wait(lambda _: len(stored(home)) == 2)
    assert stored(home)[1] == ("assistant", REPLY)


@pytest.mark.contract("10.20")
def test_the_first_row_is_formatted_while_the_rest_is_still_to_come(chat: Chat) -> None:
    with chat({"says": {"text": "# Sorting\nIt takes **mem", "ending": "hang"}}) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        screen.wait_for_rows("› go", "Sorting", "It takes **mem")


@pytest.mark.contract("10.20")
def test_the_reply_to_one_question_at_a_terminal_is_formatted_as_it_comes(chat: Chat) -> None:
    whole = {"text": f"{REPLY}\nand then \x1b[2J", "piece": 1000, "ending": "hang"}
    with chat({"says": whole}, more=("-q", "go")) as screen:
        screen.wait_for_rows(*AS_MEANT)
        assert screen.style_of("memory") == ("default", True)
        screen.process.send_signal(signal.SIGINT)
        screen.wait_for_rows("and then [2J", "hermes: stopped")
        assert screen.ended() == 130


@pytest.mark.contract("10.20")
def test_a_table_that_grows_is_drawn_over_and_leaves_nothing_behind(chat: Chat) -> None:
    rows = "".join(f"| {'wide ' * number} | {number} |\n" for number in range(1, 6))
    text = f"| what | n |\n|---|---|\n{rows}\nafter"
    with chat({"says": {"text": text, "pause": 0.01}}, columns=60) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        screen.wait_for_rows("› go", f"what{' ' * 22}n", f"{'─' * 24}  ─", f"wide{' ' * 22}1", f"wide wide{' ' * 17}2")
        screen.wait_for_rows("wide wide wide wide wide  5", "", "after", "", "›")
        assert "\n".join(screen.rows).count("what") == 1


@pytest.mark.contract("10.20")
def test_without_colours_the_shape_is_made_and_nothing_is_painted(chat: Chat) -> None:
    with chat({"says": {"text": REPLY}}, env={"NO_COLOR": "1"}) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        screen.wait_for_rows("# Sorting", "", "It takes **memory** and `compare()`.")
        screen.wait_for_rows("name   cost", "─────  ────", "merge    12", "", "›")
    assert PAINT.findall(screen.raw) == []


@pytest.mark.contract("10.20")
def test_markdown_stays_as_written_where_rows_cannot_be_drawn_over(chat: Chat) -> None:
    with chat({"says": {"text": REPLY}}, env={"TERM": "dumb"}) as screen:
        screen.wait_for("›")
        assert screen.rows[0] == PLAIN_GREETING, "Alt-Enter does nothing here"
        screen.type("go\n")
        screen.wait_for_rows(*AS_WRITTEN).type("/quit\n")
        assert screen.ended() == 0
    assert b"\x1b" not in screen.raw


@pytest.mark.contract("10.20")
def test_markdown_can_be_switched_off(chat: Chat, home: Path) -> None:
    configure(home, "display:\n  markdown: false\n")
    with chat({"says": {"text": REPLY}}) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        screen.wait_for_rows("› go", *AS_WRITTEN, "", "›")


@pytest.mark.contract("10.20")
def test_no_control_character_of_a_reply_reaches_the_terminal(chat: Chat) -> None:
    hidden = "\x1b]0;title\x07 **\x1b[31mred** `\x9b5n` [a](http://b\x1b[2J)\n| \x1b[H |\n|---|\n| \x08\x08x |\n"
    hidden += "```py\nif \x1b[2J:\n```\n"
    with chat({"says": {"text": hidden}}) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        screen.wait_for("]0;title [31mred 5n a (http://b[2J)").wait_for_prompt()
    shown = screen.raw[screen.raw.index(b"]0;title") - 1 :]
    for code in (b"\x1b]0", b"\x1b[31m", b"\x1b[2J", b"\x9b5n", b"\x08\x08x"):
        assert code not in shown.replace("\u009b5n".encode(), b"!"), code


@pytest.mark.contract("10.21")
def test_what_the_person_said_is_told_apart_from_the_reply(chat: Chat) -> None:
    with chat({"says": {"text": "the reply"}}) as screen:
        screen.wait_for_prompt().type("my words" + ENTER)
        screen.wait_for_rows("› my words", "the reply", "", "›")
        assert screen.style_of("my words") == ("green", True)
        assert screen.style_of("the reply") == ("default", False)


@pytest.mark.contract("10.22")
def test_a_tool_call_is_one_row_while_it_runs_and_when_it_is_over(chat: Chat) -> None:
    note = {"action": "add", "target": "user", "content": "Likes tea " * 20}
    wrong = {"action": "nonsense", "target": "user"}
    calls = {"says": {"calls": [["memory", json.dumps(note)], ["memory", json.dumps(wrong)]]}}
    with chat(calls, {"says": {"text": "Noted."}}, columns=60) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        screen.wait_for_rows("Noted.", "", "›")
        rows = [row for row in screen.rows if row.startswith("·")]
        assert [len(row) <= 60 for row in rows] == [True, True]
        assert rows[0].startswith("· memory action: add, target: user")
        assert re.search(r"… ✓ \d+\.\d s$", rows[0])
        assert re.search(r"✗ \d+\.\d s: \w", rows[1])


@pytest.mark.contract("10.23")
def test_long_pastes_are_shown_as_marks_and_said_whole(chat: Chat, home: Path) -> None:
    one_line = "x" * 5000
    with chat({"says": {"text": "Read."}}) as screen:
        screen.wait_for_prompt().type("see " + paste(LONG) + " and " + paste(one_line) + " and " + paste(LONG.upper()))
        marks = "see [pasted 2,000 lines] and [pasted 5,000 characters] and [pasted 2,000 lines #2]"
        screen.wait_for("#2]").type(" please" + ENTER)
        screen.wait_for("Read.").wait_for_prompt()
        assert f"› {marks} please" in " ".join("\n".join(screen.rows).split())
        assert "line 7" not in "\n".join(screen.rows)
    assert stored(home)[0] == ("user", f"see {LONG} and {one_line} and {LONG.upper()} please")


@pytest.mark.contract("10.23")
def test_a_mark_is_deleted_at_once_and_what_is_around_it_is_edited_as_ever(chat: Chat, home: Path) -> None:
    with chat({"says": {"text": "Read."}}) as screen:
        screen.wait_for_prompt().type("ab" + paste(LONG))
        screen.wait(lambda screen: screen.prompt == "› ab[pasted 2,000 lines]").type("\x7f")
        screen.wait(lambda screen: screen.prompt == "› ab").type("\x7f" + paste(LONG) + "\x01" + "x" + ENTER)
        screen.wait_for("Read.")
    assert stored(home)[0] == ("user", f"xa{LONG.rstrip()}")


@pytest.mark.contract("10.23")
def test_history_keeps_a_paste_whole_and_shows_its_mark(chat: Chat, home: Path) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type(paste(LONG) + ENTER)
        screen.wait(lambda _: len(stored(home)) == 2).wait_for_prompt().type(CTRL_D)
        assert screen.ended() == 0
    with chat() as screen:
        screen.wait_for_prompt().type(UP)
        screen.wait(lambda screen: screen.prompt == "› [pasted 2,000 lines]").type(ENTER)
        screen.wait(lambda _: len(stored(home)) == 4)
    assert stored(home)[2] == stored(home)[0] == ("user", LONG.strip())


def retries(screen: Screen) -> int:
    return "\n".join(screen.rows).count("trying again")


def test_attempts_at_a_failing_endpoint_take_one_row_that_goes_with_them(chat: Chat, tmp_path: Path) -> None:
    failing = {"fails": {"status": 503, "message": "too busy", "headers": {"Retry-After": "1"}}}
    with chat(failing, failing, {"says": {"text": "At last.", "until": str(tmp_path / "now")}}) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        screen.wait_for("(attempt 3)").wait(lambda screen: retries(screen) == 1)
        (tmp_path / "now").touch()
        screen.wait_for_rows("› go", "At last.", "", "›")


@pytest.mark.contract("10.20")
def test_a_window_that_is_resized_while_a_reply_comes_shows_every_row_once(chat: Chat) -> None:
    lines = [f"Line {number} has some words, and **bold** ones too, to be folded or not." for number in range(12)]
    with chat({"says": {"text": "\n".join(lines), "pause": 0.01}}, columns=100) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        for number, columns in enumerate((60, 75, 50, 100)):
            screen.wait_for(f"Line {2 * number} ").resize(columns)
        screen.wait(lambda screen: heads(screen) == [f"Line {number}" for number in range(12)])
        screen.wait(lambda screen: [row for row in screen.rows if row.startswith(("›", "hermes"))][1:] == ["› go", "›"])


def heads(screen: Screen) -> list[str]:
    return [row.split(" has")[0] for row in screen.rows if row.startswith("Line")]
