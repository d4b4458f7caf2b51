"""Faulty endpoints: one clear error line, nothing lost, and the next turn works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.llm.failures import CONNECT_ERROR_CAUSES
from hermes.store.store import Store
from hermes.types import Json, Message
from tests.agent.agents import check_conversation, stored
from tests.cli.chatting import KEY, chat, configure, environment, serving, turns
from tests.llm.calling import closed_port

pytestmark = pytest.mark.processes

SLOW_DOWN = {"fails": {"status": 429, "message": "slow down", "headers": {"Retry-After": "0.1"}}}
BROKEN = {"fails": {"status": 500, "message": "oops"}}
HALF = "Once upon a time"

FAULTS: dict[str, tuple[list[Json], str, str]] = {
    "reset in the stream": ([{"says": {"text": HALF, "ending": "reset"}}], "closed the connection", HALF),
    "cut in the stream": ([{"says": {"text": HALF, "ending": "cut"}}], "closed the connection", HALF),
    "silence in the stream": (
        [{"says": {"text": HALF, "ending": "hang"}}],
        "sent nothing more for 4 s (`model.timeout`)",
        HALF,
    ),
    "silence": ([{"says": {"text": "late", "delay": 60.0}}], "did not answer within 4 s (`model.timeout`)", ""),
    "wrong key": ([{"fails": {"status": 401, "message": f"Incorrect API key: {KEY}"}}], "check the key", ""),
    "server errors": ([BROKEN] * 4, "answered 500 (oops)", ""),
    "invalid JSON": ([{"chunks": ["data: {nonsense\n\n"]}], "not JSON", ""),
    "a web page": ([{"body": "<html><title>Router login</title></html>"}], "check the URL", ""),
    "no choices": ([{"body": '{"choices": []}'}], "without a reply", ""),
    "an empty reply": ([{"says": {"text": ""}}], "answered with nothing", ""),
    "error in the stream": (
        [{"chunks": [{"choices": [{"index": 0, "delta": {"content": HALF}}]}, {"error": {"message": f"bad {KEY}"}}]}],
        "broke off",
        HALF,
    ),
}
"""Each case: the endpoint's answers, the error line, and the text streamed before it."""


async def read_session(home: Path, session_id: str) -> list[Message]:
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        return await stored(store, session_id)


def check_no_secret(home: Path, *texts: str) -> None:
    """Check that the key is in no output, log or file of the home."""
    for text in texts:
        assert KEY not in text
    for path in home.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


@pytest.mark.contract("2.6", "10.6")
@pytest.mark.parametrize("fault", FAULTS)
async def test_fault_is_one_line_and_the_next_turn_works(home: Path, fault: str) -> None:
    answers, line, partial = FAULTS[fault]
    configure(home, "model:\n  timeout: 4\n" if "silence" in fault else "")
    with serving(answers, then={"echo": True}) as endpoint:
        env = environment(home, endpoint.base_url)
        ran = chat(env, "--json", "-q", "hello")
        [events] = turns(ran.out)
        assert (ran.code, events[-1]["type"]) == (1, "Failed")
        assert line in events[-1]["message"]
        assert "\n" not in events[-1]["message"]
        assert events[-1]["text"] == partial
        session = events[0]["session_id"]
        said = [(m.role, m.content, m.finish_reason) for m in await read_session(home, session)]
        assert said == [("user", "hello", None)] + ([("assistant", partial, "error")] if partial else [])
        configure(home, "")  # it is not silent any more, but it may be slow
        again = chat(env, "-s", session, "-q", "and now?")
        assert (again.code, again.out, again.err) == (0, "and now?\n", "")
        sent = endpoint.requests()[-1]["messages"]
        check_conversation(sent)
        assert [m["content"] for m in sent if m["role"] == "user"] == ["hello", "and now?"]
        check_no_secret(home, ran.out, ran.err, again.out, again.err)


@pytest.mark.contract("10.6")
@pytest.mark.parametrize("model", ["loop-1", ""])
async def test_endpoint_that_is_not_there_is_one_line_and_the_message_stays(home: Path, model: str) -> None:
    with closed_port() as port:
        ran = chat(environment(home, f"http://127.0.0.1:{port}/v1", HERMES_MODEL=model), "-q", "hello")
    assert (ran.code, ran.out) == (1, "")
    last = ran.err.splitlines()[-1]
    assert f"hermes: 127.0.0.1:{port} {dict(CONNECT_ERROR_CAUSES)[ConnectionRefusedError]}" in last
    assert "model.default" not in last, "a name would not help"
    assert all("trying again" in line for line in ran.err.splitlines()[:-1])
    assert "Traceback" not in ran.err
    listed = chat(environment(home), "-c", said="/title\n")
    assert listed.code == 0
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        [only] = await store.read(lambda tx: store.sessions.recent(tx, limit=5))
        assert [message.content for message in await stored(store, only.session.id)] == ["hello"]
    check_no_secret(home, ran.out, ran.err)


@pytest.mark.contract("10.6")
def test_endpoint_that_asks_to_wait_is_asked_again_and_said(home: Path) -> None:
    with serving([SLOW_DOWN, {"says": {"text": "now"}}]) as endpoint:
        ran = chat(environment(home, endpoint.base_url), "-q", "hello")
        assert (ran.code, ran.out) == (0, "now\n")
        [line] = ran.err.splitlines()
        assert "slow down" in line
        assert "trying again in" in line
        assert len(endpoint.requests()) == 2


@pytest.mark.contract("10.6")
def test_failure_of_one_question_leaves_standard_output_empty(home: Path) -> None:
    with serving([{"says": {"text": HALF, "ending": "reset"}}]) as endpoint:
        ran = chat(environment(home, endpoint.base_url), "-q", "hello")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1


@pytest.mark.contract("2.6", "10.6")
def test_calls_that_cannot_be_run_are_told_to_the_model(home: Path) -> None:
    wrong = [["frobnicate", "{}"], ["memory", '{"action": "add", '], ["memory", "[]"]]
    with serving([{"says": {"calls": wrong}}, {"says": {"text": "sorry"}}]) as endpoint:
        ran = chat(environment(home, endpoint.base_url), "-q", "hello")
        assert (ran.code, ran.out, ran.err) == (0, "sorry\n", "")
        sent = endpoint.requests()[-1]["messages"]
        check_conversation(sent)
        results = [message["content"] for message in sent if message["role"] == "tool"]
        assert ["no tool" in results[0], "not valid JSON" in results[1], "JSON object" in results[2]] == [True] * 3
        calls = [call["function"] for message in sent for call in message.get("tool_calls", [])]
        assert all(isinstance(json.loads(call["arguments"]), dict) for call in calls)


@pytest.mark.contract("10.6")
def test_endless_tool_calls_end_at_the_limit(home: Path) -> None:
    configure(home, "agent:\n  max_steps: 3\n")
    search = {"says": {"calls": [["session_search", '{"query": "stamps"}']]}}
    with serving([search] * 4, then={"echo": True}) as endpoint:
        env = environment(home, endpoint.base_url)
        ran = chat(env, "-q", "hello")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == "hermes: no reply after 3 rounds of tool calls; `agent.max_steps` allows more\n"
        assert ["tools" in request for request in endpoint.requests()] == [True, True, True, False]
        assert chat(env, "-c", "-q", "go on").out == "go on\n"
        check_conversation(endpoint.requests()[-1]["messages"])


@pytest.mark.contract("10.6")
def test_conversation_that_stays_too_long_is_one_line_and_the_next_turn_works(home: Path) -> None:
    configure(home, "memory:\n  review_every: 0\n")
    too_long = {"fails": {"status": 400, "message": "This model's maximum context length is 8 tokens"}}
    # The request, and the summary that is tried then; a digest of one word would not be shorter, so it stays as it is.
    with serving([too_long] * 2, then={"echo": True}) as endpoint:
        env = environment(home, endpoint.base_url)
        [events] = turns(chat(env, "--json", "-q", "hello").out)
        assert (events[-1]["type"], events[-1]["kind"]) == ("Failed", "context_too_long")
        assert "maximum context length" in events[-1]["message"]
        assert chat(env, "-c", "-q", "and now?").out == "and now?\n"
        sent = endpoint.requests()[-1]["messages"]
        check_conversation(sent)
        assert "hello" in "".join(message["content"] for message in sent[1:-1])
