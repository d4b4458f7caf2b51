"""Which of several short statements holds now: a later one about the same thing goes before an earlier one. Pure.

Beside the rules of `claims` and `changes`, which know attributes and values, this takes the closeness of a finer
embedder: two statements that are close to each other, of which the later one is about as close to the question, are
taken to be about the same thing. A word of change makes it likelier. Only questions for what is so now are reordered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hermes.ranking.changes import find_values
from hermes.ranking.claims import is_change
from hermes.ranking.dates import asks_when
from hermes.ranking.scoring import Floats
from hermes.ranking.traits import TELLS_TIME, traits_of
from hermes.ranking.utterances import only_asks

COMPARED = 10
"""The first so many statements are compared."""
MAX_CHANGES = 3
MAX_WORDS = 20
"""A longer text says several things, so that its closeness says little about one of them."""
MIN_ALIKE, MIN_ALIKE_UNCHANGED = 0.5, 0.7
"""How close two statements are at least, with and without a word of change in the later one."""
LEAST, NEARNESS, CHANGE = 1.05, 0.5, 0.25
"""Their closeness, plus so much for the later one's nearness to the question and for a word of change, is at least
`LEAST`. Chosen on the life of `bench/life_plain.jsonl`; on LoCoMo one first place of 760 changed."""
MAX_NEARNESS = 1.2
NOT_NOW = re.compile(
    r"\b(?:did|was|were|had|first|before|previous(?:ly)?|used to|last|originally|former(?:ly)?|old|ever|why"
    r"|how(?! (?:many|much|often|long|tall|big|far)\b)"
    r"|wars?t?|waren|hatten?|früher|vorher|zuerst|damals|warum|wieso|era|eran|fue|antes|primer[oa]?|por qué"
    r"|était|avant|avait|premi(?:er|ère)|pourquoi)\b|以前|之前|曾|为什么",
    re.IGNORECASE,
)
"""Asks for what was so, or for more than a value."""
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
    """A text with who said it and when, and its direction in the space of the finer embedder."""

    text: str
    speaker: object
    said_at: float
    direction: Floats | None


def put_successors_first(question: str, asked: Floats, found: Sequence[SaidStatement]) -> list[int]:
    """Return the places of statements, the best first, with what holds now before what it took the place of."""
    order = list(range(len(found)))
    if NOT_NOW.search(question):
        return order
    for _ in range(MAX_CHANGES):
        later = _find_successor(question, asked, [found[place] for place in order[:COMPARED]])
        if later is None:
            break
        order.insert(0, order.pop(later))
    return order


def _find_successor(question: str, asked: Floats, found: Sequence[SaidStatement]) -> int | None:
    """Return the place of the statement that most likely took the place of the first one; None for none."""
    if not found or (first := found[0]).direction is None or not _is_short(first.text):
        return None
    near = max(float(first.direction @ asked), 1e-3)
    best, place = LEAST, None
    for at, one in enumerate(found[1:], 1):
        is_later = one.speaker == first.speaker and one.said_at > first.said_at
        if not is_later or one.direction is None or not _is_short(one.text) or only_asks(one.text):
            continue
        alike, changed = float(first.direction @ one.direction), is_change(one.text)
        if alike < (MIN_ALIKE if changed else MIN_ALIKE_UNCHANGED) or not holds_wanted(question, one.text):
            continue
        likely = alike + NEARNESS * min(float(one.direction @ asked) / near, MAX_NEARNESS) + CHANGE * changed
        if likely >= best:
            best, place = likely, at
    return place


def holds_wanted(question: str, text: str) -> bool:
    """Return False if a question asks for a number, a time or a name and the text has none that the question lacks."""
    if ASKS_NUMBER.search(question):
        return any(map(str.isdigit, text)) or next(iter(find_values(text, "number")), None) is not None
    if asks_when(question):
        return bool(traits_of(text) & TELLS_TIME) or any(map(str.isdigit, text))
    if ASKS_NAME.search(question):
        said = question.lower()
        return not text.isascii() or any(name.lower() not in said for name in NAME.findall(text))
    return True


def _is_short(text: str) -> bool:
    return len(text.split(None, MAX_WORDS)) <= MAX_WORDS
