"""What a person corrected or forgot, and how the rest of the program respects it: reviews do not note it again,
recalled lines that repeat a corrected fact get the right one added, and the prompt tells the model what is right."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.memory.likeness import fact_words, marking_words
from hermes.scope import Scope
from hermes.store.corrections import MAX_CORRECTIONS, Correction, corrections_of

TOLD, LONGEST = 30, 300
"""Corrections that a model is told of, the newest first, and characters of each side."""
SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")
MOST_LINES = 2000
"""Lines of a recalled text that are looked at; those behind them are left as they are."""


class Corrections(Struct, frozen=True):
    """The corrections of one person or group, the newest first."""

    rows: tuple[Correction, ...] = ()

    @classmethod
    def read(cls, tx: Tx, scope: Scope) -> Corrections:
        return cls(tuple(corrections_of(tx, scope)))

    @property
    def told(self) -> tuple[Correction, ...]:
        """Those that a model is told of."""
        return tuple(row for row in self.rows if row.right)[:TOLD]

    @property
    def mark(self) -> str:
        """A fingerprint: changes whenever the person corrects or forgets something; "" while they never did."""
        if not self.rows:
            return ""
        # Not of ids alone: one that was deleted is given again.
        held = json.dumps([(row.id, row.at, row.wrong, row.right) for row in self.rows])
        return sha256(held.encode()).hexdigest()[:8]

    def lines(self) -> str:
        """What a model is told: what is wrong and what holds, a line each; "" for nothing."""
        return "\n".join(f"- wrong: {_cut(row.wrong)} | right: {_cut(row.right)} ({_date(row)})" for row in self.told)

    def find_repeated(self, text: str) -> Correction | None:
        """The newest correction that this text violates by repeating what was corrected or forgotten, or None."""
        said = fact_words(text)
        return next((row for row in self.rows if _repeats(said, row)), None)

    def marked(self, text: str) -> str:
        """The recalled text; each line that says something corrected gets the right version added at its end."""
        if not self.told or not text:
            return text
        lines = text.split("\n")
        return "\n".join([*map(self._marked, lines[:MOST_LINES]), *lines[MOST_LINES:]])

    def replaced(self, text: str) -> str:
        """A text that a person said, in which each sentence that says no more than what was corrected says what holds
        instead; where it says more, what holds stands beside it."""
        if not self.told:
            return text
        sentences = [self._in_place_of(sentence) or sentence for sentence in SENTENCE.split(text)]
        return self.marked(" ".join(dict.fromkeys(sentences)))

    def _in_place_of(self, sentence: str) -> str | None:
        said = fact_words(sentence)
        holds = (row.right for row in self.rows if row.right and _sides(row)[0] == said != _sides(row)[1])
        return next(holds, None) if said else None

    def _marked(self, line: str) -> str:
        said = fact_words(line)
        found = next((row for row in self.rows if row.right and _holds_wrong(said, row)), None)
        if found is not None:
            return f"{line} [corrected by the person, {_date(found)}: {_cut(found.right)}]"
        found = self._find_named(line, said)
        if found is not None:
            return f"{line} [corrected by the person, {_date(found)}, if it is about this: {_cut(found.right)}]"
        return line

    def _find_named(self, line: str, said: frozenset[str]) -> Correction | None:
        """The newest correction of names or numbers that a line has, where it says nothing of what holds."""
        if any(row.right and _sides(row)[1] <= said for row in self.rows):
            return None
        shown = marking_words(line)
        return next((row for row in self.rows if row.right and _names_wrong(shown, said, row)), None)


def _repeats(said: frozenset[str], row: Correction) -> bool:
    """Whether a text, given as its fact words, repeats what was wrong: all of it, or nothing but a part of it."""
    if not row.right:  # forgotten: only hashes of its words are kept
        traced = sum(map(row.is_trace, said))
        return bool(traced) and traced in (len(row.traces), len(said))
    return _holds_wrong(said, row) or (said <= _sides(row)[0] and _is_against(said, row))


def _holds_wrong(said: frozenset[str], row: Correction) -> bool:
    return _sides(row)[0] <= said and _is_against(said, row)


def _names_wrong(shown: frozenset[str], said: frozenset[str], row: Correction) -> bool:
    """Whether a line has all the names and numbers that were replaced, and no word of those that took their place."""
    wrong, right = _sides(row)
    names = _names(row)
    return bool(names) and names <= shown and not (right - wrong) & said


@lru_cache(maxsize=2 * MAX_CORRECTIONS)
def _names(row: Correction) -> frozenset[str]:
    """The names and numbers that were replaced: words that stand for one thing, wherever they are said."""
    return marking_words(row.wrong, first=False) - _sides(row)[1]


def _is_against(said: frozenset[str], row: Correction) -> bool:
    """Whether a text has words that the correction replaced. A text that also has all the new words is fine ("not Bonn
    but Berlin")."""
    wrong, right = _sides(row)
    new = right - wrong
    return bool(said & (wrong - right)) and not (new and new <= said)


@lru_cache(maxsize=2 * MAX_CORRECTIONS)
def _sides(row: Correction) -> tuple[frozenset[str], frozenset[str]]:
    return fact_words(row.wrong), fact_words(row.right)


def _cut(text: str) -> str:
    return " ".join(text.split())[:LONGEST]


def _date(row: Correction) -> str:
    return f"{datetime.fromtimestamp(row.at, UTC):%d %B %Y}"
