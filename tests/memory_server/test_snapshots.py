"""A search uses the rows of its snapshot, whatever other searches of the process cache meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.text_index import MessageIds, SearchArea
from hermes.memory_server.engine import postings
from hermes.memory_server.engine.candidates import find_candidates
from hermes.memory_server.engine.deletion import purge_session
from hermes.memory_server.engine.memory_indexes import Seen
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.words import understand
from tests.memory_server.floor import draft, new_index, question, search_messages

NOW = 1_700_000_000_000_000
HERE = SearchArea(1)
LONG = "stone " * 300 + "I live in a garden. " * 30
pytestmark = pytest.mark.contract("9.1")


def say(tx: Tx, session: str, *texts: str) -> None:
    append_messages(tx, "w", session, [draft(text, "ann") for text in texts], NOW)


def holders(tx: Tx, seen: Seen, word: str) -> list[int]:
    """Return the ids of messages that contain a word, as a search sees them."""
    rows = seen.postings.read(text_index(tx).within(tx, HERE), seen.rows, word, seen.newest).among(seen.rows)
    return [int(seen.rows.ids[row]) for row in rows]


def test_pieces_of_a_message_do_not_stand_for_messages_that_are_gone(tx: Tx) -> None:
    say(tx, "one", LONG, "A zeppelin flew by.")
    say(tx, "gone", "This goes.", "This too.")
    say(tx, "one", "The end.")
    purge_session(tx, get_session(tx, "w", "gone").id, NOW)
    index = new_index()
    assert index.memory_indexes.load(tx, 1).rows.ids.tolist() == [1, 1, 1, 2, 5]
    found = search_messages(tx, index, HERE, question("zeppelin"), None, 1)
    assert [row.content for row in found] == ["A zeppelin flew by."]


def test_rows_without_gaps_and_pieces_are_known_to_be_dense(tx: Tx) -> None:
    say(tx, "gone", LONG)
    say(tx, "one", "I keep bees.", "I bake bread.")
    memory_indexes = new_index().memory_indexes
    assert not memory_indexes.load(tx, 1).rows.is_dense
    purge_session(tx, get_session(tx, "w", "gone").id, NOW)
    assert memory_indexes.load(tx, 1).rows.is_dense
    say(tx, "one", "I sail.")
    assert memory_indexes.load(tx, 1).rows.is_dense
    say(tx, "one", LONG)
    assert not memory_indexes.load(tx, 1).rows.is_dense


def test_search_that_began_earlier_is_not_told_of_rows_it_does_not_have(tx: Tx) -> None:
    say(tx, "one", "I keep bees.", "I bake bread.")
    memory_indexes = new_index().memory_indexes
    asked = understand(tx, 1, question("bees"))
    earlier = memory_indexes.load(tx, 1)
    expected = find_candidates(tx, earlier, HERE, asked, None).ids.tolist()
    say(tx, "one", *["More bees."] * 5)
    assert holders(tx, memory_indexes.load(tx, 1), "bees") == [1, 3, 4, 5, 6, 7]
    assert find_candidates(tx, earlier, HERE, asked, None).ids.tolist() == expected
    assert holders(tx, memory_indexes.load(tx, 1), "bees") == [1, 3, 4, 5, 6, 7], "the later search loses nothing"


def match_two(words: Sequence[str], limit: int | None, between: tuple[int, int] | None) -> MessageIds:
    """Return the matches of a transaction that began when there were two messages."""
    return np.array([2, 1])


def test_frequent_word_is_read_again_for_a_search_that_began_earlier(tx: Tx, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("MAX_NEWEST_ROWS", "MAX_COMPLETE_ROWS"):
        monkeypatch.setattr(postings, bound, 2)
    say(tx, "one", "Bees.", "Bees again.")
    memory_indexes = new_index().memory_indexes
    earlier = memory_indexes.load(tx, 1)
    say(tx, "one", "More bees.", "Even more bees.")
    assert holders(tx, memory_indexes.load(tx, 1), "bees") == [3, 4], "the newest alone are kept"
    read = earlier.postings.read(match_two, earlier.rows, "bees", earlier.newest)
    assert read.among(earlier.rows).tolist() == [0, 1]
    assert holders(tx, memory_indexes.load(tx, 1), "bees") == [3, 4]


def test_search_begun_before_a_deletion_leaves_nothing_in_the_cache(tx: Tx) -> None:
    say(tx, "gone", "This goes.", "This too.")
    say(tx, "one", "I keep bees.", "I bake bread.", "I sail.")
    memory_indexes = new_index().memory_indexes
    earlier = memory_indexes.load(tx, 1)
    purge_session(tx, get_session(tx, "w", "gone").id, NOW)
    later = memory_indexes.load(tx, 1)
    assert holders(tx, earlier, "bees") == [3]
    assert holders(tx, later, "bees") == [3]


def test_sizes_of_sessions_are_those_of_the_rows_a_search_has(tx: Tx) -> None:
    say(tx, "gone", "This goes.", LONG, "This too.")
    say(tx, "one", "I keep bees.")
    memory_indexes = new_index().memory_indexes
    seen = memory_indexes.load(tx, 1)
    sessions = seen.rows.sessions[[0, -1]]
    assert seen.sizes(sessions).tolist() == [3, 1]
    say(tx, "gone", "And this.")
    say(tx, "one", "I bake bread.")
    later = memory_indexes.load(tx, 1)
    assert (seen.sizes(sessions).tolist(), later.sizes(sessions).tolist()) == ([3, 1], [4, 2])
    for name in ("gone", "one"):
        purge_session(tx, get_session(tx, "w", name).id, NOW)
    memory_indexes.load(tx, 1)
    assert seen.sizes(sessions).tolist() == [3, 1]


def test_words_that_nobody_uses_are_forgotten_too(tx: Tx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "MAX_ROWS_KEPT", 1000)
    say(tx, "one", "I keep bees.")
    seen = new_index().memory_indexes.load(tx, 1)
    words = [f"nothing{number}" for number in range(100)]
    for word in words:
        assert holders(tx, seen, word) == []
    kept = [word for word in words if seen.postings.known(word) is not None]
    assert kept == words[-len(kept) :]
    assert 0 < len(kept) < 20
