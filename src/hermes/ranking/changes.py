"""Changed values: which of two statements about the same value is the newer one, and current. Pure.

A question for a value ("how many", "when", "what percentage") finds the old statement and the new one, and the old one
often matches its words better. If the same speaker named another value of the same kind later, with a word of change,
the later message goes first. A yes-or-no question that finds "I have never …" also finds the speaker's other
statements.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from hermes.ranking.dates import MONTHS
from hermes.ranking.personal import MAX_CACHED_TEXTS
from hermes.ranking.words import SENTENCE_END, STEM_CHARS, split_words

MAX_COMPARED_HITS = 10
"""The number of first hits that are compared."""
MAX_FIRST_HITS = 3
"""A newer statement goes before an older one among this many first hits."""
MAX_DENIAL_HITS = 25
"""The number of first hits that are searched for the other side of a denial."""
MAX_READ_CHARS = 8000
CONTEXT_CHARS = 80
"""The question's words count for a value if they are within this distance, in its sentence."""
MIN_WORDS = 2
MIN_SHARE = 0.25
"""The newer statement must hold this many words of the question, if it has that many, and this share of those that the
older one holds.
"""
CHANGE_WORDS = """
now new newly recent recently update updated updating change changed changing changes move moved moving increase
increased increasing improve improved improving extend extended extending reschedule rescheduled rescheduling actually
anymore longer switch switched instead latest grown growth reach reached adjust adjusted bumped push pushed raise raised
shift shifted expand expanded postpone postponed delay delayed add added adding reflect cut drop dropped reduce reduced
lower lowered boost boosted revise revised correct corrected correction meanwhile nowadays became become turned
jetzt neu neue neuen neuer neues inzwischen mittlerweile geändert verschoben verlegt erhöht gestiegen gesunken
eigentlich doch statt stattdessen mehr umgezogen gewechselt verlängert verkürzt korrigiert aktuell seitdem
ahora nuevo nueva nuevos nuevas ya cambió cambié cambiado cambiaron aumentó subió bajó movió trasladó
aplazó aplazado recientemente último última actualmente mudé mudamos
maintenant désormais nouveau nouvelle nouveaux nouvelles changé changée augmenté baissé déplacé déplacée reporté
reportée finalement plutôt récemment dernièrement déménagé passé passée
""".split()  # noqa: SIM905 - one word a line would be a page
CHANGE_SIGNS = (
    "as of ",
    "from now on",
    "ab jetzt",
    "a partir de ahora",
    "à partir de maintenant",
    "en realidad",
    "现在",
    "改成",
    "改为",
    "改到",
    "更新",
    "最近",
    "其实",
    "变成",
    "增加到",
    "推迟",
    "提前",
    "搬到",
    "换成",
    "不再",
    "目前",
    "新的",
)
CHANGES = frozenset(CHANGE_WORDS)
CLOCK = re.compile(
    r"(?<![\w:.])\d{1,2}(?::\d\d)?\s?[ap]\.?m\b|(?<![\w:.])\d{1,2}:\d\d(?![\w:])|(?<!\d)\d{1,2}\s?(?:Uhr\b|点)",
    re.IGNORECASE,
)
MONTH = "|".join(sorted((*MONTHS, "may", "mars"), key=len, reverse=True))
DAY = re.compile(
    rf"\b(?P<month>{MONTH})\.?\s+(?P<day>\d{{1,2}})(?!\d)|(?<!\d)(?P<day_first>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:de\s+|of\s+)?"
    rf"(?P<month_last>{MONTH})\b|(?<!\d)(?P<number>1[0-2]|0?[1-9])月(?P<day_of>\d{{1,2}})",
    re.IGNORECASE,
)
PERCENT = re.compile(
    r"(?<![\w.,])\d(?:[\d.,]{0,14}\d)?\s?(?:%|percent\b|prozent\b|por ciento|pour cent)", re.IGNORECASE
)
NUMBER = re.compile(
    r"(?<![\w.,/])[$€£¥]?\d(?:[\d.,]{0,14}\d)?(?:/\d{1,6})?(?![\w%])|(?<![\w.,])\d(?:[\d.,]{0,14}\d)?(?:ms|km|kg|[khmsg]b?)\b"
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
            r"^\W*when\b(?! (?:i|my|you|we)\b)|\bdeadline\b|\b(?:what|which) (?:date|day)\b|^\W*wann\b"
            r"|\ban welchem tag\b|^\W*cuándo\b|\bqué (?:día|fecha)\b|^\W*quand\b|\bquel jour\b|\bquelle date\b"
            r"|什么时候|哪天|几号",
            re.IGNORECASE,
        ),
    ),
    (
        "number",
        re.compile(
            r"\bhow (?:many|much|long|old|often)\b|\bnumber of\b|\bcount\b|\bquota\b|\baverage\b|\btarget\b|\btotal\b"
            r"|\bwie ?(?:viele?|lange|alt|oft)\b|\bcuánt[oa]s?\b|\bcombien\b|多少|几个|多大|多久",
            re.IGNORECASE,
        ),
    ),
    (
        "percent",
        re.compile(
            r"\bpercent(?:age)?\b|\b(?:success|error) rate\b|\baccuracy\b|\bprozent|porcentaje|pourcentage|百分",
            re.IGNORECASE,
        ),
    ),
)  # fmt: skip
COMPUTED = re.compile(
    r"\bbetween\b|\bacross\b|\bpassed\b|\bhow many different\b|\bdid it take\b|\bfrom the start\b"
    r"|\bdid i (?:ask|mention|say)\b|\bdid you\b|\bzwischen\b|\bwie viele verschiedene\b|\bcuánt[oa]s \w+ diferentes\b"
    r"|\bcombien de \w+ différent|\bentre\b|之间",
    re.IGNORECASE,
)
"""Asks for a calculation with several values, or for a value at some time in the past."""
ASKS_WHETHER = re.compile(
    r"^\W*(?:have|has|had|did|do|does|am|is|are|was|were|habe?|hast|hat|bin|bist|ist|war|he|has|ha|hemos|estoy|soy|ai-je|as-tu"
    r"|a-t-(?:il|elle)|est-ce que?|suis-je)\b|[吗嗎]\W*$|有没有",
    re.IGNORECASE,
)
DENIAL = re.compile(
    r"\b(?:never|not yet|no longer|(?:have|has|had|did|do|does)(?:n['’]t| not)|nie|niemals|noch nicht|nicht mehr"
    r"|nunca|jamás|todavía no|aún no|ya no|jamais|pas encore|ne \w+ plus)\b|从来没|从没|从未|还没|没有|不再",
    re.IGNORECASE,
)
CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
WORD = re.compile(r"\w+")
COUNTED = re.compile(r" ([^\W\d_]{3,})")
"""The word after a number."""
NO_UNIT = re.compile(r"[\d.,/]+|^[a-z]{3,}$")
YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True, slots=True)
class SaidText:
    """A text with its speaker and time."""

    text: str
    speaker: object
    said_at: float


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of a text, and the number of the question's words near it."""

    value: str
    words: int
    is_changed: bool
    unit: str
    """The sign or unit of a number: $, ms."""
    counted: str
    """The stem of the word after a number, which is what is counted; empty for none."""


def put_newer_first(question: str, words: Collection[str], found: Sequence[SaidText]) -> list[int]:
    """Return the positions of the statements in a better order: a newer value before an older one of the same kind,
    and both sides of a denial among the first.
    """
    if (kind := asked_kind(question)) is not None:
        return _put_newer_values_first(kind, words, found)
    order = list(range(len(found)))
    return _put_both_sides_first(order, found) if ASKS_WHETHER.search(question) else order


def count_looked_at(question: str) -> int:
    """Return the number of hits that `put_newer_first` needs for a question; 0 if it would not change their order."""
    if asked_kind(question) is not None:
        return MAX_COMPARED_HITS
    return MAX_DENIAL_HITS if ASKS_WHETHER.search(question) else 0


@lru_cache(maxsize=MAX_CACHED_TEXTS)
def asked_kind(question: str) -> str | None:
    """Return the kind of value that a question asks for, or None."""
    if COMPUTED.search(question):
        return None
    return next((kind for kind, pattern in ASKED if pattern.search(question)), None)


def names_change(text: str) -> bool:
    """Return True if a text contains a word of change: now, moved, no longer, inzwischen."""
    if any(sign in text for sign in CHANGE_SIGNS):
        return True
    return not CHANGES.isdisjoint(WORD.findall(text.lower()))


def denies(text: str) -> bool:
    """Return True if a text says that something never happened, is over, or is not so yet."""
    return DENIAL.search(text, 0, MAX_READ_CHARS) is not None


def _put_both_sides_first(order: list[int], found: Sequence[SaidText]) -> list[int]:
    """After the first hits, put the other statements of a denial's speaker before those of others."""
    speaker = next((found[place].speaker for place in order[:MAX_FIRST_HITS] if denies(found[place].text)), None)
    if speaker is None:
        return order
    looked_at = order[MAX_FIRST_HITS:MAX_DENIAL_HITS]
    own = [place for place in looked_at if found[place].speaker == speaker and not denies(found[place].text)]
    return [*order[:MAX_FIRST_HITS], *own, *(place for place in order[MAX_FIRST_HITS:] if place not in own)]


def _put_newer_values_first(kind: str, words: Collection[str], found: Sequence[SaidText]) -> list[int]:
    order = list(range(len(found)))
    compared = sorted(order[:MAX_COMPARED_HITS], key=lambda place: found[place].said_at)
    forms = frozenset(word.rstrip("*")[:STEM_CHARS] for word in words)
    values = {place: _best_values(found[place].text, kind, forms) for place in compared}
    for newer in compared:
        at = order.index(newer)
        for place in range(min(at, MAX_FIRST_HITS)):
            older = order[place]
            if found[older].speaker != found[newer].speaker or found[older].said_at >= found[newer].said_at:
                continue
            earlier = [values[other] for other in compared if found[other].said_at <= found[older].said_at]
            if _is_replaced(values[older], values[newer], forms, {value.value for read in earlier for value in read}):
                order.insert(place, order.pop(at))
                break
    return order


def _is_replaced(before: Sequence[_Value], after: Sequence[_Value], asked: Set[str], known: Set[str]) -> bool:
    """Return True if the later statement names a change to a value that was not named before."""
    if not before or not after or after[0].words < MIN_SHARE * before[0].words:
        return False
    units = {value.unit for value in before}
    counted = {value.counted for value in before if value.counted}
    changed = {
        value.value
        for value in after
        if value.is_changed
        and value.unit in units
        and (not counted or not value.counted or value.counted in counted | asked)
    }
    return bool(changed) and changed.isdisjoint(known)


def _best_values(text: str, kind: str, words: Set[str]) -> list[_Value]:
    """Return the values with the most words of the question near them; none if that are too few."""
    prose = CODE.sub(" ", text[:MAX_READ_CHARS])
    ends = [0, *(found.end() for found in SENTENCE_END.finditer(prose)), len(prose)]
    least = min(MIN_WORDS, len(words))
    read: list[_Value] = []
    for start, end, value in find_values(prose, kind):
        low = max(ends[bisect_right(ends, start) - 1], start - CONTEXT_CHARS)
        high = min(ends[min(bisect_left(ends, end), len(ends) - 1)], end + CONTEXT_CHARS)
        context = prose[low:high]
        near = len(words & {word.rstrip("*")[:STEM_CHARS] for word in split_words(context)})
        behind = COUNTED.match(prose, end) if kind == "number" else None
        unit = NO_UNIT.sub("", value) if kind == "number" else ""
        counted = behind[1].lower()[:STEM_CHARS] if behind is not None else ""
        read.append(_Value(value, near, near >= least and names_change(context), unit, counted))
    most = max((value.words for value in read), default=0)
    return [value for value in read if value.words == most] if most >= max(least, 1) else []


def find_values(text: str, kind: str) -> Iterator[tuple[int, int, str]]:
    """Yield where each value of a kind begins and ends in a text, and its normalised form."""
    taken = [found.span() for pattern in NOT_NUMBERS for found in pattern.finditer(text)] if kind == "number" else []
    for found in PATTERNS[kind].finditer(text):
        if any(start <= found.start() < end for start, end in taken):
            continue
        if kind != "number" or not YEAR.fullmatch(found[0]):
            yield found.start(), found.end(), _comparable(found)


def _comparable(found: re.Match[str]) -> str:
    named = {key: value.lower() for key, value in found.groupdict().items() if value}
    if not named:
        return found[0].lower().replace(",", "").replace(" ", "").rstrip(".")
    month = named.get("month") or named.get("month_last") or ""
    number = named.get("number") or str(MONTHS.get(month, 5 if month == "may" else 3))
    day = named.get("day") or named.get("day_first") or named.get("day_of") or ""
    return f"{int(number)}-{int(day)}"
