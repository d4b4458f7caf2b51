"""The accepted values, errors and display of each kind of setting."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.errors import SettingsError
from hermes.settings import TABLE, Setting
from hermes.settings.compound_kinds import Either, Fields, List, Map, optional
from hermes.settings.kinds import (
    Boolean,
    Choice,
    Integer,
    Kind,
    Number,
    RefusedValue,
    Secret,
    Text,
    Url,
    in_words,
    plain,
)

FLAG = Boolean()
COUNT = Integer(1, 9)
DEPTH = Integer(1, 3, clamped=True)
RATE = Number(0, 1)
PICK = Choice(("a", "b"), spellings={"old": "a"})
OFTEN = Either(Choice(("async", "turn")), Integer(1))
BUDGET = optional(Integer(1))
NAMES = List(Text())
LEVELS = optional(List(Choice(("low", "high"))))
ALIASES = Map(Text())
SIGHT = Fields({"me": FLAG, "others": FLAG})
WATCH = Fields({"user": SIGHT, "ai": SIGHT})
GRANT = Fields({"refreshToken": Secret(), "expiresAt": Number()})
ALL: tuple[Kind[Any], ...] = (
    *(FLAG, COUNT, DEPTH, RATE, Text(), Secret(), PICK, Url(), OFTEN, BUDGET),
    *(NAMES, LEVELS, ALIASES, WATCH, GRANT, optional(Text()), List(List(COUNT)), Map(List(Text()))),
)


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        *((FLAG, word, True) for word in (True, 1, "true", "Yes", " ON ", "1")),
        *((FLAG, word, False) for word in (False, 0, "false", "No", "off", "0")),
        (COUNT, 5, 5), (COUNT, 5.0, 5), (COUNT, "5", 5), (COUNT, " 5 ", 5), (COUNT, "5.0", 5),
        (COUNT, 1, 1), (COUNT, 9, 9), (Integer(1), 10**30, 10**30), (Integer(), "9007199254740993", 9007199254740993),
        (DEPTH, 0, 1), (DEPTH, "7", 3), (DEPTH, 2, 2), (DEPTH, -(10**30), 1),
        (RATE, 1, 1.0), (RATE, "0.25", 0.25), (RATE, "1e-1", 0.1), (Number(), -7, -7.0),
        (Text(), "", ""), (Text(), "päth", "päth"), (Text(), 5, "5"), (Text(), 1.5, "1.5"),
        (Text({"": "none"}), "", "none"), (Text({"": "none"}), "x", "x"),
        (PICK, "b", "b"), (PICK, "old", "a"),
        (Url(), " https://a.example/v1 ", "https://a.example/v1"), (Url(), "", ""), (Url(), "http://[::1]:8000", "http://[::1]:8000"),
        (OFTEN, "async", "async"), (OFTEN, 5, 5), (OFTEN, "5", 5),
        (BUDGET, None, None), (BUDGET, "none", None), (BUDGET, "NULL", None), (BUDGET, 800, 800), (BUDGET, "800", 800),
        (NAMES, [], ()), (NAMES, ["a", "b, c", 5], ("a", "b, c", "5")), (NAMES, "a, b ,,c", ("a", "b", "c")),
        (NAMES, '["a", "b, c"]', ("a", "b, c")), (NAMES, "", ()), (NAMES, 5, ("5",)),
        (LEVELS, ["low", "high"], ("low", "high")), (LEVELS, None, None), (LEVELS, "low,low", ("low", "low")),
        (ALIASES, {}, {}), (ALIASES, {"1": "alice", 2: "bob"}, {"1": "alice", "2": "bob"}),
        (ALIASES, '{"1": "a"}', {"1": "a"}),
        (WATCH, {"ai": {"me": "no"}}, {"ai": {"me": False}}), (WATCH, {}, {}),
    ],
)  # fmt: skip
def test_value_is_understood(kind: Kind[Any], raw: object, value: object) -> None:
    parsed = kind.parse(raw)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "raw", "said"),
    [
        *((FLAG, raw, " is {}, but takes true or false") for raw in ("maybe", 2, 0.5, "", None, [True])),
        *((COUNT, raw, " is {}, but takes a whole number from 1 to 9")
          for raw in (0, 10, 5.5, "5.5", "five", True, None, [5], "")),
        (Integer(1), 0, " is 0, but takes a whole number of at least 1"),
        (Integer(maximum=9), 10, " is 10, but takes a whole number of at most 9"),
        (DEPTH, "deep", " is 'deep', but takes a whole number from 1 to 3 (what is beyond is brought there)"),
        *((RATE, raw, " is {}, but takes a number from 0 to 1")
          for raw in (-0.1, 1.1, "nan", "inf", float("nan"), False, None)),
        *((Number(), raw, " is {}, but takes a number") for raw in (float("inf"), "-inf", "nan", "x")),
        *((Text(), raw, " is {}, but takes text") for raw in (None, True, ["a"], {"a": 1})),
        *((PICK, raw, " is {}, but takes one of a, b") for raw in ("c", "A", "", 1, ["a"])),
        *((Url(), raw, " is {}, but takes an http:// or https:// URL, or nothing")
          for raw in ("notaurl", "ftp://a.example", "http://", "http://a b", "http://a:0/", "http://a:99999", 5, None)),
        (OFTEN, "never", " is 'never', but takes one of async, turn or a whole number of at least 1"),
        (OFTEN, 0, " is 0, but takes one of async, turn or a whole number of at least 1"),
        (BUDGET, "many", " is 'many', but takes none or a whole number of at least 1"),
        *((NAMES, raw, " is {}, but takes a list, each item text") for raw in (None, True, {"a": 1})),
        (NAMES, "[a", " is None, but takes a list, each item text"),
        (LEVELS, ["low", "huge"], " item 2 is 'huge', but takes one of low, high"),
        (ALIASES, {"7": True}, ".7 is True, but takes text"),
        *((ALIASES, raw, " is {}, but takes a map, each value text") for raw in ([1], 5, {True: "x"})),
        (WATCH, {"ai": {"me": "maybe"}}, ".ai.me is 'maybe', but takes true or false"),
        (WATCH, {"ai": {"mee": True}}, ".ai is {{'mee': True}}, but takes a map with any of me, others"),
        (WATCH, {"user": True}, ".user is True, but takes a map with any of me, others"),
        (optional(WATCH), {"user": True}, ".user is True, but takes a map with any of me, others"),
    ],
)  # fmt: skip
def test_wrong_value_is_named_with_what_is_allowed(kind: Kind[Any], raw: object, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Setting("t.x", kind, None, "x").parse(raw, "config.yaml, line 7")
    assert caught.value.message == f"config.yaml, line 7: t.x{said.format(repr(raw))}"
    assert "hermes config list" in caught.value.hint


@pytest.mark.parametrize(
    ("kind", "raw"),
    [(Text(), "x" * 10_001), (Secret(), "x" * 10_001), (NAMES, ["x"] * 10_001),
     (ALIASES, dict.fromkeys(range(10_001), "x"))],
)  # fmt: skip
def test_overlong_value_is_refused_in_a_short_line(kind: Kind[Any], raw: object) -> None:
    with pytest.raises(RefusedValue, match="at most 10,000") as caught:
        kind.parse(raw)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("kind", "raw"),
    [(GRANT, {"refreshToken": ["hunter2"]}), (GRANT, "hunter2"), (Map(Secret()), ["hunter2"]),
     (List(Secret()), {"hunter2": 1}), (optional(Secret()), ["hunter2"]), (Url(), "bob:hunter2@host/v1"),
     (Url(), "htp://bob:hunter2@host"), (Text(), ["http://bob:hunter2@host"])],
)  # fmt: skip
def test_a_refusal_shows_no_secret(kind: Kind[Any], raw: object) -> None:
    with pytest.raises(RefusedValue) as caught:
        kind.parse(raw)
    assert "hunter2" not in str(caught.value)
    assert "(hidden)" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "raw", "shown"),
    [
        (Secret(), "hunter2", "(hidden)"),
        (Secret(), "", ""),
        (optional(Secret()), None, None),
        (optional(Secret()), "hunter2", "(hidden)"),
        (GRANT, {"refreshToken": "hunter2", "expiresAt": 5}, {"refreshToken": "(hidden)", "expiresAt": 5.0}),
        (Map(Secret()), {"a": "hunter2"}, {"a": "(hidden)"}),
        (List(Secret()), ["hunter2"], ["(hidden)"]),
        (Url(), "http://bob:hunter2@host/v1", "http://bob:(hidden)@host/v1"),
        (NAMES, "a,b", ["a", "b"]),
    ],
)
def test_a_value_is_shown_without_its_secrets(kind: Kind[Any], raw: object, shown: object) -> None:
    assert kind.show(kind.parse(raw)) == shown


def test_a_kind_that_holds_a_secret_anywhere_is_secret() -> None:
    holding = (Secret(), GRANT, Map(Secret()), List(Secret()), optional(Secret()), Fields({"x": GRANT}))
    assert all(kind.secret for kind in holding)
    assert not any(kind.secret for kind in (Text(), WATCH, ALIASES, NAMES, BUDGET, Url()))


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner))


@given(ANYTHING | st.sampled_from(["", "low,high", "[1, 2]", '{"user": {"me": true}}', "http://x", "none", "[" * 3000]))
def test_any_value_is_parsed_or_refused_and_parsing_is_idempotent(raw: object) -> None:
    for kind in (*ALL, *(setting.kind for setting in TABLE)):
        try:
            value = kind.parse(raw)
        except RefusedValue:
            continue
        assert kind.parse(value) == value
        assert kind.parse(plain(value)) == value
        json.dumps(kind.show(value))


@pytest.mark.parametrize(
    ("kind", "raw", "text"),
    [(FLAG, True, "true"), (BUDGET, None, "none"), (NAMES, ["a", "b"], "a, b"), (NAMES, [], ""), (COUNT, 5, "5"),
     (ALIASES, {"1": "ä"}, '{"1": "ä"}'), (WATCH, {"ai": {"me": True}}, '{"ai": {"me": true}}')],
)  # fmt: skip
def test_a_shown_value_is_one_line_that_is_understood_again(kind: Kind[Any], raw: object, text: str) -> None:
    value = kind.parse(raw)
    assert in_words(kind.show(value)) == text
    assert kind.parse(text) == value
