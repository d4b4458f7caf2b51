"""Values that change: which of two statements about the same value is the newer one, and holds now. Pure.

A question for a value ("how many", "when", "what percentage") finds the old statement and the new one, and the old one
often fits its words better. Where one speaker named another value of the same kind later, with a word of change, the
later message goes first.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from hermes.ranking.dates import MONTHS
from hermes.ranking.words import SAME, split_words

COMPARED = 10
"""The first so many hits are compared."""
FIRST = 3
"""A newer statement goes before an older one that is among the first so many."""
MAX_READ_CHARS = 8000
CONTEXT_CHARS = 80
"""The words of a question count for a value if they stand so near to it, in its sentence."""
MIN_WORDS = 2
MIN_SHARE = 0.25
"""The newer statement holds at least so many words of the question, and this share of what the older one holds."""
CHANGE_WORDS = """
now new newly recent recently update updated updating change changed changing changes move moved moving increase
increased increasing improve improved improving extend extended extending reschedule rescheduled rescheduling actually
anymore longer switch switched instead latest grown growth reach reached adjust adjusted bumped push pushed raise raised
shift shifted expand expanded postpone postponed delay delayed add added adding reflect cut drop dropped reduce reduced
lower lowered boost boosted revise revised correct corrected correction meanwhile nowadays became become turned
jetzt neu neue neuen neuer neues inzwischen mittlerweile geändert verschoben verlegt erhöht gestiegen gesunken eigentlich
doch statt stattdessen mehr umgezogen gewechselt verlängert verkürzt korrigiert aktuell seitdem
ahora nuevo nueva nuevos nuevas ya cambió cambié cambiado cambiaron aumentó subió bajó en_realidad movió trasladó
aplazó aplazado recientemente último última actualmente mudé mudamos
maintenant désormais nouveau nouvelle nouveaux nouvelles changé changée augmenté baissé déplacé déplacée reporté reportée
finalement plutôt récemment dernièrement déménagé passé passée
""".split()  # noqa: SIM905 - one word a line would be a page
CHANGE_SIGNS = ("现在", "改成", "改为", "改到", "更新", "最近", "其实", "变成", "增加到", "推迟", "提前", "搬到", "换成", "不再", "目前", "新的")
CHANGES = frozenset(CHANGE_WORDS)
CLOCK = re.compile(r"(?<![\w:.])\d{1,2}(?::\d\d)?\s?[ap]\.?m\b|(?<![\w:.])\d{1,2}:\d\d(?![\w:])|(?<!\d)\d{1,2}\s?(?:Uhr\b|点)", re.IGNORECASE)
MONTH = "|".join(sorted((*MONTHS, "may", "mars"), key=len, reverse=True))
DAY = re.compile(
    rf"\b(?P<month>{MONTH})\.?\s+(?P<day>\d{{1,2}})(?!\d)|(?<!\d)(?P<day_first>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:de\s+|of\s+)?"
    rf"(?P<month_last>{MONTH})\b|(?<!\d)(?P<number>1[0-2]|0?[1-9])月(?P<day_of>\d{{1,2}})",
    re.IGNORECASE,
)
PERCENT = re.compile(r"(?<![\w.,])\d[\d.,]{0,14}\s?(?:%|percent\b|prozent\b|por ciento|pour cent)", re.IGNORECASE)
NUMBER = re.compile(
    r"(?<![\w.,/])[$€£¥]?\d[\d.,]{0,14}(?:/\d{1,6})?(?![\w%])|(?<![\w.,])\d[\d.,]{0,14}(?:ms|km|kg|[khmsg]b?)\b"
    r"|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b(?! of\b)",
    re.IGNORECASE,
)
PATTERNS = {"time": CLOCK, "date": DAY, "percent": PERCENT, "number": NUMBER}
NOT_NUMBERS = (CLOCK, DAY, PERCENT)
ASKED = (
    ("time", re.compile(r"\bwhat time\b|\bum wie ?viel uhr\b|\ba qué hora\b|\bà quelle heure\b|几点", re.IGNORECASE)),
    (
        "date",
        re.compile(
            r"^\W*when\b(?! (?:i|my|you|we)\b)|\bdeadline\b|\b(?:what|which) (?:date|day)\b|^\W*wann\b|\ban welchem tag\b"
            r"|^\W*cuándo\b|\bqué (?:día|fecha)\b|^\W*quand\b|\bquel jour\b|\bquelle date\b|什么时候|哪天|几号",
            re.IGNORECASE,
        ),
    ),
    ("percent", re.compile(r"\bpercent(?:age)?\b|\b(?:accuracy|success|error) rate\b|\baccuracy\b|\bprozent|porcentaje|pourcentage|百分", re.IGNORECASE)),
    (
        "number",
        re.compile(
            r"\bhow (?:many|much|long|old|often)\b|\bnumber of\b|\bcount\b|\bquota\b|\baverage\b|\btarget\b|\btotal\b"
            r"|\bwie ?(?:viele?|lange|alt|oft)\b|\bcuánt[oa]s?\b|\bcombien\b|多少|几个|多大|多久",
            re.IGNORECASE,
        ),
    ),
)  # fmt: skip
COMPUTED = re.compile(
    r"\bbetween\b|\bacross\b|\bpassed\b|\bfrom the start\b|\bdid i (?:ask|mention|say)\b|\bdid you\b|\bzwischen\b"
    r"|\bentre\b|之间",
    re.IGNORECASE,
)
"""Asks to reckon with several values, or for one that was named at some time."""
CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
SENTENCE_ENDS = re.compile(r"[.!?](?=\s)|[。！？\n]")
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Statement:
    """A text with who said it, and when."""

    text: str
    speaker: object
    said_at: float


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of a text, and how many words of a question stand near to it."""

    value: str
    words: int
    is_changed: bool


def put_newer_first(question: str, words: Collection[str], found: Sequence[Statement]) -> list[int]:
    """Return the places of the statements in a better order: a newer value before the older value of the same kind."""
    order = list(range(len(found)))
    kind = asked_kind(question)
    if kind is None or len(found) < 2:  # noqa: PLR2004 - one cannot be before another
        return order
    compared = order[:COMPARED]
    forms = {word.rstrip("*")[:SAME] for word in words}
    values = [_best_values(found[place].text, kind, forms) for place in compared]
    for newer in sorted(compared, key=lambda place: found[place].said_at):
        at = order.index(newer)
        for place in range(min(at, FIRST)):
            older = order[place]
            if _is_replaced(found[older], values[older], found[newer], values[newer]):
                order.insert(place, order.pop(at))
                break
    return order


def asked_kind(question: str) -> str | None:
    """Return the kind of value that a question asks for; None for one that asks for something else."""
    if COMPUTED.search(question):
        return None
    return next((kind for kind, pattern in ASKED if pattern.search(question)), None)


def names_change(text: str) -> bool:
    """Return True if a text holds a word of change: now, moved, no longer, inzwischen."""
    if any(sign in text for sign in CHANGE_SIGNS):
        return True
    return not CHANGES.isdisjoint(WORD.findall(text.lower()))


def _is_replaced(older: Statement, before: Sequence[_Value], newer: Statement, after: Sequence[_Value]) -> bool:
    changed = {value.value for value in after if value.is_changed}
    if not before or not changed or older.speaker != newer.speaker or older.said_at >= newer.said_at:
        return False
    return after[0].words >= MIN_SHARE * before[0].words and not changed <= {value.value for value in before}


def _best_values(text: str, kind: str, words: Collection[str]) -> list[_Value]:
    """Return the values with the most words of the question near to them; none where that are too few."""
    prose = CODE.sub(" ", text[:MAX_READ_CHARS])
    spots = [found.start() for found in WORD.finditer(prose)]
    held = [_forms(found[0]) & words for found in WORD.finditer(prose)] if spots else []
    ends = [0, *(found.end() for found in SENTENCE_ENDS.finditer(prose)), len(prose)]
    read: list[_Value] = []
    for start, end, value in find_values(prose, kind):
        low = max(ends[bisect_right(ends, start) - 1], start - CONTEXT_CHARS)
        high = min(ends[min(bisect_left(ends, end), len(ends) - 1)], end + CONTEXT_CHARS)
        near = held[bisect_left(spots, low) : bisect_left(spots, high)]
        read.append(_Value(value, len(frozenset[str]().union(*near)), names_change(prose[low:high])))
    most = max((value.words for value in read), default=0)
    return [value for value in read if value.words == most] if most >= MIN_WORDS else []


def _forms(word: str) -> frozenset[str]:
    return frozenset(part.rstrip("*")[:SAME] for part in split_words(word))


def find_values(text: str, kind: str) -> Iterator[tuple[int, int, str]]:
    """Yield where the values of a kind begin and end in a text, and each in the form in which it is compared."""
    taken = [found.span() for pattern in NOT_NUMBERS for found in pattern.finditer(text)] if kind == "number" else []
    for found in PATTERNS[kind].finditer(text):
        if not any(start <= found.start() < end for start, end in taken):
            yield found.start(), found.end(), _comparable(found)


def _comparable(found: re.Match[str]) -> str:
    named = {key: value.lower() for key, value in found.groupdict().items() if value}
    if not named:
        return found[0].lower().replace(",", "").replace(" ", "").rstrip(".")
    month = named.get("month") or named.get("month_last") or ""
    number = named.get("number") or str(MONTHS.get(month, 5 if month == "may" else 3))
    day = named.get("day") or named.get("day_first") or named.get("day_of") or ""
    return f"{int(number)}-{int(day)}"
