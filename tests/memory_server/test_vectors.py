"""Vectors in memory: they find what the tables hold, in the place that is asked for and nowhere else."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.text_index import Place
from hermes.memory_server.embedder import SHIPPED
from hermes.memory_server.engine import vectors
from hermes.memory_server.engine.deletion import purge_session
from hermes.memory_server.engine.messages import append_messages, find_messages
from hermes.memory_server.engine.peers import get_peer
from hermes.memory_server.engine.search import search_messages
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.vectors import Matrix
from tests.memory_server.floor import draft, embed, new_index, question

NOW = 1_700_000_000_000_000
pytestmark = pytest.mark.contract("9.1")


def say(tx: Tx, session: str, peer: str, *texts: str) -> None:
    append_messages(tx, "w", session, [draft(text, peer) for text in texts], NOW)


def texts(tx: Tx, hits: list[vectors.Hit]) -> list[str]:
    return [row.content for row in find_messages(tx, [row_id for row_id, _ in hits])]


def test_closeness_of_narrow_rows_is_that_of_the_wide_ones() -> None:
    chance = np.random.default_rng(5)
    wide = chance.normal(size=(3000, 256)).astype(np.float32)
    wide /= np.linalg.norm(wide, axis=1)[:, None]
    wide[17] = 0
    matrix = Matrix(256)
    matrix.add([(number, 0, row.astype(np.float16).tobytes()) for number, row in enumerate(wide)])
    exact = wide @ wide[5]
    assert np.abs(matrix.rows().multiply(wide[5]) - exact).max() < 0.005
    assert [found for found, _ in matrix.rows().nearest(wide[5], 1)] == [5]


def test_search_stays_in_its_session_and_with_its_author(tx: Tx) -> None:
    say(tx, "one", "ann", "I keep bees.", "I bake bread.")
    say(tx, "one", "ben", "I keep bees too.")
    say(tx, "two", "ann", "I keep bees in town.")
    index, bees = new_index(), embed("I keep bees")
    one, ann = get_session(tx, "w", "one").id, get_peer(tx, "w", "ann").id

    assert len(index.nearest_messages(tx, 1, bees, 10)) == 4
    inside = index.nearest_messages(tx, 1, bees, 10, sessions=[one])
    assert sorted(texts(tx, inside)) == ["I bake bread.", "I keep bees too.", "I keep bees."]
    own = index.nearest_messages(tx, 1, bees, 10, peer=ann)
    assert sorted(texts(tx, own)) == ["I bake bread.", "I keep bees in town.", "I keep bees."]
    both = index.nearest_messages(tx, 1, bees, 10, sessions=[one], peer=ann)
    assert texts(tx, both) == ["I keep bees.", "I bake bread."]


@pytest.mark.parametrize("place", ["workspace", "session", "author"])
def test_rows_that_came_and_went_since_are_followed(tx: Tx, place: str) -> None:
    say(tx, "one", "ann", "I keep bees.")
    index, bees = new_index(), embed("I keep bees")
    one, ann = get_session(tx, "w", "one").id, get_peer(tx, "w", "ann").id

    def found() -> list[str]:
        sessions = [one] if place == "session" else None
        return texts(
            tx, index.nearest_messages(tx, 1, bees, 10, sessions=sessions, peer=ann if place == "author" else None)
        )

    assert found() == ["I keep bees."]
    say(tx, "one", "ann", "I bake bread.")
    assert found() == ["I keep bees.", "I bake bread."]
    purge_session(tx, one, NOW)
    assert found() == []


def test_long_message_at_the_edge_of_a_batch_comes_whole(tx: Tx) -> None:
    long = "stone " * 300 + "I keep bees in the garden. " * 30
    say(tx, "one", "ann", *["Snow fell."] * (vectors.BATCH - 2), long, "The end.")
    hits = new_index().nearest_messages(tx, 1, embed("I keep bees in the garden"), 1)
    assert texts(tx, hits) == [long]


def test_word_that_everyone_uses_does_not_hide_the_rare_one(tx: Tx) -> None:
    common = [f"The garden number {number} is green." for number in range(4000)]
    for start in range(0, len(common), 500):
        say(tx, "one", "ann", *common[start : start + 500])
    say(tx, "one", "ann", "A zeppelin flew over the garden.")
    say(tx, "one", "ann", *common[:10])
    found = search_messages(tx, new_index(), Place(1), question("zeppelin garden"), None, 5)
    assert found[0].content == "A zeppelin flew over the garden."
    assert len(search_messages(tx, new_index(), Place(1), question("garden"), None, 5)) == 5


def test_many_small_places_take_no_more_memory_than_a_large_one(tx: Tx) -> None:
    for number in range(400):
        say(tx, f"s{number}", "ann", "I keep bees.")
    ids = [get_session(tx, "w", f"s{number}").id for number in range(400)]
    index, bees = new_index(rows_kept=1000), embed("I keep bees")
    index.nearest_messages(tx, 1, bees, 1, sessions=ids[:1])
    tracemalloc.start()
    try:
        for session_id in ids:
            assert len(index.nearest_messages(tx, 1, bees, 1, sessions=[session_id])) == 1
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * 1000 * SHIPPED.dimension
