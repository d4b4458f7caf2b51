"""Filters return the same results with and without an index."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.matching import MAX_FACTS, OVERFLOW_FACT, facts_of, pattern_facts
from hermes.memory_server.db.sqlite import holds_json
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine import candidates, messages, narrowing, search, words
from hermes.memory_server.engine.messages import append_messages, list_messages, set_message_metadata
from hermes.memory_server.engine.narrowing import narrow
from hermes.memory_server.engine.paging import PageRequest
from tests.memory_server.floor import draft, new_index, question, search_messages

DAY = 24 * 3600 * 1_000_000
NOW = 1_700_000_000_000_000
LEAVES: list[Any] = ["x", "y", "", 1, 1.0, 2.5, True, False, None, "1", "*", "ä"]


@pytest.fixture
def talk(tx: Tx) -> Tx:
    """Store forty messages of three people in two sessions, on forty days, with metadata."""
    for n in range(40):
        made = replace(
            draft(f"I own house number {n} in {'Malta' if n % 4 else 'Gozo'}.", f"p{n % 3}"),
            metadata=json.dumps({"n": n % 5, "tags": ["red", n % 2], "deep": {"a": {"b": f"v{n % 3}"}}}),
            created_at=NOW + n * DAY,
        )
        append_messages(tx, "w", f"s{n % 2}", [made], NOW)
    return tx


FILTERS: dict[str, Mapping[str, Any]] = {
    "nobody": {"peer_id": "nobody"},
    "one author": {"peer_id": "p1"},
    "two authors": {"peer_id": {"in": ["p1", "p2", "nobody"]}},
    "another session": {"session_id": "s1"},
    "another workspace": {"workspace_id": "elsewhere"},
    "no such id": {"id": "nothing"},
    "after": {"created_at": {"gt": "2023-12-10"}},
    "within": {"created_at": {"gte": "2023-11-20", "lt": "2023-12-01T00:00:00Z"}},
    "long after": {"created_at": {"gt": "2100-01-01"}},
    "number": {"metadata": {"n": 3}},
    "number as float": {"metadata": {"n": 3.0}},
    "number as text": {"metadata": {"n": "3"}},
    "truth is no number": {"metadata": {"n": True}},
    "in a list": {"metadata": {"tags": "red"}},
    "two in a list": {"metadata": {"tags": ["red", 1]}},
    "deep": {"metadata": {"deep": {"a": {"b": "v2"}}}},
    "contains": {"metadata": {"contains": {"n": 1, "tags": [0]}}},
    "nothing at all": {"metadata": {"tags": []}},
    "two keys": {"metadata": {"n": 1}, "peer_id": "p0"},
    "inside AND": {"AND": [{"metadata": {"n": 1}}, {"created_at": {"lt": "2023-12-01"}}]},
    "never": {"metadata": {"n": 99}},
    "not": {"NOT": [{"metadata": {"n": 1}}]},
    "either": {"OR": [{"metadata": {"n": 1}}, {"peer_id": "p2"}]},
    "everything": {"metadata": {"n": "*"}, "peer_id": "*"},
    "seen by": {"peer_perspective": "p1", "metadata": {"n": 2}},
}


def found(tx: Tx, filters: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Yield the results of lists and searches with a filter, in every area. Results of searches are sorted, because the
    rarity of words, and so the order, depends on the area."""
    if "peer_perspective" not in filters:
        for session in ("s0", "s1"):
            paged = list_messages(tx, "w", session, filters, PageRequest(size=100))
            assert len(paged.rows) == paged.total
            yield [row.content for row in paged.rows]
    for place in (SearchArea(1), SearchArea(1, (1,)), SearchArea(1, peer=2), SearchArea(1, (1, 2), 3)):
        for text in ("house Malta", "ouse numbe"):
            yield sorted(row.content for row in search_messages(tx, new_index(), place, question(text), filters, 100))


@pytest.mark.parametrize("name", [*FILTERS])
def test_index_changes_no_answer(talk: Tx, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_index = list(found(talk, FILTERS[name]))
    for module in (search, messages):
        monkeypatch.setattr(module, "narrow", lambda *_: None)
    monkeypatch.setattr(search, "_place_within", lambda _tx, place, _filters: place)
    assert with_index == list(found(talk, FILTERS[name]))


@pytest.mark.parametrize("name", [*FILTERS])
def test_few_looked_at_first_change_no_answer(talk: Tx, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits make every search examine all allowed rows."""
    as_ever = list(found(talk, FILTERS[name]))
    monkeypatch.setattr(narrowing, "MAX_SHORT_LIST_MESSAGES", 3)
    monkeypatch.setattr(words, "MESSAGES_PER_QUERY", 7)
    monkeypatch.setattr(candidates, "MAX_CHECKED_MESSAGES", 1)
    assert as_ever == list(found(talk, FILTERS[name]))


def test_word_that_everyone_uses_is_found_where_only_old_messages_are_allowed(
    talk: Tx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "MAX_NEWEST_ROWS", 5)
    filters = {"created_at": {"lt": "2023-11-16T00:00:00Z"}}
    rows = search_messages(talk, new_index(), SearchArea(1), question("house"), filters, 10)
    expected = {"I own house number 1 in Malta.", "I own house number 0 in Gozo."}
    assert {row.content for row in rows} == expected
    monkeypatch.setattr(narrowing, "MAX_SHORT_LIST_MESSAGES", 0)
    assert rows == search_messages(talk, new_index(), SearchArea(1), question("house"), filters, 10)


NOTHING = ["nobody", "another workspace", "no such id", "long after", "never", "number as text", "truth is no number"]


@pytest.mark.parametrize("name", NOTHING)
def test_filter_that_matches_nothing_is_known_to_without_a_look_at_messages(talk: Tx, name: str) -> None:
    assert narrow(talk, SearchArea(1), FILTERS[name]) == []


def test_changed_metadata_is_found_as_it_is_now(talk: Tx) -> None:
    [row] = list_messages(talk, "w", "s0", {"metadata": {"n": 3}}, PageRequest(size=1)).rows
    set_message_metadata(talk, "w", "s0", row.public_id, {"n": 77})
    assert [r.id for r in list_messages(talk, "w", "s0", {"metadata": {"n": 77}}, PageRequest()).rows] == [row.id]
    assert row.id not in [r.id for r in list_messages(talk, "w", "s0", {"metadata": {"n": 3}}, PageRequest()).rows]


def test_document_with_more_facts_than_are_kept_is_found_all_the_same(tx: Tx) -> None:
    many = {"list": [*range(MAX_FACTS + 1)]}
    assert facts_of(json.dumps(many)) == (OVERFLOW_FACT,)
    append_messages(tx, "w", "s", [replace(draft("I am many.", "ann"), metadata=json.dumps(many))], NOW)
    for wanted, total in ((MAX_FACTS, 1), (MAX_FACTS + 1, 0)):
        assert list_messages(tx, "w", "s", {"metadata": {"list": wanted}}, PageRequest()).total == total


def test_whatever_holds_a_pattern_has_its_facts() -> None:
    chance = random.Random(5)

    def value(depth: int) -> Any:
        kind = chance.random()
        if depth == 0 or kind < 0.5:
            return chance.choice(LEAVES)
        if kind < 0.75:
            return [value(depth - 1) for _ in range(chance.randint(0, 3))]
        return {chance.choice("abc"): value(depth - 1) for _ in range(chance.randint(0, 3))}

    held = 0
    for _ in range(20_000):
        document, pattern = {"a": value(3)}, {"a": value(2)}
        if holds_json(json.dumps(document), json.dumps(pattern)):
            held += 1
            assert {*pattern_facts(pattern)} <= {*facts_of(json.dumps(document))}, (document, pattern)
    assert held > 200


@pytest.fixture
def overheard(talk: Tx) -> Tx:
    """Add two sessions: one that p3 begins and p4 joins later, and one that p4 begins and p1 joins later."""
    for session, author in (("s2", "p3"), ("s2", "p4"), ("s3", "p4"), ("s3", "p1")):
        append_messages(talk, "w", session, [draft(f"{author} has a house of {session} in Malta.", author)], NOW)
    return talk


def heard_by(tx: Tx, listener: str, place: SearchArea) -> set[str]:
    rows = search_messages(tx, new_index(), place, question("house Malta"), {"peer_perspective": listener}, 100)
    return {row.content for row in rows}


@pytest.mark.parametrize("listener", ["p0", "p1", "p2", "p3", "p4", "nobody"])
@pytest.mark.parametrize(
    "place", [SearchArea(1), SearchArea(1, (1,)), SearchArea(1, (1, 3)), SearchArea(1, peer=2), SearchArea(1, (4,), 2)]
)
def test_whole_sessions_tell_the_same_of_a_perspective_as_each_message(
    overheard: Tx, listener: str, place: SearchArea, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_sessions = heard_by(overheard, listener, place)
    monkeypatch.setattr(search, "heard_part", lambda *_: None)
    assert by_sessions == heard_by(overheard, listener, place)


@pytest.mark.parametrize(
    ("listener", "place", "texts"),
    [
        ("p3", SearchArea(1), {"p3 has a house of s2 in Malta.", "p4 has a house of s2 in Malta."}),
        ("p4", SearchArea(1, peer=2), {"p1 has a house of s3 in Malta."}),
        ("p1", SearchArea(1, (3,)), set()),
    ],
    ids=["there from the beginning", "late elsewhere, where nobody meant speaks", "never there"],
)
def test_who_heard_whole_sessions_or_nothing_costs_no_look_at_each_message(
    overheard: Tx, listener: str, place: SearchArea, texts: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("messages were asked about one by one")

    monkeypatch.setattr(search, "Allowed", refuse)
    assert heard_by(overheard, listener, place) == texts
