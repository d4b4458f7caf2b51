"""`hermes chat` as people and scripts use it: real processes and an endpoint on loopback."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hermes.agent.offline_answers import UNKNOWN
from hermes.assembly import FLOOR_NOTICE
from hermes.cli.chat import NO_SESSION
from hermes.cli.main import OUTPUT_CLOSED
from hermes.clock import SystemClock
from hermes.store.store import Store
from hermes.types import Draft
from tests.agent.agents import check_conversation
from tests.cli.chatting import chat, configure, environment, events, serving, start_chat, turns
from tests.db.processes import ROOT, await_end, hear

pytestmark = pytest.mark.processes

REPLIES = {"then": {"echo": True}}


@pytest.mark.contract("10.1", "10.5")
def test_without_a_model_chat_answers_from_memory_and_says_so(home: Path) -> None:
    env = environment(home)
    first = chat(env, said="I collect stamps from Malta.\nWhat do I collect?\n")
    assert first.code == 0
    saved, answer = first.out.splitlines()
    assert saved == "Saved: I collect stamps from Malta."
    assert "stamps from Malta" in answer
    assert first.err == FLOOR_NOTICE + "\n"
    later = chat(env, "-q", "What do I collect?")
    assert later.code == 0
    assert "stamps from Malta" in later.out
    assert "What do I" not in later.out, "a question is no answer"


@pytest.mark.contract("10.5")
def test_floor_answers_in_scripts_without_spaces_and_from_notes(home: Path) -> None:
    env = environment(home)
    asked = ["我收集马耳他的邮票。", "我收集什么邮票？", "我的狗叫什么名字？"]
    said = chat(env, said="\n".join([*asked, "When I was five I lived in Gozo.", "Where did I live?"])).out.splitlines()
    assert "我收集马耳他的邮票" in said[1]
    assert said[2] == UNKNOWN[None]
    assert said[3] == "Saved: When I was five I lived in Gozo."
    assert "Gozo" in said[4]
    (home / "memories").mkdir(exist_ok=True)
    (home / "memories" / "USER.md").write_text("- Has a dog named Fido.\n")
    assert "Fido" in chat(env, "-q", "What is my dog called?").out
    assert chat(env, "-q", "Who won the chess match?").out == f"{UNKNOWN[None]}\n"


@pytest.mark.contract("10.5")
def test_a_question_asked_often_does_not_hide_its_answer(home: Path) -> None:
    asked = "I collect stamps from Malta, mostly from before the war, and keep them in a blue album.\n"
    ran = chat(environment(home), said=asked + "tell me what I collect\n" * 3 + "What do I collect?\n" * 40)
    assert all("blue album" in line for line in ran.out.splitlines()[1:])
    assert "tell me" not in ran.out


@pytest.mark.contract("10.1")
def test_one_question_prints_the_reply_alone(home: Path) -> None:
    with serving([{"says": {"text": "Hello,\nyou.", "reasoning": "hm"}}]) as endpoint:
        ran = chat(environment(home, endpoint.base_url), "-q", "hi")
        assert (ran.code, ran.out, ran.err) == (0, "Hello,\nyou.\n", "")
        [request] = endpoint.requests()
        check_conversation(request["messages"])
        assert request["messages"][-1] == {"role": "user", "content": "hi"}
        assert request["model"] == "loop-1"


@pytest.mark.contract("10.1")
def test_without_a_name_the_first_chat_model_answers_and_others_are_named_once(home: Path) -> None:
    listed = [{"id": "an-embedding"}, {"id": "b-model"}, {"id": "a-model"}]
    models = {"/v1/models": {"body": json.dumps({"data": listed})}}
    with serving([], pages=models, **REPLIES) as endpoint:
        ran = chat(environment(home, endpoint.base_url, HERMES_MODEL=""), said="one\ntwo\n")
        assert (ran.code, ran.out) == (0, "one\ntwo\n")
        assert ran.err == (
            f"b-model answers, the first of 2 at {endpoint.base_url}; `hermes model` shows them "
            "and lets you choose one.\n"
        )
        assert [request["model"] for request in endpoint.requests()] == ["b-model", "b-model"]
        gone_on = chat(environment(home, endpoint.base_url, HERMES_MODEL=""), "-c", "-q", "three")
        assert (gone_on.out, gone_on.err) == ("three\n", ""), "the session is not new"


@pytest.mark.contract("10.1", "10.6")
def test_a_pipe_has_a_line_for_a_line_and_goes_on_after_a_failure(home: Path) -> None:
    with serving([{"says": {"text": "one\n\n  two"}}, {"fails": {"status": 401, "message": "no"}}], **REPLIES) as at:
        ran = chat(environment(home, at.base_url), said="a\n\n   \nb\nc\n")
    assert ran.out == "one two\n\nc\n"
    assert ran.code == 1
    [line] = ran.err.splitlines()
    assert line.startswith("hermes: ")
    assert "answered 401 (no)" in line


@pytest.mark.contract("10.1")
def test_json_lines_have_one_ending_per_turn(home: Path) -> None:
    note = json.dumps({"action": "add", "target": "user", "content": "Likes tea."})
    answers = [{"says": {"calls": [["memory", note]]}}, {"says": {"text": "ok"}}, {"fails": {"status": 401}}]
    with serving(answers, **REPLIES) as endpoint:
        ran = chat(environment(home, endpoint.base_url), "--json", said="a\n/help\nb\nc ☃\n")
    first, second, third = turns(ran.out)
    kinds = [event["type"] for event in first]
    assert kinds == ["Accepted", "ToolStarted", "MemoryUpdated", "ToolFinished", "TextDelta", "Replied"]
    assert [event["type"] for event in second] == ["Accepted", "Failed"]
    assert third[-1]["text"] == "c ☃"
    assert ran.code == 1
    assert "/memory" in ran.err


@pytest.mark.contract("10.1")
def test_sessions_are_gone_on_with_by_id_and_by_being_the_latest(home: Path) -> None:
    with serving([], **REPLIES) as endpoint:
        env = environment(home, endpoint.base_url)
        assert NO_SESSION in chat(env, "-c", "-q", "x").err
        session = turns(chat(env, "--json", said="one\n").out)[0][0]["session_id"]
        assert chat(env, "-s", session, "-q", "two").out == "two\n"
        assert chat(env, "-s", session[:-2], "-q", "three").out == "three\n"
        assert chat(env, "-c", "-q", "four").out == "four\n"
        sent = [message["content"] for message in endpoint.requests()[-1]["messages"][1:]]
        assert sent == ["one", "one", "two", "two", "three", "three", "four"]
        unknown = chat(env, "-s", "nope", "-q", "x")
        assert (unknown.code, unknown.out) == (1, "")
        assert unknown.err == "hermes: there is no session 'nope'. `hermes sessions list` shows them\n"


@pytest.mark.contract("10.1", "1.9")
def test_the_latest_session_is_the_latest_of_a_terminal_whoever_wrote_since(home: Path) -> None:
    async def write_in_a_chat() -> None:
        async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=5.0) as store:
            await store.create_session("telegram", session_id="of-a-chat")
            await store.append("of-a-chat", Draft("user", "from a chat"))

    with serving([], **REPLIES) as endpoint:
        env = environment(home, endpoint.base_url)
        chat(env, "-q", "one")
        asyncio.run(write_in_a_chat())
        assert chat(env, "-c", "-q", "two").out == "two\n"
        assert [message["content"] for message in endpoint.requests()[-1]["messages"][1:]] == ["one", "one", "two"]
        chat(env, "-s", "of-a-chat", "-q", "three")
        assert "from a chat" in str(endpoint.requests()[-1]["messages"]), "by its id another kind is gone on with"


@pytest.mark.contract("10.1", "10.6")
def test_slash_commands_from_a_pipe_answer_beside_the_replies(home: Path) -> None:
    with serving([], **REPLIES) as endpoint:
        said = "/frobnicate\n/title Stamps\none\n/title\n/new\ntwo\n/sessions\n/resume Stamps\nthree\n/quit\nfour\n"
        ran = chat(environment(home, endpoint.base_url), said=said)
        assert ran.out == "one\ntwo\nthree\n"
        assert ran.code == 1
        assert "hermes: there is no command /frobnicate. " in ran.err
        assert "Stamps" in ran.err
        sent = [[message["content"] for message in request["messages"][1:]] for request in endpoint.requests()]
        assert ["one", "one", "three"] in sent, "beside the review of what /new ended"


@pytest.mark.contract("10.6")
@pytest.mark.parametrize("question", ["", "?"])
def test_a_line_of_a_megabyte_is_a_message_like_any_other(home: Path, question: str) -> None:
    words = " ".join(f"word{number}" for number in range(120_000)) + question
    assert len(words) > 1_000_000
    offline = chat(environment(home), said=words + "\nstamps\n")
    assert offline.code == 0, offline.err
    assert len(offline.out.splitlines()) == 2
    configure(home, "model:\n  context_length: 2000000\n")
    with serving([], then={"says": {"text": "long"}}) as endpoint:
        assert chat(environment(home, endpoint.base_url), said=words + "\n").out == "long\n"
        assert endpoint.requests()[0]["messages"][-1]["content"] == words


@pytest.mark.contract("10.6")
def test_bytes_that_are_no_text_are_replaced_and_end_nothing(home: Path) -> None:
    ran = chat(environment(home), said=b"caf\xe9 au lait\r\nlast line without an end")
    assert ran.code == 0
    assert ran.out.splitlines() == ["Saved: caf\ufffd au lait", "Saved: last line without an end"]
    shell = f"{sys.executable} -m hermes chat -q $(printf 'a\\377b')"
    done = subprocess.run(["sh", "-c", shell], cwd=ROOT, env=environment(home), capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode()) == (0, "Saved: a\ufffdb\n")


@pytest.mark.contract("10.6")
@pytest.mark.parametrize(
    ("redirect", "code", "out", "err"),
    [
        (">&-", 1, "", f"hermes: {OUTPUT_CLOSED}\n"),
        ("2>&-", 0, "Saved: x\n", ""),
        ("<&-", 0, "Saved: x\n", FLOOR_NOTICE + "\n"),
        (">&- 2>&- <&-", 1, "", ""),
    ],
)
def test_closed_streams_are_no_defect(home: Path, redirect: str, code: int, out: str, err: str) -> None:
    shell = f"{sys.executable} -m hermes chat -q x {redirect}"
    done = subprocess.run(["sh", "-c", shell], cwd=ROOT, env=environment(home), capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (code, out, err)


@pytest.mark.contract("10.6")
def test_reader_that_goes_away_ends_the_chat_quietly(home: Path) -> None:
    process = start_chat(environment(home), "--json")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("one\n")
    process.stdin.flush()
    hear(process)
    process.stdout.close()
    with suppress(BrokenPipeError):  # it may have ended by now
        process.stdin.write("two\nthree\n" * 50)
        process.stdin.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait() == 1
    process.stderr.close()


@pytest.mark.contract("10.6")
def test_a_question_without_words_is_a_mistake(home: Path) -> None:
    ran = chat(environment(home), "-q", "  ")
    assert (ran.code, ran.out) == (2, "")
    assert "the question is empty" in ran.err


@pytest.mark.contract("2.6", "10.46")
def test_ctrl_c_stops_the_turn_and_keeps_what_was_said(home: Path) -> None:
    answers = [{"says": {"text": "Once upon a time", "ending": "hang"}}]
    with serving(answers, **REPLIES) as endpoint:
        env = environment(home, endpoint.base_url)
        process = start_chat(env, "--json", "-q", "a story")
        assert process.stdin is not None
        process.stdin.close()
        seen = [json.loads(hear(process))]
        while "".join(event["text"] for event in seen[1:]) != "Once upon a time":
            seen.append(json.loads(hear(process)))
        process.send_signal(signal.SIGINT)
        output, errors = await_end(process)
        assert errors == ""
        assert process.returncode == 130
        stopped, ended = events(output)[-2:]
        assert stopped["type"] == "Stopped"
        assert (ended["reason"], ended["exit_code"], ended["reply"]) == ("stopped", 130, "Once upon a time")
        assert chat(env, "-c", "-q", "go on").out == "go on\n"
        sent = endpoint.requests()[-1]["messages"]
        assert {"role": "assistant", "content": "Once upon a time"} in sent


@pytest.mark.contract("10.6")
def test_ctrl_c_between_two_lines_ends_the_chat_at_once(home: Path) -> None:
    process = start_chat(environment(home))
    assert process.stdin is not None
    process.stdin.write("one\n")
    process.stdin.flush()
    assert hear(process) == "Saved: one"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130, "it waited for the next line"
    await_end(process)


@pytest.mark.contract("2.3")
def test_two_processes_in_one_session_take_turns(home: Path) -> None:
    with serving([], then={"echo": True, "delay": 0.02, "pause": 0.002}) as endpoint:
        env = environment(home, endpoint.base_url)
        session = turns(chat(env, "--json", "-q", "first").out)[0][0]["session_id"]
        both = [start_chat(env, "-s", session) for _ in range(2)]
        for number, process in enumerate(both):
            assert process.stdin is not None
            process.stdin.write("".join(f"process {number} line {line}\n" for line in range(5)))
            process.stdin.close()
        for number, process in enumerate(both):
            output, errors = await_end(process)
            assert (process.returncode, errors) == (0, "")
            assert output.splitlines() == [f"process {number} line {line}" for line in range(5)]
        assert chat(env, "-s", session, "-q", "last").out == "last\n"
        said = [message["content"] for message in endpoint.requests()[-1]["messages"][1:-1]]
        assert said[::2] == said[1::2], "a message is not followed by its reply"
        for number in range(2):
            assert [text for text in said[::2] if text.startswith(f"process {number}")] == [
                f"process {number} line {line}" for line in range(5)
            ]
