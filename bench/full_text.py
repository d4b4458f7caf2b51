"""Plain full text search, the baseline of all search benchmarks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from bench.talks import DEPTH, Asked, Talk
from hermes.ranking.words import split_words, telling_words

Find = Callable[[Talk, Asked], list[str]]
"""Returns the ids of matching turns, best first."""


def by_full_text(talks: Sequence[Talk]) -> Find:
    """Search by FTS5 with stemming and without stop words; by trigrams for languages without spaces."""
    databases: dict[str, sqlite3.Connection] = {}
    spaced: dict[str, bool] = {}
    for talk in talks:
        letters = "".join(turn.text for turn in talk.turns)
        spaced[talk.name] = letters.count(" ") > len(letters) / 20
        database = databases[talk.name] = sqlite3.connect(":memory:")
        kind = "porter unicode61" if spaced[talk.name] else "trigram"
        database.execute(f"CREATE VIRTUAL TABLE said USING fts5(id UNINDEXED, content, tokenize = '{kind}')")
        database.executemany("INSERT INTO said VALUES (?, ?)", [(turn.id, turn.text) for turn in talk.turns])

    def find(talk: Talk, asked: Asked) -> list[str]:
        if spaced[talk.name]:
            words = telling_words(split_words(asked.text))
        else:
            letters = "".join(letter for letter in asked.text if letter.isalnum())
            words = [letters[place : place + 3] for place in range(len(letters) - 2)]
        query = "SELECT id FROM said WHERE said MATCH ? ORDER BY rank LIMIT ?"
        said = " OR ".join(f'"{word}"' for word in words)
        return [row[0] for row in databases[talk.name].execute(query, (said, DEPTH))]

    return find
