"""Successors: among several short statements, a later one about the same thing goes before an earlier one. Pure.

Beside the rules of `claims` and `changes`, which know attributes and values, this uses the second embedder: two
statements with close vectors, of which the later one is about as close to the question, count as statements about the
same thing. A word of change makes this more likely. For a question about what was before, the earlier one goes first;
other questions about the past keep their order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hermes.ranking.changes import find_values
from hermes.ranking.claims import is_change
from hermes.ranking.dates import asks_when
from hermes.ranking.scoring import Floats
from hermes.ranking.traits import NAMES_TIME, only_asks, traits_of

MAX_COMPARED = 10
"""The number of first statements that are compared."""
MAX_CHANGES = 3
MAX_WORDS = 26
"""A longer text makes several statements, so its vector says little about one of them."""
MIN_CLOSENESS, MIN_CLOSENESS_UNCHANGED = 0.5, 0.7
"""The smallest closeness of two statements, with and without a word of change in the later one."""
MIN_FORMER_CLOSENESS, FORMER_THRESHOLD = 0.4, 0.9
"""The limits for a question for what was before: its first statement is mostly the newer one."""
SUCCESSOR_THRESHOLD, NEARNESS_WEIGHT, CHANGE_WEIGHT = 1.05, 0.5, 0.25
"""A later statement is a successor if their closeness, plus these weights times its nearness to the question and the
presence of a word of change, reaches the threshold. Chosen on the life of `bench/life_plain.jsonl`; on LoCoMo one
first place of 760 changed.
"""
MAX_NEARNESS = 1.2
NOT_NOW = re.compile(
    r"\b(?:did|was|were|had|first|before|previous(?:ly)?|used to|last|originally|former(?:ly)?|old|ever|why"
    r"|how(?! (?:many|much|often|long|tall|big|far)\b)"
    r"|wars?t?|waren|hatten?|früher|vorher|zuerst|damals|warum|wieso|era|eran|fue|antes|primer[oa]?|por qué"
    r"|était|avant|avait|premi(?:er|ère)|pourquoi)\b|以前|之前|曾|为什么",
    re.IGNORECASE,
)
"""Matches questions about the past, or for more than a value."""
FORMER = re.compile(
    r"\b(?:before|previous(?:ly)?|used to|original(?:ly)?|former(?:ly)?|initial(?:ly)?|at first|first (?:meant|planned"
    r"|supposed|going)|at the (?:start|beginning)|vorher\w*|früher\w*|ursprünglich\w*|damals|anfangs|zuerst|antes"
    r"|anterior\w*|original\w*|al principio|avant|auparavant|initial\w*|au début|à l['’]origine"
    r"|précédent\w*)\b|以前|之前|原来|原先|最初|起初",
    re.IGNORECASE,
)
"""Matches questions for what held before something changed."""
ASKS_NAME = re.compile(
    r"^\W*(?:who|whom|whose|where)\b|\bnames?\b|\bcalled\b|\b(?:which|what) (?:city|town|country|school)\b"
    r"|^\W*(?:wer|wen|wem|wo|woher|quién|dónde|qui|où)\b|\bheißt\b|\bse llama\b|\bs['’]appelle\b",
    re.IGNORECASE,
)
ASKS_NUMBER = re.compile(
    r"\bhow (?:many|much|tall|big|far)\b|\bnumber\b|\bwie ?viele?\b|\bcuánt[oa]s?\b|\bcombien\b|多少|几个",
    re.IGNORECASE,
)
NAME = re.compile(r"(?<![a-zà-ÿ]{3}[.!?…] )(?<!^)\b[A-ZÀ-Þ][\w'’-]{2,}")


@dataclass(frozen=True, slots=True)
class SaidStatement:
    """A text with its speaker and time, and its vector in the second embedder's space."""

    text: str
    speaker: object
    said_at: float
    direction: Floats | None


def put_successors_first(question: str, asked: Floats, found: Sequence[SaidStatement]) -> list[int]:
    """Return the positions of statements, the best first, with successors before the statements that they replaced."""
    order = list(range(len(found)))
    is_former = asks_former(question)
    if NOT_NOW.search(question) and not is_former:
        return order
    for _ in range(MAX_CHANGES):
        better = _find_other(question, asked, [found[place] for place in order[:MAX_COMPARED]], is_former=is_former)
        if better is None:
            break
        order.insert(0, order.pop(better))
    return order


def asks_former(question: str) -> bool:
    """Return True if a question asks for what held before something changed."""
    return FORMER.search(question) is not None


def _find_other(question: str, asked: Floats, found: Sequence[SaidStatement], *, is_former: bool) -> int | None:
    """Return the position of the statement that most likely replaced the first one, or that the first one replaced if
    the question asks for what was before; None if there is none.
    """
    if not found or (first := found[0]).direction is None or not _is_short(first.text):
        return None
    near = max(float(first.direction @ asked), 1e-3)
    best, place = FORMER_THRESHOLD if is_former else SUCCESSOR_THRESHOLD, None
    for at, one in enumerate(found[1:], 1):
        older, newer = (one, first) if is_former else (first, one)
        is_other = one.speaker == first.speaker and newer.said_at > older.said_at
        if not is_other or one.direction is None or not _is_short(one.text) or only_asks(one.text):
            continue
        alike, changed = float(first.direction @ one.direction), is_change(newer.text)
        least = MIN_FORMER_CLOSENESS if is_former else MIN_CLOSENESS if changed else MIN_CLOSENESS_UNCHANGED
        if alike < least or not holds_wanted(question, one.text):
            continue
        likely = (
            alike + NEARNESS_WEIGHT * min(float(one.direction @ asked) / near, MAX_NEARNESS) + CHANGE_WEIGHT * changed
        )
        if likely >= best:
            best, place = likely, at
    return place


def holds_wanted(question: str, text: str) -> bool:
    """Return False if a question asks for a number, a time or a name and the text has none that the question lacks."""
    if ASKS_NUMBER.search(question):
        return any(map(str.isdigit, text)) or next(iter(find_values(text, "number")), None) is not None
    if asks_when(question):
        return bool(traits_of(text) & NAMES_TIME) or any(map(str.isdigit, text))
    if ASKS_NAME.search(question):
        said = question.lower()
        return not text.isascii() or any(name.lower() not in said for name in NAME.findall(text))
    return True


def _is_short(text: str) -> bool:
    return len(text.split(None, MAX_WORDS)) <= MAX_WORDS
