"""The vector cache finds what the tables hold, in the requested area only."""

from __future__ import annotations

import numpy as np
import pytest

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import SHIPPED
from hermes.memory_server.engine import memory_indexes
from hermes.memory_server.engine.deletion import purge_session
from hermes.memory_server.engine.memory_index import ARRAYS
from hermes.memory_server.engine.memory_indexes import MemoryIndexes
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.peers import get_peer
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.vectors import Matrix, VectorIndex
from hermes.memory_server.engine.workspaces import workspace_id_of
from tests.memory_server.floor import draft, new_index, question, search_messages

NOW = 1_700_000_000_000_000
pytestmark = pytest.mark.contract("9.1")


def say(tx: Tx, session: str, peer: str, *texts: str) -> None:
    append_messages(tx, "w", session, [draft(text, peer) for text in texts], NOW)


def test_closeness_of_narrow_rows_is_that_of_the_wide_ones() -> None:
    chance = np.random.default_rng(5)
    wide = chance.normal(size=(3000, 256)).astype(np.float32)
    wide /= np.linalg.norm(wide, axis=1)[:, None]
    wide[17] = 0
    matrix = Matrix(256)
    matrix.add([(number, 0, row.astype(np.float16).tobytes(), True) for number, row in enumerate(wide)])
    exact = wide @ wide[5]
    assert np.abs(matrix.rows().multiply(wide[5]) - exact).max() < 0.005
    assert [found for found, _ in matrix.rows().nearest(wide[5], 1)] == [5]


def found(tx: Tx, place: SearchArea, query: str, limit: int = 10, index: VectorIndex | None = None) -> list[str]:
    rows = search_messages(tx, new_index() if index is None else index, place, question(query), None, limit)
    return [row.content for row in rows]


def test_search_stays_in_its_session_and_with_its_author(tx: Tx) -> None:
    say(tx, "one", "ann", "I keep bees.", "I bake bread.")
    say(tx, "one", "ben", "I keep bees too.")
    say(tx, "two", "ann", "I keep bees in town.")
    one, ann = get_session(tx, "w", "one").id, get_peer(tx, "w", "ann").id

    assert len(found(tx, SearchArea(1), "keeping bees")) == 4
    inside = found(tx, SearchArea(1, (one,)), "keeping bees")
    assert sorted(inside) == ["I bake bread.", "I keep bees too.", "I keep bees."]
    own = found(tx, SearchArea(1, None, ann), "keeping bees")
    assert sorted(own) == ["I bake bread.", "I keep bees in town.", "I keep bees."]
    assert found(tx, SearchArea(1, (one,), ann), "keeping bees") == ["I keep bees.", "I bake bread."]


@pytest.mark.parametrize("place", ["workspace", "session", "author"])
def test_rows_that_came_and_went_since_are_followed(tx: Tx, place: str) -> None:
    say(tx, "one", "ann", "I keep bees.")
    index = new_index()
    one, ann = get_session(tx, "w", "one").id, get_peer(tx, "w", "ann").id
    where = SearchArea(1, (one,) if place == "session" else None, ann if place == "author" else None)

    assert found(tx, where, "bees", index=index) == ["I keep bees."]
    say(tx, "one", "ann", "I bake bread.")
    assert found(tx, where, "bees", index=index) == ["I keep bees.", "I bake bread."]
    say(tx, "two", "ben", "No bees here.")
    purge_session(tx, one, NOW)
    assert found(tx, where, "bees", index=index) == (["No bees here."] if place == "workspace" else [])
    assert found(tx, SearchArea(1), "bees", index=index) == ["No bees here."]


def test_what_is_kept_in_memory_is_what_is_read_anew(tx: Tx) -> None:
    long = "stone " * 300 + "I keep bees in the garden. " * 30
    index = new_index()
    for number in range(4):
        say(tx, f"s{number % 2}", "ann", "Do you keep bees?", long, "Yes.")
        say(tx, "gone", "ben", "This goes.", long)
        index.memory_indexes.load(tx, 1)
    purge_session(tx, get_session(tx, "w", "gone").id, NOW)
    say(tx, "s0", "ann", "The end.")
    kept, anew = index.memory_indexes.load(tx, 1).rows, new_index().memory_indexes.load(tx, 1).rows
    for name in ARRAYS:
        assert getattr(kept, name).tolist() == getattr(anew, name).tolist(), name


def test_long_message_at_the_edge_of_a_batch_comes_whole(tx: Tx) -> None:
    long = "stone " * 300 + "I keep bees in the garden. " * 30
    say(tx, "one", "ann", *["Snow fell."] * (memory_indexes.OUTLINE_BATCH_ROWS - 2), long, "The end.")
    assert found(tx, SearchArea(1), "I keep bees in the garden", 1) == [long]


def test_word_that_everyone_uses_does_not_hide_the_rare_one(tx: Tx) -> None:
    common = [f"The garden number {number} is green." for number in range(4000)]
    for start in range(0, len(common), 500):
        say(tx, "one", "ann", *common[start : start + 500])
    say(tx, "one", "ann", "A zeppelin flew over the garden.")
    say(tx, "one", "ann", *common[:10])
    found = search_messages(tx, new_index(), SearchArea(1), question("zeppelin garden"), None, 5)
    assert found[0].content == "A zeppelin flew over the garden."
    assert len(search_messages(tx, new_index(), SearchArea(1), question("garden"), None, 5)) == 5


def test_many_small_workspaces_take_no_more_memory_than_a_large_one(tx: Tx) -> None:
    for number in range(60):
        append_messages(tx, f"w{number}", "talk", [draft("I keep bees.", "ann")] * 20, NOW)
    kept = MemoryIndexes(SHIPPED.dimension, rows_kept=200)
    for number in range(60):
        assert len(kept.load(tx, workspace_id_of(tx, f"w{number}")).rows) == 20
    assert sum(len(known.memory_index.rows()) for known in kept._known.values()) <= 200
