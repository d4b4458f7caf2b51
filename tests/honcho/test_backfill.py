"""`hermes memory backfill`: sends messages from before Honcho was chosen, each once, under its author."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hermes.app import App
from hermes.cli.main import run
from hermes.cli.memory_learning import offer_backfill
from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.store.hidden import INCOGNITO_SCHEMA, MENDED_SCHEMA
from hermes.store.memory_rows import count_turn, set_place
from hermes.store.people import mark
from hermes.store.schema import MIGRATIONS
from hermes.store.store import Store
from hermes.types import ECHO, Draft, Session, ToolCall
from tests.honcho.between import Between, Instead
from tests.honcho.configuring import Machine
from tests.honcho.writing import Arrived
from tests.memory_server.serving import ROOT, Served

pytestmark = pytest.mark.processes
BEGAN = 1_750_000_000.0
GROUP = "agent:main:telegram:group:-100"
Ask = Callable[..., Any]


@pytest.fixture
def arrived(request: pytest.FixtureRequest, machine: Machine, server: Served) -> Arrived:
    """A separate workspace, with Honcho chosen as the provider."""
    workspace = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60] + "-" + uuid.uuid4().hex[:8]
    machine.write({"baseUrl": server.url, "workspace": workspace, "peerName": "ann", "aiPeer": "bot"})
    (machine.home / "config.yaml").write_text("memory:\n  provider: honcho\n", encoding="utf-8")
    return Arrived(server, workspace)


@pytest.fixture
def ask(machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run `hermes memory backfill --json` with more options, and return its output."""
    monkeypatch.setenv("HERMES_HOME", str(machine.home))
    monkeypatch.setattr("hermes.cli.memory_learning.DELIVERY_TIMEOUT_SECONDS", 90.0)  # a busy machine delivers slowly

    def call(*options: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert run(["memory", "backfill", "--json", *options]) == code
        return json.loads(capsys.readouterr().out)

    return call


def fill(home: Path, work: Callable[[Store, Tx], object]) -> None:
    """Write into a home's store before the provider is chosen."""

    async def write() -> None:
        async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
            await store.write(lambda tx: work(store, tx))

    asyncio.run(write())


def say(store: Store, tx: Tx, session_id: str, *drafts: Draft, at: float = BEGAN, **about: Any) -> None:
    """Add a session with messages, one each second."""
    if not store.sessions.exists(tx, session_id):
        store.sessions.create(tx, Session(session_id, about.pop("source", "cli"), at, **about))
    for second, draft in enumerate(drafts):
        store.messages.append(tx, session_id, [draft], now=at + second)


def turn(number: int) -> tuple[Draft, Draft]:
    return Draft("user", f"question {number}", author_is_owner=True), Draft("assistant", f"answer {number}")


@pytest.mark.contract("6.15")
def test_earlier_turns_are_sent_once_without_tools_errors_and_incognito(
    machine: Machine, arrived: Arrived, ask: Ask
) -> None:
    def earlier(store: Store, tx: Tx) -> None:
        said, reply = turn(1)
        call = Draft("assistant", "I look", tool_calls=(ToolCall("c", "look", "{}"),))
        say(store, tx, "one", said, call, Draft("tool", "seen", tool_call_id="c"), reply)
        store.incognito.begin(tx, "one")
        say(store, tx, "one", Draft("user", "secret"), Draft("assistant", "hush"), at=BEGAN + 10)
        store.incognito.end(tx, "one")
        failed = Draft("assistant", "the model failed", finish_reason="error")
        stopped = Draft("assistant", "as far as", finish_reason="stopped")
        quoted = Draft("assistant", "you said: again", finish_reason=ECHO)
        later = (Draft("user", "and?"), failed, Draft("user", "again"), stopped, quoted)
        say(store, tx, "one", *later, at=BEGAN + 20)

    fill(machine.home, earlier)
    assert ask("--dry-run") == {"dry_run": True, "sessions": 1, "messages": 5}
    told = {"dry_run": False, "sessions": 1, "messages": 5, "refused": 0, "left": 0, "waiting": 0, "reason": None}
    assert ask() == told
    assert ask() == {**told, "sessions": 0, "messages": 0}
    assert ask("--dry-run")["messages"] == 0
    assert arrived.said("one") == [
        ("ann", "question 1"),
        ("bot", "answer 1"),
        ("ann", "and?"),
        ("ann", "again"),
        ("bot", "as far as"),
    ]
    messages = arrived.messages("one")
    times = [datetime.fromisoformat(message["created_at"]).timestamp() for message in messages]
    assert times == [BEGAN, BEGAN + 3, BEGAN + 20, BEGAN + 22, BEGAN + 23]
    assert messages[-1]["metadata"]["hermes_stopped"] is True


@pytest.mark.contract("6.15", "5.8")
def test_guests_and_group_members_keep_separate_peers(machine: Machine, arrived: Arrived, ask: Ask) -> None:
    def earlier(store: Store, tx: Tx) -> None:
        mark(tx, "telegram", "42", is_owner=True, now=BEGAN)
        direct: dict[str, Any] = {"source": "telegram", "chat_type": "dm"}
        for user in ("17", "42"):
            key = f"agent:main:telegram:dm:{user}"
            said = Draft("user", f"I am {user}", author_id=user)
            say(store, tx, f"of {user}", said, **direct, user_id=user, chat_id=user, session_key=key)
        group = [Draft("user", f"{user} here", author_id=user) for user in ("17", "23", "42")]
        about: dict[str, Any] = {"source": "telegram", "chat_type": "group", "session_key": GROUP, "chat_id": "-100"}
        say(store, tx, "group", *group, Draft("assistant", "welcome"), **about)

    fill(machine.home, earlier)
    (machine.home / "SOUL.md").write_text("You are kind.\n")
    assert ask()["messages"] == 6
    assert arrived.said("agent-main-telegram-dm-17") == [("17", "I am 17")]
    assert arrived.said("agent-main-telegram-dm-42")[0] == ("ann", "I am 42")
    assert arrived.said("agent-main-telegram-group--100") == [
        ("17", "17 here"),
        ("23", "23 here"),
        ("ann", "42 here"),
        ("bot", "welcome"),
    ]


@pytest.mark.contract("6.15", "5.6")
def test_chats_of_unknown_people_are_never_sent_as_the_owners(machine: Machine, arrived: Arrived, ask: Ask) -> None:
    def earlier(store: Store, tx: Tx) -> None:
        mark(tx, "telegram", "42", is_owner=True, now=BEGAN)
        kept: dict[str, dict[str, Any]] = {
            "person": {"user_id": "777"},
            "mine": {"user_id": "42"},
            "nothing": {},
            "direct": {"chat_type": "dm"},
            "group": {"user_id": "42", "chat_type": "group", "chat_id": "-100"},
            "odd-group": {"user_id": "42", "chat_id": "-100"},
        }
        for name, about in kept.items():
            say(store, tx, name, Draft("user", "my salary"), source="telegram", **about)
        say(store, tx, "unknown", Draft("user", "my salary"), source="a-platform-of-theirs")

    fill(machine.home, earlier)
    assert ask()["messages"] == 7
    authors = {name: [author for author, _ in arrived.said(name)] for name in arrived.sessions()}
    assert authors == {
        "person": ["777"],
        "mine": ["ann"],
        "nothing": ["user-nothing"],
        "direct": ["user-direct"],
        "group": ["user-group"],
        "odd-group": ["user-odd-group"],
        "unknown": ["user-unknown"],
    }


@pytest.mark.contract("6.15")
def test_delivered_messages_are_not_sent_again_after_their_rows_are_gone(
    machine: Machine, arrived: Arrived, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(machine.home, lambda store, tx: say(store, tx, "one", *turn(1)))
    live = ["chat", "-q", "hello", "--session", "one"]
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert run(live) == 0
    assert run(["memory", "outbox", "deliver"]) == 0
    here = Path.cwd().name
    before = arrived.said(here)
    fill(machine.home, lambda _, tx: tx.execute("DELETE FROM hermes_queue"))  # as after a week
    assert ask()["messages"] == 2
    assert arrived.said(here) == [*before, ("ann", "question 1"), ("bot", "answer 1")]
    assert [content for _, content in before].count("hello") == 1


@pytest.mark.contract("6.15", "P2")
def test_killed_backfill_resumes_and_sends_nothing_twice(
    machine: Machine, arrived: Arrived, ask: Ask, between: Between
) -> None:
    turns = 300

    def earlier(store: Store, tx: Tx) -> None:
        for number in range(turns):
            say(store, tx, f"s{number // 100}", *turn(number), at=BEGAN + 10 * number)

    fill(machine.home, earlier)
    env = {**os.environ, "HERMES_HOME": str(machine.home), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "hermes", "memory", "backfill"]
    settings, never = machine.read(), Instead(hang=True)
    # The last session is not told before the process is killed, however late that is.
    between.rule = lambda asked: never if asked.path.endswith("/sessions/s2/messages") else None
    machine.write({**settings, "baseUrl": between.url})
    for _ in range(3):
        before = _told(machine.home)
        with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and before == _told(machine.home) < 2 * turns:
                pass
            assert process.poll() is None
            process.send_signal(signal.SIGKILL)
    machine.write(settings)
    ask()
    for session in range(3):
        expected = [
            one
            for number in range(100 * session, 100 * (session + 1))
            for one in (("ann", f"question {number}"), ("bot", f"answer {number}"))
        ]
        assert arrived.said(f"s{session}") == expected


def _told(home: Path) -> int:
    """Count the messages that are marked as synced."""
    found = 0

    def count(_: Store, tx: Tx) -> None:
        nonlocal found
        found = tx.execute("SELECT count(*) FROM hermes_memory_told").fetchone()[0]

    fill(home, count)
    return found


@pytest.mark.contract("6.15")
def test_what_another_version_wrote_twice_or_for_nobody_is_left_out(
    machine: Machine, arrived: Arrived, ask: Ask
) -> None:
    def earlier(store: Store, tx: Tx) -> None:
        say(store, tx, "parent", *turn(1), *turn(2), *turn(3))
        store.sessions.end(tx, "parent", "compression", now=BEGAN + 100)
        copies = (turn(1)[0], Draft("user", "[CONTEXT COMPACTION] they asked"), *turn(3))
        for copy in copies:
            say(store, tx, "child", copy, at=BEGAN + 100, parent_session_id="parent")
        say(store, tx, "child", *turn(4), at=BEGAN + 200)
        say(store, tx, "branch", *turn(1), *turn(5), at=BEGAN + 300, parent_session_id="parent")
        say(store, tx, "scheduled", *turn(6), source="cron")

    fill(machine.home, earlier)
    assert ask()["messages"] == 10
    assert [content for _, content in arrived.said("child")] == ["question 4", "answer 4"]
    assert [content for _, content in arrived.said("branch")] == ["question 5", "answer 5"]
    assert sorted(arrived.sessions()) == ["branch", "child", "parent"]


@pytest.mark.contract("6.15")
@pytest.mark.parametrize("gone", ["no", "deleted here", "deleted elsewhere"])
def test_what_was_deleted_or_incognito_does_not_come_back_through_a_branch(
    machine: Machine, arrived: Arrived, ask: Ask, gone: str
) -> None:
    """The branch omits its parent's tool messages, so its rows differ from the parent's."""
    looked = Draft("assistant", "I look", tool_calls=(ToolCall("c", "look", "{}"),))

    def earlier(store: Store, tx: Tx) -> None:
        say(store, tx, "parent", *turn(1), looked)
        store.incognito.begin(tx, "parent")
        say(store, tx, "parent", *turn(2), at=BEGAN + 10)
        store.incognito.end(tx, "parent")
        for draft in (*turn(1), *turn(2)):
            say(store, tx, "branch", draft, at=BEGAN + 100, parent_session_id="parent")
        say(store, tx, "branch", *turn(3), at=BEGAN + 200)
        say(store, tx, "root", *turn(4), at=BEGAN + 300)

    def delete(store: Store, tx: Tx) -> None:
        if gone == "deleted here":
            store.deletions.delete(tx, "parent")
        elif gone == "deleted elsewhere":
            tx.execute("UPDATE sessions SET model_config = '{\"_branched_from\": \"parent\"}' WHERE id = 'branch'")
            tx.execute("UPDATE hermes_session_extra SET parent_session_id = NULL")
            tx.execute("DELETE FROM messages WHERE session_id = 'parent'")
            tx.execute("DELETE FROM sessions WHERE id = 'parent'")

    fill(machine.home, lambda _, tx: tx.execute("ALTER TABLE sessions ADD COLUMN model_config TEXT"))
    fill(machine.home, earlier)
    fill(machine.home, delete)
    ask()
    assert [content for _, content in arrived.said("branch")] == ["question 3", "answer 3"]
    assert [content for _, content in arrived.said("root")] == ["question 4", "answer 4"]


@pytest.mark.contract("6.15")
def test_what_is_older_than_a_session_that_begins_with_it_is_not_its_own(
    machine: Machine, arrived: Arrived, ask: Ask
) -> None:
    def earlier(store: Store, tx: Tx) -> None:
        say(store, tx, "branch", at=BEGAN + 100)
        say(store, tx, "branch", *turn(1), at=BEGAN)
        say(store, tx, "branch", *turn(2), at=BEGAN + 100)
        say(store, tx, "branch", *turn(3), at=BEGAN + 50)  # a clock was set back: it was said here
        say(store, tx, "late", at=BEGAN + 900)
        say(store, tx, "late", *turn(4), at=BEGAN)  # its own row was made after all that was said

    fill(machine.home, earlier)
    assert ask()["messages"] == 6
    assert [content for _, content in arrived.said("branch")][::2] == ["question 2", "question 3"]
    assert [content for _, content in arrived.said("late")] == ["question 4", "answer 4"]


@pytest.mark.contract("6.15")
def test_where_no_messages_are_saved_nothing_is_taken_in_and_nothing_is_marked(
    machine: Machine, arrived: Arrived, ask: Ask
) -> None:
    fill(machine.home, lambda store, tx: say(store, tx, "one", *turn(1)))
    settings = machine.read()
    machine.write({**settings, "saveMessages": False})
    told = ask()
    assert (told["messages"], told["refused"]) == (0, 2)
    machine.write(settings)
    assert ask()["messages"] == 2
    assert len(arrived.said("one")) == 2


@pytest.mark.contract("6.15", "P4")
def test_unreachable_server_bounds_the_queued_rows(
    machine: Machine, arrived: Arrived, ask: Ask, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.cli.memory_learning.MAX_QUEUED_ENTRIES", 300)
    monkeypatch.setattr("hermes.cli.memory_learning.QUEUEING_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr("hermes.cli.memory_learning.DELIVERY_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr("hermes.cli.memory_learning.start_deliverer", lambda _: None)
    fill(machine.home, lambda store, tx: say(store, tx, "one", *(turn(n)[0] for n in range(1000))))
    settings = machine.read()
    machine.write({**settings, "baseUrl": "http://127.0.0.1:9"})
    told = ask(code=1)
    assert (told["messages"], told["left"], told["waiting"]) == (400, 600, 400)
    machine.write({**settings, "baseUrl": server.url})
    fill(machine.home, lambda _, tx: tx.execute("UPDATE hermes_queue SET not_before = 0"))
    fill(machine.home, lambda _, tx: tx.execute("UPDATE hermes_lanes SET due_at = 0 WHERE due_at > 0"))
    monkeypatch.setattr("hermes.cli.memory_learning.QUEUEING_TIMEOUT_SECONDS", 90.0)
    monkeypatch.setattr("hermes.cli.memory_learning.DELIVERY_TIMEOUT_SECONDS", 90.0)
    assert ask()["messages"] == 600
    assert [content for _, content in arrived.said("one")] == [f"question {n}" for n in range(1000)]


@pytest.mark.contract("6.15")
def test_refused_key_gives_code_1_and_the_reason_in_every_run(
    machine: Machine, arrived: Arrived, ask: Ask, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.cli.memory_learning.DELIVERY_TIMEOUT_SECONDS", 5.0)
    monkeypatch.setattr("hermes.cli.memory_learning.start_deliverer", lambda _: None)
    fill(machine.home, lambda store, tx: say(store, tx, "one", *turn(1)))
    with Between(server.url) as between:
        between.rule = lambda _: Instead({"detail": "Invalid JWT"}, status=401)
        machine.write({**machine.read(), "baseUrl": between.url})
        for taken in (2, 0):
            told = ask(code=1)
            assert (told["messages"], told["waiting"]) == (taken, 2)
            assert told["reason"] == "the server answered 401: Invalid JWT. Check `apiKey`"
    assert arrived.said("one") == []


class Answering:
    """A person at a terminal who gives one answer."""

    can_ask = True

    def __init__(self, answer: str) -> None:
        self.answer, self.asked, self.told = answer, list[str](), list[str]()

    def ask(self, text: str, default: str = "", *, secret: bool = False) -> str:
        raise AssertionError(f"{text} [{default}] {secret}")

    def choose(self, text: str, options: Mapping[str, str], default: str) -> str:
        assert {self.answer, default} <= set(options)
        self.asked.append(text)
        return self.answer

    def say(self, text: str) -> None:
        self.told.append(text)


@pytest.mark.contract("6.15", "10.3")
@pytest.mark.parametrize("answer", ["no", "yes"])
def test_changing_the_provider_offers_a_backfill_once(
    machine: Machine, arrived: Arrived, ask: Ask, answer: str
) -> None:
    fill(machine.home, lambda store, tx: say(store, tx, "one", *turn(1)))
    person = Answering(answer)
    offer_backfill(App.load(), person, "none")
    assert person.asked == ["This memory does not know 2 messages of 1 session from before. Take it in?"]
    assert len(arrived.sessions()) == (answer == "yes")
    assert person.told == (["Taken in: 2 messages of 1 session."] if answer == "yes" else [])
    ask()
    fill(machine.home, lambda store, tx: say(store, tx, "two", *turn(2)))
    offer_backfill(App.load(), person, "honcho")
    assert len(person.asked) == 1, "it was chosen before and knows what was said: nobody asks again"


@pytest.mark.contract("6.15", "10.3")
def test_a_set_up_without_anybody_to_ask_says_how_earlier_sessions_are_taken_in(
    machine: Machine, arrived: Arrived, ask: Ask, server: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(machine.home, lambda store, tx: say(store, tx, "one", *turn(1)))
    (machine.home / "config.yaml").write_text("memory:\n  provider: none\n", encoding="utf-8")
    assert run(["memory", "setup", "honcho", "--url", server.url, "--yes"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "2 messages of 1 session from before; `hermes memory backfill` takes that in." in told
    assert arrived.sessions() == []
    assert ask()["messages"] == 2


LATER_TABLES = [
    table
    for step in MIGRATIONS
    if step.version >= 10
    for table in re.findall(r"CREATE TABLE (\w+)", "\n".join(step.statements))
]
"""Tables that a store before its tenth version lacks."""


@pytest.mark.contract("6.15", "P2")
def test_session_synced_by_an_earlier_version_is_not_sent_again(machine: Machine, arrived: Arrived, ask: Ask) -> None:
    def of_an_earlier_version(store: Store, tx: Tx) -> None:
        for session in ("told", "untold"):
            say(store, tx, session, *turn(1))
        set_place(tx, "honcho", "told", {}, None, None)
        count_turn(tx, "honcho", "told", 1)
        for statement in (
            "DELETE FROM hermes_migrations WHERE version >= 10",
            *(f"DROP TABLE {table}" for table in LATER_TABLES),
            MENDED_SCHEMA,
            INCOGNITO_SCHEMA,
            "ALTER TABLE hermes_memory_places DROP COLUMN earlier",
            "ALTER TABLE hermes_queue DROP COLUMN lost",
            "ALTER TABLE hermes_reviews_due DROP COLUMN tries",
            "ALTER TABLE hermes_reviews_due DROP COLUMN not_before",
            "ALTER TABLE hermes_message_extra DROP COLUMN author_is_agent",
        ):
            tx.execute(statement)

    fill(machine.home, of_an_earlier_version)
    assert ask()["messages"] == 2
    assert arrived.sessions() == ["untold"]
