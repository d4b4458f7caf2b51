"""Notices about messages that a compression by rotation did not see, and about no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.audit.looking import bytes_of
from tests.audit.stock_wounds import MERGED
from tests.audit.wounds import CHILD, KEY, PARENT, ROTATED_AT, Hand
from tests.conftest import Ran
from tests.store import old_files as old

Hermes = Callable[..., Ran]


def rotate_with_its_end(hand: Hand, *, meanwhile: str | None = None, merged: bool = False) -> None:
    """A rotation that copies the end of the conversation, while another process may write a message."""
    known = hand.keyed(KEY)
    hand.session(PARENT, ROTATED_AT - 900, ended_at=ROTATED_AT, end_reason="compression", **known)
    hand.say(PARENT, ROTATED_AT - 800, "let us plan the harbour")
    hand.say(PARENT, ROTATED_AT - 790, "gladly", role="assistant")
    hand.say(PARENT, ROTATED_AT - 3, "how deep?")
    if meanwhile is not None:
        hand.say(PARENT, ROTATED_AT - 2, meanwhile)
    hand.say(PARENT, ROTATED_AT - 1, "nine feet", role="assistant")
    hand.session(CHILD, ROTATED_AT, parent_session_id=PARENT, **known)
    hand.say(CHILD, ROTATED_AT - 800, "let us plan the harbour")
    text = MERGED.replace("gladly", "gladly, and then how deep?") if merged else "[CONTEXT SUMMARY]: a harbour"
    hand.say(CHILD, ROTATED_AT + 0.1, text, role="assistant")
    if not merged:
        hand.say(CHILD, ROTATED_AT + 0.1, "how deep?")
    hand.say(CHILD, ROTATED_AT + 0.1, "nine feet", role="assistant")
    hand.say(CHILD, ROTATED_AT + 100, "and the quay?")
    hand.route(KEY, CHILD)


def told(hermes: Hermes) -> list[dict[str, object]]:
    ran = hermes("doctor", "--repair", "--yes", "--json")
    assert ran.code == 0
    return [finding for finding in json.loads(ran.out)["findings"] if finding["code"] == "left-behind"]


@pytest.mark.contract("3.12")
@pytest.mark.parametrize("layout", [6, 22])
def test_messages_of_another_process_during_a_rotation_are_reported(hermes: Hermes, home: Path, layout: int) -> None:
    rotate_with_its_end(Hand((old.early_file if layout == 6 else old.current_file)(home)), meanwhile="and the tide?")
    before = bytes_of(home)
    (finding,) = told(hermes)
    assert (finding["level"], finding["sessions"]) == ("warn", [PARENT, CHILD])
    assert f"hermes sessions show {PARENT}" in str(finding["fix"])
    assert bytes_of(home) == before
    assert "and the tide?" in hermes("sessions", "show", PARENT).out


@pytest.mark.contract("3.12")
def test_messages_in_the_old_session_after_a_rotation_are_reported(hermes: Hermes, home: Path) -> None:
    hand = Hand(old.current_file(home))
    rotate_with_its_end(hand)
    hand.say(PARENT, ROTATED_AT + 200, "is anybody there?")
    hand.say(CHILD, ROTATED_AT + 300, "and the boats?")
    (finding,) = told(hermes)
    assert finding["sessions"] == [PARENT, CHILD]


def whole(_: Hand) -> None:
    """No message was written meanwhile."""


def said_again_in_the_new_one(hand: Hand) -> None:
    hand.say(PARENT, ROTATED_AT + 200, "is anybody there?")
    hand.say(CHILD, ROTATED_AT + 300, "is anybody there?")


def answer_that_came_late(hand: Hand) -> None:
    hand.say(PARENT, ROTATED_AT + 200, "one moment", role="assistant")
    hand.say(CHILD, ROTATED_AT + 300, "and the boats?")


def old_words_right_after_the_rotation(hand: Hand) -> None:
    """A person's later messages that equal the first ones are not copies."""
    hand.say(CHILD, ROTATED_AT + 300, "let us plan the harbour")


@pytest.mark.contract("3.12")
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(
    "go_on", [whole, said_again_in_the_new_one, answer_that_came_late, old_words_right_after_the_rotation]
)
def test_complete_rotation_is_not_reported(
    hermes: Hermes, home: Path, go_on: Callable[[Hand], None], merged: bool
) -> None:
    hand = Hand(old.current_file(home))
    rotate_with_its_end(hand, merged=merged)
    go_on(hand)
    assert told(hermes) == []
