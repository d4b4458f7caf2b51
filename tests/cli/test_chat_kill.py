"""kill -9 in the middle of a chat with tools: nothing accepted is lost or done twice, and the chat can continue."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from hermes.agent.context import INTERRUPTED_RESULT
from hermes.clock import SystemClock
from hermes.store.store import Store
from hermes.types import Json, Message
from tests.agent.agents import check_conversation, notes_text, stored
from tests.cli.chatting import Endpoint, chat, configure, environment, events, serving, start_chat, turns
from tests.db.processes import await_end, hear
from tests.scale import scale

pytestmark = pytest.mark.processes

SEED = 61_504
TURNS = 20
LINES = 9 * TURNS


def script() -> list[Json]:
    """Return a script: each turn stores a different note and searches, then replies."""
    answers: list[Json] = []
    for turn in range(TURNS * 2):
        note = json.dumps({"action": "add", "target": "memory", "content": f"Fact number {turn}."})
        search = json.dumps({"query": f"message {turn}"})
        answers.append({"says": {"calls": [["memory", note], ["session_search", search]], "piece": 40, "pause": 0.002}})
        answers.append({"says": {"text": f"Reply number {turn}.", "piece": 6, "pause": 0.002}})
    return answers


def talk_until_killed(process: subprocess.Popen[str], chance: random.Random) -> list[Json]:
    """Send all messages at once, read a random number of lines, kill; return every complete event."""
    assert process.stdin is not None
    process.stdin.write("".join(f"message {turn}\n" for turn in range(TURNS)))
    process.stdin.flush()
    heard = [json.loads(hear(process)) for _ in range(chance.randrange(1, LINES))]
    time.sleep(chance.uniform(0, 0.01))  # not to wait for anything: the moment of the kill is drawn
    process.send_signal(signal.SIGKILL)
    output, errors = await_end(process)
    assert errors == ""
    return heard + events(output)


async def read_session(home: Path, session_id: str) -> list[Message]:
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        assert await store.read(lambda tx: tx.execute("PRAGMA integrity_check").fetchone()[0]) == "ok"
        return await stored(store, session_id)


def check_accepted(heard: list[Json], messages: list[Message]) -> None:
    """Check that every accepted message is stored once, in order, under the reported id."""
    accepted = [event["message_id"] for event in heard if event["type"] == "Accepted"]
    said = [message for message in messages if message.role == "user"]
    assert [message.id for message in said[: len(accepted)]] == accepted
    assert [message.content for message in said] == [f"message {turn}" for turn in range(len(said))]
    assert len(said) <= len(accepted) + 1
    replied = [event["message_id"] for event in heard if event["type"] == "Replied"]
    assert set(replied) <= {message.id for message in messages}
    results = sum(event["type"] == "ToolFinished" for event in heard)
    assert sum(message.role == "tool" for message in messages) >= results


def check_goes_on(env: dict[str, str], endpoint: Endpoint, session_id: str, messages: list[Message]) -> None:
    """Check that the next turn works at once, and that the model learns of every interrupted call."""
    posted = len(endpoint.requests())
    [events_after] = turns(chat(env, "--json", "-s", session_id, "-q", "after the kill").out)
    assert "Waiting" not in [event["type"] for event in events_after], "it waited for the lease of the dead"
    assert events_after[-1]["type"] == "Replied", events_after[-1]
    sent = endpoint.requests()[posted]["messages"]
    check_conversation(sent)
    assert sent[-1] == {"role": "user", "content": "after the kill"}
    called = sum(len(message.tool_calls) for message in messages)
    recorded = sum(message.role == "tool" for message in messages)
    assert sum(message["content"] == INTERRUPTED_RESULT for message in sent) == called - recorded


@pytest.mark.stress
@pytest.mark.timeout(1200)
@pytest.mark.contract("P1", "P2", "2.3", "2.6")
async def test_chat_killed_at_any_moment_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    cut_off = 0
    for number in range(scale(4, 200)):
        home = tmp_path / str(number)
        configure(home, "memory:\n  review_every: 0\n")
        with serving(script()) as endpoint:
            env = environment(home, endpoint.base_url)
            heard = talk_until_killed(start_chat(env, "--json"), chance)
            session_id = heard[0]["session_id"]
            before = await read_session(home, session_id)
            noted = [line for line in notes_text(home).splitlines() if line != "§"]
            assert len(set(noted)) == len(noted)
            check_accepted(heard, before)
            check_goes_on(env, endpoint, session_id, before)
        after = await read_session(home, session_id)
        assert after[: len(before)] == before
        assert after[len(before)].content == "after the kill", "something was added to what the kill had cut off"
        cut_off += sum(len(m.tool_calls) for m in before) > sum(m.role == "tool" for m in before)
    assert cut_off >= scale(0, 20), "hardly a kill hit a running tool"
