"""Each message is shown once, even if another version's compression in place wrote it again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.audit.wounds import Hand
from tests.conftest import Ran
from tests.store import old_files as old

Hermes = Callable[..., Ran]
SESSION = "20260701_120000_0a0b0c0d"
SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted: the quay"
MERGED = "[PRIOR CONTEXT — for reference only; not a new message]\n{}\n\n[END OF PRIOR CONTEXT — …]\n\n" + SUMMARY
CALLS = json.dumps([{"id": "c7", "type": "function", "function": {"name": "look", "arguments": "{}"}}])


def compacted(hand: Hand, summary: str = SUMMARY) -> None:
    """A session that a stock Hermes compacted twice: each time it repeated the first and last rows."""
    hand.session(SESSION, 1000.0)
    for at, role, text in ((1001.0, "user", "the lighthouse"), (1002.0, "assistant", "it burns"),
                           (1003.0, "user", "and the quay?"), (1004.0, "assistant", "so be it")):  # fmt: skip
        hand.say(SESSION, at, text, role=role, active=0, compacted=1)
    hand.say(SESSION, 1004.5, "", role="session_meta", active=0, compacted=1)
    hand.say(SESSION, 1005.0, "", role="assistant", tool_calls=CALLS, active=0, compacted=1)
    hand.say(SESSION, 1006.0, "a long result of the tool", role="tool", tool_call_id="c7", active=0, compacted=1)
    hand.say(SESSION, 1001.0, "the lighthouse", active=0, compacted=1)
    hand.say(SESSION, 1010.0, summary, role="assistant", active=0, compacted=1)
    hand.say(SESSION, 1003.0, "and the quay?", active=0, compacted=1)
    hand.say(SESSION, 1004.0, "so be it", role="assistant", active=0, compacted=1)
    hand.say(SESSION, 1010.0, "", role="assistant", tool_calls=CALLS, active=0, compacted=1)
    hand.say(SESSION, 1010.0, "[cut]", role="tool", tool_call_id="c7", active=0, compacted=1)
    hand.say(SESSION, 1009.5, "who waited while it ran", active=0, compacted=1)
    hand.say(SESSION, 1012.0, "so be it", role="assistant", active=0, compacted=1)
    hand.say(SESSION, 1020.0, f"{summary} and more", role="user")
    hand.say(SESSION, 1009.5, "who waited while it ran")
    hand.say(SESSION, 1020.0, "so be it", role="assistant")
    hand.say(SESSION, 1030.0, "and the quay?")


ONCE = ["the lighthouse", "it burns", "and the quay?", "so be it", "a long result of the tool", SUMMARY,
        "who waited while it ran", "so be it", f"{SUMMARY} and more", "and the quay?"]  # fmt: skip


def shown(hermes: Hermes) -> list[str]:
    lines = [json.loads(line) for line in hermes("sessions", "export", SESSION).out.splitlines()]
    return [line["content"] for line in lines if line["type"] == "message" and line.get("content")]


@pytest.mark.contract("1.4")
def test_messages_repeated_by_a_compaction_are_shown_once(hermes: Hermes, home: Path) -> None:
    compacted(Hand(old.current_file(home)))
    assert shown(hermes) == ONCE
    assert hermes("sessions", "show", SESSION).out.count("the lighthouse") == 1


@pytest.mark.contract("1.4")
@pytest.mark.parametrize("merged_at", [1002.0, 1010.0])
def test_a_summary_that_was_merged_into_a_message_marks_the_copies_too(
    hermes: Hermes, home: Path, merged_at: float
) -> None:
    hand = Hand(old.current_file(home))
    hand.session(SESSION, 1000.0)
    for at, role, text in ((1001.0, "user", "one"), (1002.0, "assistant", "reply 1"), (1003.0, "user", "ok")):
        hand.say(SESSION, at, text, role=role, active=0, compacted=1)
    hand.say(SESSION, 1001.0, "one")
    hand.say(SESSION, merged_at, MERGED.format("reply 1"), role="assistant")
    hand.say(SESSION, 1010.0, "ok")
    hand.say(SESSION, 1011.0, "so be it", role="assistant")
    hand.say(SESSION, 1012.0, "ok")
    assert shown(hermes) == ["one", "reply 1", "ok", MERGED.format("reply 1"), "so be it", "ok"]


@pytest.mark.contract("1.4")
def test_message_repeated_after_a_merged_summary_is_shown(hermes: Hermes, home: Path) -> None:
    hand = Hand(old.current_file(home))
    hand.session(SESSION, 1000.0)
    for at, text in ((1001.0, "one"), (1003.0, "ok")):
        hand.say(SESSION, at, text, active=0, compacted=1)
    hand.say(SESSION, 1003.0, MERGED.format("ok"))
    hand.say(SESSION, 1012.0, "ok")
    assert shown(hermes) == ["one", "ok", MERGED.format("ok"), "ok"]


@pytest.mark.contract("1.4")
def test_a_search_finds_once_what_was_said_once_and_still_fills_its_list(hermes: Hermes, home: Path) -> None:
    hand = Hand(old.current_file(home))
    compacted(hand)
    found = json.loads(hermes("sessions", "search", "lighthouse", "--json").out)
    assert [hit["id"] for hit in found] == [min(hit["id"] for hit in found)]
    both = json.loads(hermes("sessions", "search", "quay", "--limit", "2", "--json").out)
    assert len({hit["id"] for hit in both}) == 2
    waited = json.loads(hermes("sessions", "search", "waited", "--limit", "1", "--json").out)
    assert len(waited) == 1


@pytest.mark.contract("1.4")
def test_message_that_a_person_repeats_is_shown_twice(hermes: Hermes, home: Path) -> None:
    hand = Hand(old.current_file(home))
    hand.session(SESSION, 1000.0)
    hand.say(SESSION, 1001.0, "ok", active=0, compacted=1)
    hand.say(SESSION, 1002.0, SUMMARY, role="assistant")
    hand.say(SESSION, 1003.0, "ok")
    hand.say(SESSION, 1003.0, "ok")
    hand.say(SESSION, 1004.0, SUMMARY)
    assert shown(hermes) == ["ok", SUMMARY, "ok", "ok", SUMMARY]


@pytest.mark.contract("1.4")
def test_session_meta_rows_of_another_version_are_not_messages(hermes: Hermes, home: Path) -> None:
    hand = Hand(old.current_file(home))
    hand.session(SESSION, 1000.0)
    hand.say(SESSION, 1001.0, "hello")
    hand.say(SESSION, 1002.0, "", role="session_meta")
    assert [json.loads(line)["role"] for line in hermes("sessions", "export", SESSION).out.splitlines()[1:]] == ["user"]
