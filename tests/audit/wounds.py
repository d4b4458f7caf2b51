"""Damaged files of older versions: on top of a healthy file of either layout, one wound each."""

from __future__ import annotations

import atexit
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path

from tests.store import old_files as old
from tests.store.old_files import OldFile

TEMPLATES = tempfile.TemporaryDirectory()
atexit.register(TEMPLATES.cleanup)

KEY = "agent:main:telegram:dm:555"
OTHER_KEY = "agent:main:telegram:dm:777"
PARENT, CHILD, SIBLING = "20260528_093510_66bfaec7", "20260528_161635_bb86b1", "20260528_161636_cc97c2"
X, Y = "20260528_155201_68dc5996", "20260528_093510_66bfaec7"
SUMMARY = "[CONTEXT SUMMARY]: they planned the harbour, " + "and then some more " * 12
PLAIN = "The two of them planned the harbour at length. " * 6
STRAY = "[CONTEXT SUMMARY]: of a lighthouse that X never spoke of"

EVIDENCE = """\
2026-05-28 16:12:31 INFO [20260528_155201_68dc5996] agent.conversation_compression: context compression started: session=20260528_155201_68dc5996 messages=156 tokens=~145,003 model=claude-opus-4.7
2026-05-28 16:13:18 INFO [20260528_155201_68dc5996] agent.conversation_compression: context compression done:    session=20260528_155201_68dc5996 messages=156->8 tokens=~29,548

2026-05-28 16:14:01 INFO [20260528_093510_66bfaec7] agent.conversation_compression: context compression started: session=20260528_155201_68dc5996 messages=39 tokens=~143,661 model=claude-opus-4.7
2026-05-28 16:14:29 INFO [20260528_093510_66bfaec7] agent.conversation_compression: context compression done:    session=20260528_155201_68dc5996 messages=39->13 tokens=~9,501

2026-05-28 16:15:40 INFO [20260528_093510_66bfaec7] agent.conversation_compression: context compression started: session=20260528_093510_66bfaec7 messages=194 tokens=~145,948 model=claude-opus-4.7
2026-05-28 16:16:35 INFO [20260528_093510_66bfaec7] agent.conversation_compression: context compression done:    session=20260528_161635_bb86b1 messages=194->26 tokens=~41,442
"""  # noqa: E501 - lines of a log as they were written


def clock(text: str) -> float:
    """Return a time of that day in the local time of the machine that wrote the log."""
    return datetime.fromisoformat(f"2026-05-28T{text}").timestamp()


ROTATED_AT = clock("16:16:35")


class Hand:
    """Writes into a file as another program would."""

    def __init__(self, file: OldFile) -> None:
        self.file = file
        self.is_current = file.schema == 22

    def session(self, key: str, started: float, *, source: str = "telegram", **more: object) -> None:
        self._insert("sessions", {"id": key, "source": source, "started_at": started, **more})

    def say(self, session: str, at: float, content: str, *, role: str = "user", **more: object) -> None:
        self._insert("messages", {"session_id": session, "role": role, "content": content, "timestamp": at, **more})

    def route(self, key: str, session: str) -> None:
        entry = {"session_key": key, "session_id": session}
        if self.is_current:
            self._insert(
                "gateway_routing",
                {"scope": "main", "session_key": key, "entry_json": json.dumps(entry), "updated_at": 9.0},
            )
        path = self.file.home / "sessions" / "sessions.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), key: entry}), encoding="utf-8")

    def log(self, text: str) -> None:
        folder = self.file.home / "logs"
        folder.mkdir(exist_ok=True)
        (folder / "agent.log").write_text(text, encoding="utf-8")

    def keyed(self, key: str, user: str | None = None) -> dict[str, str]:
        """Return the fields of a layout that identify a session's conversation."""
        known = {"user_id": user or key.rpartition(":")[2]}
        if self.is_current:
            known |= {"session_key": key, "chat_id": key.rpartition(":")[2], "chat_type": "dm"}
        return known

    def _insert(self, table: str, values: Mapping[str, object]) -> None:
        with closing(sqlite3.connect(self.file.path)) as db, db:
            names, marks = ", ".join(values), ", ".join("?" * len(values))
            db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", [*values.values()])


def rotate(hand: Hand, *, said_later: str | None = "after the harbour") -> None:
    """Create a conversation of two sessions, as a compression by rotation leaves it, without the route."""
    known = hand.keyed(KEY)
    hand.session(PARENT, ROTATED_AT - 900, ended_at=ROTATED_AT, end_reason="compression", **known)
    hand.say(PARENT, ROTATED_AT - 800, "let us plan the harbour")
    hand.say(PARENT, ROTATED_AT - 790, "gladly", role="assistant")
    hand.session(CHILD, ROTATED_AT, parent_session_id=PARENT, **known)
    hand.say(CHILD, ROTATED_AT + 0.1, SUMMARY)
    if said_later is not None:
        hand.say(CHILD, ROTATED_AT + 100, said_later)
        hand.say(CHILD, ROTATED_AT + 110, "so it was", role="assistant")


def child_that_no_key_follows(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, PARENT)


def parent_that_went_on(hand: Hand) -> None:
    rotate(hand, said_later=None)
    hand.route(KEY, PARENT)
    hand.say(PARENT, ROTATED_AT + 300, "did you get my mail?")


def key_to_a_child_while_the_parent_went_on(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.say(PARENT, ROTATED_AT + 300, "did you get my mail?")


def child_that_holds_nothing(hand: Hand) -> None:
    known = hand.keyed(KEY)
    hand.session(PARENT, ROTATED_AT - 900, ended_at=ROTATED_AT, end_reason="compression", **known)
    hand.say(PARENT, ROTATED_AT - 800, "let us plan the harbour")
    hand.session(CHILD, ROTATED_AT, parent_session_id=PARENT, **known)
    hand.route(KEY, PARENT)


def second_child(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.session(SIBLING, ROTATED_AT + 1, parent_session_id=PARENT, **hand.keyed(KEY))
    hand.say(SIBLING, ROTATED_AT + 1.1, SUMMARY)


def child_without_any_route(hand: Hand) -> None:
    rotate(hand)


def child_ended_by_a_clean_up(hand: Hand) -> None:
    rotate(hand)
    hand.route(KEY, CHILD)
    hand.file.run(
        f"UPDATE sessions SET ended_at = {ROTATED_AT + 999}, end_reason = 'orphaned_compression' WHERE id = '{CHILD}'"
    )


def two_open_sessions(hand: Hand) -> None:
    for number, session in enumerate((PARENT, CHILD)):
        hand.session(session, ROTATED_AT + number * 50, **hand.keyed(KEY))
        hand.say(session, ROTATED_AT + number * 50 + 20, f"hello number {number}")
    hand.route(KEY, PARENT)


def summary_twice_in_a_child(hand: Hand) -> None:
    rotate(hand, said_later=None)
    hand.route(KEY, CHILD)
    hand.say(CHILD, ROTATED_AT + 0.4, SUMMARY)
    hand.say(CHILD, ROTATED_AT + 60, "after the harbour")


def carried_message_twice_in_a_child(hand: Hand) -> None:
    rotate(hand, said_later=None)
    hand.route(KEY, CHILD)
    hand.say(PARENT, ROTATED_AT - 5, PLAIN)
    for moment in (0.4, 0.5):
        hand.say(CHILD, ROTATED_AT + moment, PLAIN)
    hand.say(CHILD, ROTATED_AT + 60, "after the harbour")


def unmarked_summary_twice_in_place(hand: Hand) -> None:
    hand.session(X, ROTATED_AT - 900, source="cli")
    hand.say(X, ROTATED_AT - 800, "let us plan the harbour", active=0, compacted=1)
    hand.say(X, ROTATED_AT, PLAIN, role="assistant")
    hand.say(X, ROTATED_AT + 0.2, PLAIN, role="assistant")
    hand.say(X, ROTATED_AT + 60, "after the harbour")


def child_of_a_stranger(hand: Hand) -> None:
    hand.session(
        PARENT, ROTATED_AT - 900, ended_at=ROTATED_AT, end_reason="compression", **hand.keyed(KEY)
    )  # fmt: skip
    hand.say(PARENT, ROTATED_AT - 800, "my secret is the lighthouse")
    hand.session(CHILD, ROTATED_AT, parent_session_id=PARENT, **hand.keyed(OTHER_KEY))
    hand.say(CHILD, ROTATED_AT + 0.1, SUMMARY)
    hand.say(CHILD, ROTATED_AT + 0.1, "my secret is the lighthouse")
    hand.say(CHILD, ROTATED_AT + 100, "I only wanted to ask for the time")
    hand.route(OTHER_KEY, CHILD)


def compressed_by_another_session(hand: Hand) -> None:
    """Anomaly B as observed: X compressed itself, then Y's task compressed X."""
    hand.log(EVIDENCE)
    hand.session(X, clock("15:52:01"), **hand.keyed(KEY))
    hand.session(Y, clock("09:35:10"), **hand.keyed(OTHER_KEY))
    hand.say(Y, clock("16:00:00"), "only Y knows of the lighthouse")
    hand.say(X, clock("15:53:00"), "let us plan the harbour", active=0, compacted=1)
    hand.say(X, clock("16:13:17"), SUMMARY, active=0, compacted=1)
    hand.say(X, clock("16:13:40"), "and the quay?", active=0, compacted=1)
    hand.say(X, clock("16:14:28"), STRAY)
    hand.say(X, clock("16:14:28"), "only Y knows of the lighthouse")
    hand.say(X, clock("16:20:00"), "are you there?")
    hand.route(KEY, X)
    hand.route(OTHER_KEY, Y)


@dataclass(frozen=True)
class Wound:
    """A damage, the expected findings, and the expected conversations and keys after a repair."""

    inflict: Callable[[Hand], None]
    code: str
    named: tuple[str, ...]
    layouts: tuple[int, ...] = (6, 22)
    routes: Mapping[str, str] = field(default_factory=dict)
    open_sessions: frozenset[str] = frozenset()
    ended: Mapping[str, str] = field(default_factory=dict)
    sees: Mapping[str, list[str]] = field(default_factory=dict)
    hidden: Mapping[str, list[str]] = field(default_factory=dict)
    """Messages that a repair hides, by session: a second copy, or messages of another conversation."""

    def __str__(self) -> str:
        return self.inflict.__name__


LATER = [SUMMARY, "after the harbour", "so it was"]
WOUNDS = (
    Wound(child_that_no_key_follows, "orphan-child", (PARENT, CHILD), routes={KEY: CHILD},
          open_sessions=frozenset({CHILD}), ended={PARENT: "compression"}, sees={CHILD: LATER}),
    Wound(parent_that_went_on, "orphan-child", (PARENT, CHILD), routes={KEY: PARENT},
          open_sessions=frozenset({PARENT}), ended={CHILD: "orphaned_compression"},
          sees={PARENT: ["let us plan the harbour", "gladly", "did you get my mail?"]}),
    Wound(key_to_a_child_while_the_parent_went_on, "route-to-child", (PARENT, CHILD), routes={KEY: PARENT},
          open_sessions=frozenset({PARENT}), ended={CHILD: "superseded"}, sees={CHILD: LATER}),
    Wound(child_that_holds_nothing, "orphan-child", (PARENT, CHILD), routes={KEY: PARENT},
          open_sessions=frozenset({PARENT}), ended={CHILD: "orphaned_compression"}),
    Wound(second_child, "orphan-child", (SIBLING, PARENT), routes={KEY: CHILD},
          open_sessions=frozenset({CHILD}), ended={SIBLING: "orphaned_compression"}, sees={CHILD: LATER}),
    Wound(child_without_any_route, "orphan-child", (PARENT, CHILD), layouts=(22,), routes={KEY: CHILD},
          open_sessions=frozenset({CHILD}), sees={CHILD: LATER}),
    Wound(child_without_any_route, "orphan-child", (PARENT, CHILD), layouts=(6,), ended={CHILD: "superseded"},
          sees={CHILD: LATER}),
    Wound(child_ended_by_a_clean_up, "route-to-child", (CHILD,), routes={KEY: CHILD},
          open_sessions=frozenset({CHILD}), sees={CHILD: LATER}),
    Wound(two_open_sessions, "two-live", (PARENT, CHILD), layouts=(22,), routes={KEY: CHILD},
          open_sessions=frozenset({CHILD}), ended={PARENT: "superseded"}, sees={PARENT: ["hello number 0"]}),
    Wound(summary_twice_in_a_child, "double-summary", (CHILD,), routes={KEY: CHILD},
          open_sessions=frozenset({CHILD}), sees={CHILD: [SUMMARY, "after the harbour"]},
          hidden={CHILD: [SUMMARY]}),
    Wound(carried_message_twice_in_a_child, "double-rows", (CHILD,), routes={KEY: CHILD},
          open_sessions=frozenset({CHILD}), sees={CHILD: [SUMMARY, PLAIN, "after the harbour"]},
          hidden={CHILD: [PLAIN]}),
    Wound(unmarked_summary_twice_in_place, "double-summary", (X,), layouts=(22,),
          sees={X: [PLAIN, "after the harbour"]}, hidden={X: [PLAIN]}),
    Wound(child_of_a_stranger, "cross-session", (PARENT, CHILD), routes={OTHER_KEY: CHILD},
          open_sessions=frozenset({PARENT, CHILD}),
          sees={PARENT: ["my secret is the lighthouse"], CHILD: ["I only wanted to ask for the time"]},
          hidden={CHILD: [SUMMARY, "my secret is the lighthouse"]}),
    Wound(compressed_by_another_session, "cross-session", (X, Y), layouts=(22,), routes={KEY: X, OTHER_KEY: Y},
          open_sessions=frozenset({X, Y}),
          sees={X: [SUMMARY, "and the quay?", "are you there?"], Y: ["only Y knows of the lighthouse"]},
          hidden={X: [STRAY, "only Y knows of the lighthouse"]}),
)  # fmt: skip


def wounded(home: Path, wound: Wound, layout: int) -> OldFile:
    """Return a healthy file of this layout with this wound."""
    shutil.copytree(_template(wound.inflict, layout), home, dirs_exist_ok=True)
    return OldFile(home / "state.db", layout)


@cache
def _template(inflict: Callable[[Hand], None], layout: int) -> Path:
    """A home that is created once: many tests begin with a copy of it."""
    home = Path(TEMPLATES.name) / f"{inflict.__name__}-{layout}"
    inflict(Hand((old.early_file if layout == 6 else old.current_file)(home)))
    return home
