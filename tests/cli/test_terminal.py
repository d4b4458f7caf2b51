"""`hermes chat` at a terminal."""

from __future__ import annotations

import base64
import json
import re
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hermes.cli.chat import TWO_SESSIONS
from hermes.settings import TABLE
from hermes.slash.acts import NOT_COMPRESSED
from hermes.slash.table import OFFERED
from tests.cli.screen import ALT_ENTER, CTRL_C, CTRL_D, ENTER, PAINT, TAB, UP, Chat, Screen, plain_env, stored

pytestmark = pytest.mark.processes

REMARK = {"says": {"calls": [("memory", '{"action": "nonsense", "target": "user"}')]}}


@pytest.mark.contract("10.1")
def test_a_reply_is_seen_before_it_ends_and_ctrl_c_keeps_what_was_said(chat: Chat, home: Path) -> None:
    with chat({"says": {"text": "The beginning of it", "ending": "hang"}}) as screen:
        screen.wait_for("· /help, ").wait_for_prompt()
        screen.wait(lambda screen: screen.status == "model loop-1 · session new · memory notes")
        screen.type("hello" + ENTER)
        screen.wait_for("The beginning of it")
        screen.wait(lambda screen: "session 2" in screen.status)
        screen.type(CTRL_C)
        screen.wait_for_rows("› hello", "The beginning of it", "(stopped)", "", "›")
        assert stored(home) == [("user", "hello"), ("assistant", "The beginning of it")]


def test_stop_ends_a_reply_and_queued_messages_run_next(chat: Chat, home: Path) -> None:
    with chat({"says": {"text": "So it goes", "ending": "hang"}}) as screen:
        screen.wait_for_prompt().type("one" + ENTER)
        screen.wait_for("So it goes").type("and then two" + ENTER)
        screen.wait_for("next: and then two").type("half a th")
        screen.wait(lambda screen: screen.prompt == "› half a th")
        screen.type("\x15/stop" + ENTER)
        screen.wait_for("(stopped)").wait_for("› and then two")
        screen.wait(lambda _: len(stored(home)) == 4).wait_for_prompt()
        screen.wait(lambda screen: "next:" not in "\n".join(screen.rows))
        assert "/stop" not in "\n".join(screen.rows)
        assert [content for _, content in stored(home)] == ["one", "So it goes", "and then two", "and then two"]


@pytest.mark.contract("10.52")
def test_ctrl_c_stops_the_reply_and_what_was_typed_ahead_stands_in_the_prompt_again(chat: Chat, home: Path) -> None:
    with chat({"says": {"text": "So it goes", "ending": "hang"}}) as screen:
        screen.wait_for_prompt().type("one" + ENTER)
        screen.wait_for("So it goes").type("two" + ENTER)
        screen.wait_for("next: two").type("three" + ENTER)
        screen.wait_for("next: three").type("half")
        screen.wait(lambda screen: screen.prompt == "› half").type(CTRL_C)
        screen.wait_for_rows("› one", "So it goes", "(stopped)", "", "› two", "", "  three", "", "  half")
        screen.type(CTRL_C)
        screen.wait_for_rows("(stopped)", "", "›").type("four" + ENTER)
        screen.wait(lambda _: len(stored(home)) == 4)
        assert [content for _, content in stored(home)] == ["one", "So it goes", "four", "four"]


@pytest.mark.contract("2.6")
@pytest.mark.contract("10.1")
def test_keys_are_taken_one_by_one_while_rows_are_printed(chat: Chat) -> None:
    reply = "".join(f"row {number}\n\n" for number in range(2000))
    with chat({"says": {"text": reply, "piece": 40, "pause": 0.02}}) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        screen.wait_for("row 3")
        seen = threading.Event()
        with ThreadPoolExecutor(1) as watcher:
            stolen = watcher.submit(lambda: any(screen.takes_whole_lines for _ in iter(seen.is_set, True)))
            try:
                screen.wait(lambda screen: any(re.fullmatch(r"row \d{3,}", row) for row in screen.rows))
            finally:
                seen.set()
        assert not stolen.result()


def test_stop_typed_while_a_compression_runs_ends_it_and_nothing_is_removed(chat: Chat, home: Path) -> None:
    said = "".join(f"{number} {'stamps from Malta ' * 60}\n" for number in range(8))
    talking = [sys.executable, "-m", "hermes", "chat"]
    subprocess.run(talking, input=said, text=True, env=plain_env(home), capture_output=True, check=True)
    with chat({"says": {"text": "They talked", "ending": "hang"}}) as screen:
        screen.wait_for_prompt().type("/sessions" + ENTER)
        screen.wait_for("resumes one")
        session = next(row.split()[0] for row in screen.rows if "0 stamps" in row)
        screen.type(f"/resume {session}" + ENTER)
        screen.wait_for("Resuming 2").wait_for_prompt().type("/compress" + ENTER)
        screen.wait_for("Ctrl-C stops it").type("/stop" + ENTER)
        screen.wait_for(NOT_COMPRESSED.partition(",")[0]).wait_for_prompt().type("/stop" + ENTER)
        screen.wait_for("Nothing is running.")
    assert len(stored(home)) == 16


def test_a_sign_of_waiting_comes_and_leaves_nothing_behind(chat: Chat, tmp_path: Path) -> None:
    with chat({"says": {"text": "At last.", "until": str(tmp_path / "now")}}) as screen:
        screen.wait_for_prompt().type("well?" + ENTER)
        screen.wait_for("Ctrl-C stops it")
        (tmp_path / "now").touch()
        screen.wait_for_rows("› well?", "At last.", "", "›")


def test_tools_notes_and_failures_are_one_row_each(chat: Chat) -> None:
    note = json.dumps({"action": "add", "target": "user", "content": "Likes tea"})
    calls = {"says": {"calls": [["memory", note]]}}
    with chat(calls, {"says": {"text": "Noted."}}, {"fails": {"status": 401, "message": "bad key"}}) as screen:
        screen.wait_for_prompt().type("I like tea" + ENTER)
        screen.wait_for_rows("Noted.", "", "›")
        assert screen.rows[3].startswith("· memory action: add, target: user, content: Likes tea ✓ ")
        assert screen.rows[4].endswith("Memory updated: Likes tea")
        screen.type("again" + ENTER)
        screen.wait_for("hermes: 127.0.0.1").wait_for_prompt()


def test_after_a_reply_that_broke_off_the_way_to_ask_again_is_named(chat: Chat) -> None:
    with chat({"says": {"text": "It begins", "ending": "reset"}}, columns=200) as screen:
        screen.wait_for_prompt().type("well?" + ENTER)
        screen.wait_for("(`/retry` tries again)").wait_for_prompt()


def test_long_replies_break_between_words_and_code_stays_whole(chat: Chat) -> None:
    code = "```\nx = 'this is one line of code'\n```"
    text = f"\n\nThese are words that do not fit.\n\n{code}\n漢字とかな交じり文が続く長い行\n\n"
    with chat({"says": {"text": text}}, columns=24) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        words = ["These are words that do", "not fit.", ""]
        wrapped = ["```", "x = 'this is one line of", " code'", "```"]
        screen.wait_for_rows("› go", *words, *wrapped, "漢字とかな交じり文が続く", "長い行", "", "›")


def test_pasted_and_alt_enter_lines_are_one_message(chat: Chat, home: Path) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type("first" + ALT_ENTER + "second\x1b[200~ and\rthird\x1b[201~")
        screen.wait(lambda screen: screen.prompt == "  third")
        assert stored(home) == []
        screen.type(ENTER)
        screen.wait(lambda _: stored(home) != [])
        assert stored(home)[0] == ("user", "first\nsecond and\nthird")


def test_history_is_for_this_user_alone_and_is_there_in_the_next_run(home: Path, chat: Chat) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type("remember me" + ENTER)
        screen.wait_for_prompt().type(CTRL_D)
        assert screen.ended() == 0
    assert stat.S_IMODE((home / "chat_history").stat().st_mode) == 0o600
    with chat() as screen:
        screen.wait_for_prompt().type(UP)
        screen.wait(lambda screen: screen.prompt == "› remember me")


def test_tab_completes_commands_sessions_and_words(chat: Chat, home: Path) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type("hello" + ENTER)
        screen.wait(lambda _: len(stored(home)) == 2).wait_for_prompt().type("/re")
        screen.wait_for("Go on with another session").type(TAB)
        screen.wait(lambda screen: screen.prompt == "› /resume").type(" 2")
        screen.wait(lambda screen: "hello" in screen.rows[screen.rows.index(screen.prompt) + 1])
        screen.type(TAB)
        screen.wait(
            lambda screen: screen.prompt.startswith("› /resume 2") and len(screen.prompt) == len("› /resume ") + 24
        )
        screen.type(CTRL_C + "/memory o")
        screen.wait_for("Incognito from here on")


def test_commands_are_seen_in_the_status_line(chat: Chat) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type("/title Garden" + ENTER)
        screen.wait(lambda screen: "session Garden" in screen.status).type("hello" + ENTER)
        screen.wait_for_prompt().type("/memory off" + ENTER)
        screen.wait(lambda screen: "memory incognito" in screen.status).type("/memory on" + ENTER)
        screen.wait(lambda screen: "memory notes" in screen.status).type("/new" + ENTER)
        screen.wait(lambda screen: "session new" in screen.status).type("/sessions" + ENTER)
        screen.wait_for("`/resume ID` resumes one").type("/resume Garden" + ENTER)
        screen.wait(lambda screen: "session Garden" in screen.status)
        screen.wait_for("(2 messages)")


def test_help_lists_every_command_and_an_unknown_one_says_so(chat: Chat, home: Path) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type("/help" + ENTER)
        for command in OFFERED["terminal"].values():
            screen.wait_for(f"/{command.usage}")
        screen.type("/frobnicate" + ENTER)
        screen.wait_for("there is no command /frobnicate").type(" /etc is a folder" + ENTER)
        screen.wait(lambda _: stored(home) != [])
        assert stored(home)[0] == ("user", "/etc is a folder")


def test_a_failing_memory_provider_is_seen_in_the_status_line(chat: Chat, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("memory:\n  provider: nowhere\n", encoding="utf-8")
    with chat() as screen:
        screen.wait_for_prompt().wait(lambda screen: screen.status.endswith("memory notes + nowhere"))
        screen.type("hello" + ENTER)
        screen.wait_for("going on without")
        screen.wait(lambda screen: screen.status.endswith("notes + nowhere (failing)"))
        screen.type(CTRL_D)
        assert screen.ended() == 0
        assert b"exception" not in screen.raw.lower()


def test_without_a_model_it_says_so_and_answers(home: Path) -> None:
    with Screen("chat", env=plain_env(home)) as screen:
        screen.wait_for_prompt().wait(lambda screen: screen.status == "model none · session new · memory notes")
        screen.type("hello" + ENTER)
        screen.wait_for("No model is configured").wait_for_prompt()


def test_who_leaves_is_told_of_what_was_typed_ahead_and_not_said(chat: Chat, home: Path) -> None:
    with chat({"says": {"text": "one two", "ending": "hang"}}) as screen:
        screen.wait_for_prompt().type("first" + ENTER)
        screen.wait_for("one two").type("second" + ENTER)
        screen.wait_for("next: second").type("third" + ENTER)
        screen.type("/quit" + ENTER)
        screen.wait_for("2 messages were not sent.")
        assert screen.ended() == 0
    assert not {"second", "third"} & {text for _, text in stored(home)}


@pytest.mark.parametrize("keys", [CTRL_D, CTRL_C + CTRL_C, "/quit" + ENTER, "/exit" + ENTER])
def test_every_way_out_ends_with_0_and_says_how_to_come_back(keys: str, chat: Chat, home: Path) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type("hello" + ENTER)
        screen.wait_for_prompt().type("/title Greeting" + ENTER)
        screen.wait_for("Title: Greeting").wait_for_prompt()
        if keys == CTRL_C + CTRL_C:  # one after the other: two signals in the same moment are one
            screen.type(CTRL_C)
            screen.wait_for("Ctrl-C again")
            keys = CTRL_C
        screen.type(keys)
        assert screen.ended() == 0
        screen.wait_for("`hermes chat -s 2")


def test_who_goes_on_sees_where_and_what_was_said_last(chat: Chat, home: Path) -> None:
    env = plain_env(home)
    done = [sys.executable, "-m", "hermes", "chat"]
    subprocess.run(
        done, input="/title Tea\nI drink tea\nwhat do I drink?\n", text=True, env=env, capture_output=True, check=True
    )
    with Screen("chat", "-c", env=env) as screen:
        screen.wait_for("“Tea” (4 messages).").wait_for_rows(
            "› what do I drink?", "From memory: “I drink tea”", "", "›"
        )
        screen.type("/new" + ENTER)
        screen.wait_for("A new session begins").type("/resume Tea" + ENTER)
        screen.wait(lambda screen: "\n".join(screen.rows).count("Resuming 2") == 2)


def test_one_ctrl_c_clears_the_line_or_asks_again(chat: Chat) -> None:
    with chat() as screen:
        screen.wait_for_prompt().type("some words")
        screen.wait(lambda screen: screen.prompt == "› some words").type(CTRL_C)
        screen.wait_for_prompt().type(CTRL_C)
        screen.wait(lambda screen: screen.status == "Ctrl-C again to leave").type("x")
        screen.wait(lambda screen: "memory notes" in screen.status)


def test_a_closed_window_keeps_what_was_said(chat: Chat, home: Path) -> None:
    with chat({"says": {"text": "Half of a rep", "ending": "hang"}}) as screen:
        screen.wait_for_prompt().type("hello" + ENTER)
        screen.wait_for("Half of a rep")
        screen.process.send_signal(signal.SIGHUP)
        assert screen.ended() == 128 + signal.SIGHUP
    assert stored(home) == [("user", "hello"), ("assistant", "Half of a rep")]


def test_narrow_and_resized_windows_keep_prompt_and_status_in_one_row(chat: Chat) -> None:
    with chat({"says": {"text": "Some words, and more to come", "ending": "hang"}}, columns=40) as screen:
        screen.wait_for_prompt().type("hello" + ENTER)
        screen.wait_for("more to come")
        screen.resize(30)
        screen.wait(lambda screen: screen.status.startswith("loop-1 · 20") and screen.status.endswith("· notes"))
        screen.resize(80)
        screen.wait(lambda screen: screen.status.startswith("model loop-1"))
        assert "\n".join(screen.rows).count("more to come") == 1


def test_a_terminal_that_cannot_redraw_gets_plain_rows(chat: Chat) -> None:
    with chat(REMARK, env={"TERM": "dumb"}) as screen:
        screen.wait_for("›").type("hello there\n")
        screen.wait_for("· memory").wait_for("hello there").type("/quit\n")
        assert screen.ended() == 0
    assert b"\x1b" not in screen.raw


def test_reply_that_turns_the_direction_of_writing_is_shown_without_that(chat: Chat) -> None:
    with chat({"says": {"text": "pay \u202e0001 to\u2067 him"}}) as screen:
        screen.wait_for_prompt().type("hello" + ENTER)
        screen.wait_for("pay 0001 to him")
    assert "\u202e".encode() not in screen.raw


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"HERMES_COLOR": "never"}])
def test_where_no_color_is_wanted_nothing_is_painted(chat: Chat, env: dict[str, str]) -> None:
    with chat(REMARK, {"says": {"text": "x", "ending": "hang"}}, env=env) as screen:
        screen.wait_for_prompt().type("hello" + ENTER)
        screen.wait_for("· memory").wait_for("x").wait_for("Ctrl-C stops it").type(CTRL_C)
        screen.wait_for("(stopped)").wait_for_prompt()
    assert PAINT.findall(screen.raw) == []


def test_where_it_is_wanted_remarks_are_dim(chat: Chat) -> None:
    with chat(REMARK) as screen:
        screen.wait_for_prompt().type("hello" + ENTER)
        screen.wait_for("· memory").wait_for_prompt()
    assert PAINT.findall(screen.raw)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"HERMES_COLOR": "never"}, {}])
def test_tables_are_painted_only_where_that_is_wanted(home: Path, env: dict[str, str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "hermes", "chat", "-q", "x"], env=plain_env(home), capture_output=True, check=True
    )
    with Screen("sessions", "list", env={**plain_env(home), **env}) as screen:
        screen.wait_for("source")
        assert screen.ended() == 0
    assert bool(PAINT.findall(screen.raw)) == (not env)


def test_settings_are_listed_with_whole_names_in_a_narrow_window(home: Path) -> None:
    unset = {**plain_env(home), "HERMES_MEMORY_PROVIDER": ""}
    with Screen("config", "list", env=unset, columns=80, rows=400) as screen:
        assert screen.ended() == 0
        first = {row.split()[0] for row in screen.rows if row and not row.startswith(" ")}
    assert {setting.key for setting in TABLE} <= first


def test_two_sessions_at_once_are_refused(home: Path) -> None:
    with Screen("chat", "-c", "-s", "x", env=plain_env(home)) as screen:
        screen.wait_for(TWO_SESSIONS)
        assert screen.ended() == 2


@pytest.mark.contract("10.32")
def test_copy_gives_the_last_reply_to_the_terminal_which_shows_nothing_of_it(chat: Chat) -> None:
    with chat({"says": {"text": "Grüße"}}) as screen:
        screen.wait_for_prompt().type("hello" + ENTER)
        screen.wait_for("Grüße").wait_for_prompt().type("/copy" + ENTER)
        screen.wait_for("The last reply, 5 characters, was sent to the terminal").wait_for_prompt()
        encoded = base64.b64encode("Grüße".encode())
        assert b"\x1b]52;c;" + encoded + b"\a" in screen.raw
        assert encoded.decode() not in "\n".join(screen.rows)
