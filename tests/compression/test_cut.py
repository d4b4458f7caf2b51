"""The position of the cut, for any conversation and any budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.compression.cut import Cut, choose_cut
from hermes.llm.tokens import message_tokens
from hermes.types import LiveView, Message, ToolCall
from tests.scale import scale

TEXTS = st.integers(0, 120).map(lambda size: "x" * size * 4)


@st.composite
def tails(draw: st.DrawFn, first_id: int) -> tuple[Message, ...]:
    """Turns: a question, calls with their results (some lost, some late), and answers."""
    ids = count(first_id)
    messages: list[Message] = []

    def put(role: str, calls: tuple[ToolCall, ...] = (), call_id: str | None = None) -> None:
        content = draw(TEXTS)
        messages.append(Message(next(ids), "s", role, content, 0.0, tool_calls=calls, tool_call_id=call_id))

    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["user", "assistant", "call", "call", "orphan"]))
        if kind in ("user", "assistant"):
            put(kind)
        elif kind == "orphan":
            put("tool", call_id="nobody's")
        else:
            calls = tuple(ToolCall(f"c{number}", "t", "{}") for number in range(draw(st.integers(1, 3))))
            put("assistant", calls)
            for call in calls[: draw(st.integers(0, len(calls)))]:
                put("tool", call_id=call.id)
    return tuple(messages)


@st.composite
def views(draw: st.DrawFn) -> LiveView:
    head = (Message(1, "s", "user", draw(TEXTS), 0.0),) if draw(st.booleans()) else ()
    return LiveView("s", len(head), head, "earlier" if head else None, draw(tails(10)))


def staying(view: LiveView, cut: Cut) -> list[Message]:
    return [message for message in view.messages if message.id > cut.horizon_id or message.id in cut.kept_ids]


def asked_last(view: LiveView) -> list[Message]:
    """Return the newest user message and the unanswered ones right before it, newest first."""
    newest_first = list(reversed(view.messages))
    while newest_first and newest_first[0].role != "user":
        newest_first.pop(0)
    return list(takewhile(lambda message: message.role == "user", newest_first))


def tokens(messages: Sequence[Message]) -> int:
    return sum(map(message_tokens, messages))


@pytest.mark.stress
@pytest.mark.contract("3.8")
@settings(max_examples=scale(100, 20_000))
@given(views(), st.integers(1, 5), st.integers(0, 600), st.integers(0, 1200))
def test_cut_parts_a_view_in_two_and_loses_nothing(view: LiveView, turns: int, budget: int, ceiling: int) -> None:
    cut = choose_cut(view, keep_turns=turns, budget=budget, ceiling=ceiling)
    if cut is None:
        return
    stay = staying(view, cut)
    assert cut.leaving
    assert sorted([*stay, *cut.leaving], key=lambda message: message.id) == list(view.messages)
    assert list(cut.leaving) == sorted(cut.leaving, key=lambda message: message.id)
    assert all(key <= cut.horizon_id for key in cut.kept_ids)
    assert cut.horizon_id >= max((message.id for message in view.head), default=0)
    assert all(message.role == "user" for message in stay if message.id in cut.kept_ids)


@pytest.mark.stress
@pytest.mark.contract("3.8")
@settings(max_examples=scale(100, 20_000))
@given(views(), st.integers(1, 5), st.integers(0, 600), st.integers(0, 1200))
def test_calls_and_results_stay_or_leave_together(view: LiveView, turns: int, budget: int, ceiling: int) -> None:
    cut = choose_cut(view, keep_turns=turns, budget=budget, ceiling=ceiling)
    if cut is None:
        return
    gone = {message.id for message in cut.leaving}
    caller: dict[str, Message] = {}
    for message in view.tail:
        caller |= {call.id: message for call in message.tool_calls}
        if message.role == "tool" and message.tool_call_id in caller:
            assert (caller[message.tool_call_id].id in gone) == (message.id in gone)


@pytest.mark.stress
@pytest.mark.contract("3.8")
@settings(max_examples=scale(100, 20_000))
@given(views(), st.integers(1, 5), st.integers(0, 600), st.integers(0, 1200))
def test_staying_messages_fit_the_budget_or_are_the_newest_question_alone(
    view: LiveView, turns: int, budget: int, ceiling: int
) -> None:
    cut = choose_cut(view, keep_turns=turns, budget=budget, ceiling=ceiling)
    stay = list(view.messages) if cut is None else staying(view, cut)
    newest = asked_last(view)
    if tokens(stay) > budget:
        assert {message.id for message in stay} <= {message.id for message in newest} or not view.tail
        assert tokens(stay) <= max(budget, ceiling) or not view.tail
    if newest and view.tail and message_tokens(newest[0]) <= max(budget, ceiling):
        assert newest[0] in stay


@pytest.mark.stress
@pytest.mark.contract("3.8")
@settings(max_examples=scale(100, 10_000))
@given(views(), st.integers(1, 5), st.integers(0, 600))
def test_oldest_staying_messages_leave_first(view: LiveView, turns: int, budget: int) -> None:
    cut = choose_cut(view, keep_turns=turns, budget=budget)
    if cut is None:
        return
    users = [message for message in view.messages if message.role == "user"]
    gone = {message.id for message in cut.leaving}
    if users and users[0].id not in gone and users[0].id in cut.kept_ids and len(cut.kept_ids) == 1:
        # The opening stayed apart from the rest: then so did the last turns, or it is the newest question itself.
        begins = [
            m for p, m in enumerate(view.tail) if m.role == "user" and (p == 0 or view.tail[p - 1].role != "user")
        ]
        assert all(message.id not in gone for message in begins[-turns:]) or users[0] in asked_last(view)
    stayed = [message.id in gone for message in view.tail if message.id not in cut.kept_ids]
    assert stayed == sorted(stayed, reverse=True), "what stays of the tail is its end"


def turn(first: int, size: int = 40) -> list[Message]:
    return [Message(first, "s", "user", "x" * size, 0.0), Message(first + 1, "s", "assistant", "y" * size, 0.0)]


@pytest.mark.contract("3.8")
def test_the_first_message_and_the_last_turns_stay_where_they_fit() -> None:
    view = LiveView("s", 0, (), None, tuple(m for number in range(10) for m in turn(2 * number + 1)))
    cut = choose_cut(view, keep_turns=4, budget=10_000)
    assert cut is not None
    assert cut.kept_ids == (1,)
    assert [message.id for message in staying(view, cut)] == [1, *range(13, 21)]
    tight = choose_cut(view, keep_turns=4, budget=4 * 36)
    assert tight is not None
    assert [message.id for message in staying(view, tight)] == list(range(13, 21))
    tighter = choose_cut(view, keep_turns=4, budget=3 * 36 + 18)
    assert tighter is not None
    assert [message.id for message in staying(view, tighter)] == list(range(15, 21))


@pytest.mark.contract("3.8")
def test_questions_nobody_has_answered_yet_are_one_turn() -> None:
    asked = tuple(Message(100 + number, "s", "user", f"waiting {number}", 0.0) for number in range(6))
    view = LiveView("s", 0, (), None, (*turn(1, 4000), *turn(3, 4000), *asked))
    cut = choose_cut(view, keep_turns=1, budget=200)
    assert cut is not None
    assert staying(view, cut) == list(asked)


def test_head_that_no_longer_fits_leaves_although_nothing_of_the_tail_can() -> None:
    head = (Message(1, "s", "user", "x" * 4000, 0.0),)
    view = LiveView("s", 1, head, "earlier", tuple(turn(10)))
    cut = choose_cut(view, keep_turns=4, budget=100)
    assert cut is not None
    assert cut.leaving == head
    assert cut.horizon_id == 9


def test_late_result_behind_another_message_stays_with_its_call() -> None:
    call = Message(3, "s", "assistant", None, 0.0, tool_calls=(ToolCall("c", "t", "{}"),))
    between = Message(4, "s", "user", "are you there?", 0.0)
    late = Message(5, "s", "tool", "found", 0.0, tool_call_id="c")
    view = LiveView("s", 0, (), None, (*turn(1, 4000), call, between, late))
    for budget in range(0, 200, 5):
        cut = choose_cut(view, keep_turns=4, budget=budget)
        if cut is not None:
            gone = set(cut.leaving)
            assert (call in gone) == (late in gone)
