"""Corrections of facts by a person, and their effects: reviews do not note a corrected fact again, recalled lines that
repeat it get the right one added, and the prompt states what is right."""

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

MAX_CORRECTIONS_IN_PROMPT, MAX_CORRECTION_CHARS = 30, 300
"""Limits of the prompt: the newest corrections, and the characters of each side."""
SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")
MAX_MARKED_LINES = 2000
"""Further lines of a recalled text are not checked."""


class Corrections(Struct, frozen=True):
    """The corrections of one person or group, the newest first."""

    rows: tuple[Correction, ...] = ()

    @classmethod
    def read(cls, tx: Tx, scope: Scope) -> Corrections:
        return cls(tuple(corrections_of(tx, scope)))

    @property
    def in_prompt(self) -> tuple[Correction, ...]:
        """The corrections that the prompt states."""
        return tuple(row for row in self.rows if row.right)[:MAX_CORRECTIONS_IN_PROMPT]

    @property
    def mark(self) -> str:
        """A fingerprint of the corrections; "" without any."""
        if not self.rows:
            return ""
        # Ids alone are not enough: the id of a deleted row is reused.
        held = json.dumps([(row.id, row.at, row.wrong, row.right) for row in self.rows])
        return sha256(held.encode()).hexdigest()[:8]

    def lines(self) -> str:
        """Return the corrections for the prompt, a line each."""
        return "\n".join(
            f"- wrong: {_cut(row.wrong)} | right: {_cut(row.right)} ({_date(row)})" for row in self.in_prompt
        )

    def find_repeated(self, text: str) -> Correction | None:
        """Return the newest correction that this text violates by repeating what was corrected or forgotten, or
        None."""
        said = fact_words(text)
        return next((row for row in self.rows if _repeats(said, row)), None)

    def marked(self, text: str) -> str:
        """Return recalled text with the right version added to each line that repeats a corrected fact."""
        if not self.in_prompt or not text:
            return text
        lines = text.split("\n")
        return "\n".join([*map(self._marked, lines[:MAX_MARKED_LINES]), *lines[MAX_MARKED_LINES:]])

    def replaced(self, text: str) -> str:
        """Return a person's earlier statement, corrected. A sentence that says only the corrected fact is replaced; if
        it says more, the right version is added."""
        if not self.in_prompt:
            return text
        sentences = [self._in_place_of(sentence) or sentence for sentence in SENTENCE.split(text)]
        return self.marked(" ".join(dict.fromkeys(sentences)))

    def _in_place_of(self, sentence: str) -> str | None:
        said = fact_words(sentence)
        holds = (row.right for row in self.rows if row.right and _sides(row)[0] == said != _sides(row)[1])
        return next(holds, None) if said else None

    def _marked(self, line: str) -> str:
        said = fact_words(line)
        found = next((row for row in self.rows if row.right and _states_wrong(said, row)), None)
        if found is not None:
            return f"{line} [corrected by the person, {_date(found)}: {_cut(found.right)}]"
        found = self._find_named(line, said)
        if found is not None:
            return f"{line} [corrected by the person, {_date(found)}, if it is about this: {_cut(found.right)}]"
        return line

    def _find_named(self, line: str, said: frozenset[str]) -> Correction | None:
        """Return the newest correction of names or numbers that the line contains, unless the line states a right
        version."""
        if any(row.right and _sides(row)[1] <= said for row in self.rows):
            return None
        shown = marking_words(line)
        return next((row for row in self.rows if row.right and _names_wrong(shown, said, row)), None)


def _repeats(said: frozenset[str], row: Correction) -> bool:
    """Return True if a text, given as fact words, repeats a corrected or forgotten fact: all of it, or only a part of
    it."""
    if not row.right:  # forgotten: only hashes of its words are stored
        traced = sum(map(row.is_trace, said))
        return bool(traced) and traced in (len(row.traces), len(said))
    return _states_wrong(said, row) or (said <= _sides(row)[0] and _is_against(said, row))


def _states_wrong(said: frozenset[str], row: Correction) -> bool:
    return _sides(row)[0] <= said and _is_against(said, row)


def _names_wrong(shown: frozenset[str], said: frozenset[str], row: Correction) -> bool:
    """Return True if a line has all replaced names and numbers, and no word that replaced them."""
    wrong, right = _sides(row)
    names = _names(row)
    return bool(names) and names <= shown and not (right - wrong) & said


@lru_cache(maxsize=2 * MAX_CORRECTIONS)
def _names(row: Correction) -> frozenset[str]:
    """Return the names and numbers that were replaced: words that identify one thing in any sentence."""
    return marking_words(row.wrong, first=False) - _sides(row)[1]


def _is_against(said: frozenset[str], row: Correction) -> bool:
    """Return True if a text has words that the correction replaced. A text that also has all the new words is fine
    ("not Bonn but Berlin")."""
    wrong, right = _sides(row)
    new = right - wrong
    return bool(said & (wrong - right)) and not (new and new <= said)


@lru_cache(maxsize=2 * MAX_CORRECTIONS)
def _sides(row: Correction) -> tuple[frozenset[str], frozenset[str]]:
    return fact_words(row.wrong), fact_words(row.right)


def _cut(text: str) -> str:
    return " ".join(text.split())[:MAX_CORRECTION_CHARS]


def _date(row: Correction) -> str:
    return f"{datetime.fromtimestamp(row.at, UTC):%d %B %Y}"
