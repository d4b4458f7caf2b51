"""Evidence for one message: relevant earlier messages and conclusions, quoted verbatim. Pure.

messages found, with scores ── relevant? ── the best sentences ── Quote, the best first
quotes ── as many as fit ── in chronological order, by day
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from textwrap import shorten
from typing import NamedTuple

from msgspec import Struct

from hermes.fence import disarm
from hermes.honcho.recall_reader import (
    RecalledChange,
    RecalledConclusion,
    RecalledMessage,
    RecalledStanding,
)
from hermes.ranking.relative_times import write_out
from hermes.ranking.traits import find_small_talk, only_asks
from hermes.ranking.words import share_held, split_speaker, split_words, telling_words
from hermes.types import UNANSWERED_SCORE, RecalledLine

MAX_CANDIDATES = 50
"""Messages requested for one question."""
MAX_QUERY_CHARS = 10_000
MAX_WHOLE_CHARS = 500
"""Messages up to this length are quoted whole, since half of an answer is often useless."""
MAX_EXCERPT_CHARS = 200
"""Length of the excerpt from a longer message. Many short excerpts hold more answers than few long ones."""
MAX_CACHED_MESSAGES = 2048
"""Messages whose parsed form is cached."""
MIN_CERTAINTY = 0.03
"""Hits below this certainty are dropped. This value found most on the LoCoMo dialogues; 0.21, where answers begin,
lost a tenth of the evidence."""
SENTENCE_SIGNS = ".!。！"
MAX_NEWER_CHARS = 120
"""Length of what is quoted of a statement that changed an earlier one."""
MIN_ROOM_CHARS = 40
"""Space left in an excerpt that is too small for another sentence."""
MAX_SURE_RANK = 10
"""Hits of a server without scores that count as relevant."""
MAX_LEADING_QUOTES = 10
"""Quotes placed before the conclusions, whose rank cannot be compared with quote scores."""
MAX_NEAREST_QUOTES = 3
"""Quotes placed next to the message: small models answer from what they read last."""
ADDRESSES = re.compile(
    r"\b(?:you|yours?|du|dich|dir|deine?[mnrs]?|tu|te|toi|tes|vous|votre|vos|tú|usted)\b|[你您]", re.IGNORECASE
)
"""Words with which a question addresses the agent."""
SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
PIECE = re.compile(rf"\S.{{0,{MAX_WHOLE_CHARS - 2}}}(?!\S)|\S.{{0,{MAX_WHOLE_CHARS - 2}}}", re.DOTALL)
"""Splits text without sentence ends (code, tables) at spaces."""
UNDATED_KINDS = ("name", "instruction")
"""Kinds of standing facts that are quoted without a date."""
TITLE, NEAREST_TITLE = "Said earlier", "Nearest to this message"
UNKNOWN_ANSWER_TITLE = "Said earlier (the nearest; memory was probably not told the answer to this message)"


class ScoredMessage(Struct, frozen=True):
    """A message that was found, its score, the probability (0 to 1) that it is relevant, and which of its statements
    no longer hold."""

    message: RecalledMessage
    score: float = 0.0
    certainty: float = 1.0
    superseded: Sequence[RecalledChange] = ()


class RecalledEvidence(Struct, frozen=True):
    """Search results for one question: messages, conclusions without a source message, and standing facts, the most
    important first."""

    messages: Sequence[ScoredMessage] = ()
    conclusions: Sequence[RecalledConclusion] = ()
    standing: Sequence[RecalledStanding] = ()
    is_told: bool = True
    """False if the server considers the answer probably unknown to memory."""


class Quote(Struct, frozen=True):
    """An excerpt of one message as it appears in a prompt, and the reason for it."""

    day: str
    """The day as text; "" for a conclusion."""
    at: str
    text: str
    why: str
    line: RecalledLine
    """The same content as data."""
    when: str = ""
    """A date suffix for quotes without a day heading."""


def score_by_rank(found: Iterable[RecalledMessage], question: str) -> list[ScoredMessage]:
    """Score the hits of a server without scores by rank and by the share of the question's words that they hold."""
    wanted = telling_words(split_words(question))
    scored = []
    for rank, message in enumerate(found):
        held = share_held(wanted, message.content)
        certainty = max(held, MIN_CERTAINTY if rank < MAX_SURE_RANK else 0.0)
        scored.append(ScoredMessage(message, held + 1 / (rank + 2), certainty))
    return sorted(scored, key=lambda one: -one.score)


def quote_all(found: RecalledEvidence, question: str, agent: str) -> tuple[Quote, ...]:
    """Return quotes of the relevant hits, the best first, without duplicates. The question itself, and messages in
    which people only ask the agent something, are skipped."""
    wanted, asked = telling_words(split_words(question)), _folded(question)
    quotes: dict[str, Quote] = {}
    for one in found.messages:
        message = one.message
        if one.certainty < MIN_CERTAINTY:
            continue
        said = _read(message.content, message.created_at)
        is_idle = said.is_small_talk if message.peer_id == agent else said.only_asks
        if said.folded in asked or is_idle:
            continue
        chosen = said.whole or " ".join(_choose(_split(message.content), wanted))
        written = _mark_superseded(chosen, said.on, one.superseded, quotes) if one.superseded else ""
        line = disarm(f"{message.peer_id}: {written or write_out(chosen, said.on)}")
        where = f"session {message.session_id}, message {message.id}"
        why = f"score {one.score:.2f}, {where}, {len(chosen)} of {len(message.content)} characters"
        certainty = one.certainty if found.is_told else UNANSWERED_SCORE
        held = RecalledLine(chosen, message.peer_id, said.on.timestamp(), certainty)
        quotes.setdefault(line, Quote(said.day, said.at, line, why, held))
    concluded: dict[str, Quote] = {}
    unsure = None if found.is_told else UNANSWERED_SCORE
    for rank, fact in enumerate(found.conclusions):
        text = disarm(" ".join(fact.content.split()))
        if not any(text in quote for quote in quotes):
            why = f"conclusion {fact.id}, rank {rank + 1}"
            concluded.setdefault(text, Quote("", "", text, why, RecalledLine(text, certainty=unsure)))
    first = tuple(quotes.values())
    return (*first[:MAX_LEADING_QUOTES], *concluded.values(), *first[MAX_LEADING_QUOTES:])


def split_nearest(quotes: Sequence[Quote], question: str, agent: str) -> tuple[Sequence[Quote], Sequence[Quote]]:
    """Return the best of many quotes, which stand next to the message, and the others. Replies of the agent are among
    the best only if it is addressed: what it replied about the person may have been a guess."""
    if len(quotes) <= MAX_NEAREST_QUOTES:
        return (), quotes
    is_addressed = ADDRESSES.search(question) is not None
    nearest = [quote for quote in quotes if is_addressed or quote.line.speaker != agent][:MAX_NEAREST_QUOTES]
    return nearest, [quote for quote in quotes if quote not in nearest]


def _mark_superseded(text: str, said_on: datetime, superseded: Iterable[RecalledChange], quoted: Iterable[str]) -> str:
    """Return the text with its relative times resolved. A statement that no longer holds is followed by the date of the
    change and the newer statement, unless that one is quoted already."""
    marks: dict[int, str] = {}
    for one in superseded:
        statement, newer = (split_speaker(content)[1] for content in (one.content, one.newer))
        start = text.find(statement)
        if start >= 0:
            is_quoted = any(disarm(newer) in line for line in quoted)
            behind = text[start + len(statement) :].lstrip(SENTENCE_SIGNS)
            marks[len(text) - len(behind)] = _mark(one, "" if is_quoted else newer)
    parts: list[str] = []
    done = 0
    for end, mark in sorted(marks.items()):
        parts += (write_out(text[done:end], said_on), mark)
        done = end
    return "".join((*parts, write_out(text[done:], said_on)))


def _mark(superseded: RecalledChange, newer: str) -> str:
    said_on = datetime.fromisoformat(superseded.newer_said_at)
    said = write_out(shorten(newer, MAX_NEWER_CHARS, placeholder=" …"), said_on)
    return f" (no longer so since {_day(said_on)}" + (f': "{said}")' if said else ")")


def quote_standing(lines: Sequence[RecalledStanding]) -> tuple[Quote, ...]:
    """Return standing facts as quotes, in the order given; facts that may change carry their date."""
    quotes: dict[str, Quote] = {}
    for held in lines:
        said_on = datetime.fromisoformat(held.created_at)
        text = write_out(" ".join(held.content.split()), said_on)
        when = "" if held.kind in UNDATED_KINDS else f" (said {_day(said_on)})"
        why = f"{held.kind}, conclusion {held.id}, session {held.session_id or 'none'}"
        said = held.content.removeprefix(f"{held.observed_id}: ")
        line = RecalledLine(said, "" if said == held.content else held.observed_id, said_on.timestamp())
        quotes.setdefault(text, Quote("", "", disarm(text), why, line, when))
    return tuple(quotes.values())


def write_quotes(quotes: Sequence[Quote], limit: int) -> tuple[str, Sequence[Quote]]:
    """Return the best quotes that fit as text in chronological order with day headings, and those quotes."""
    kept: list[Quote] = []
    days: set[str] = set()
    room = limit
    for quote in quotes:
        cost = len(quote.text) + len(quote.when) + 3 + (0 if quote.day in days else len(quote.day) + 2)
        if cost <= room:
            kept.append(quote)
            days.add(quote.day)
            room -= cost
    kept.sort(key=lambda quote: quote.at)
    lines: list[str] = []
    for quote, before in zip(kept, [None, *kept], strict=False):
        if quote.day and (before is None or before.day != quote.day):
            lines.append(f"{quote.day}:")
        lines.append(f"- {quote.text}{quote.when}")
    return "\n".join(lines), kept


class _SaidMessage(NamedTuple):
    """The parsed form of a message, independent of the question."""

    folded: str
    only_asks: bool
    is_small_talk: bool
    whole: str
    """The whole text as sentences if it is short enough to be quoted whole; else ""."""
    on: datetime
    at: str
    day: str


def _read(content: str, created_at: str) -> _SaidMessage:
    """Return the parsed message. Messages of usual length are cached, since the next turn often finds them again."""
    return _read_again(content, created_at) if len(content) <= MAX_WHOLE_CHARS else _make(content, created_at)


def _make(content: str, created_at: str) -> _SaidMessage:
    sentences, on = _split(content), datetime.fromisoformat(created_at)
    whole = " ".join(sentences) if sum(map(len, sentences)) <= MAX_WHOLE_CHARS else ""
    return _SaidMessage(
        _folded(content), only_asks(content), find_small_talk(content) is not None, whole, on, on.isoformat(), _day(on)
    )


_read_again = lru_cache(MAX_CACHED_MESSAGES)(_make)


def _split(text: str) -> list[str]:
    """Return the sentences of a text; longer ones are split at MAX_WHOLE_CHARS."""
    return [piece.rstrip() for part in SENTENCE_END.split(text) for piece in PIECE.findall(part)]


def _choose(sentences: Sequence[str], wanted: Sequence[str]) -> Sequence[str]:
    """Return the sentences with the most wanted words for their length, in their original order."""
    worth = [share_held(wanted, one) / (MIN_ROOM_CHARS + len(one)) ** 0.5 for one in sentences]
    best = sorted(range(len(sentences)), key=lambda number: -worth[number])
    chosen: list[int] = []
    room = MAX_EXCERPT_CHARS
    for number in best:
        if not chosen or len(sentences[number]) <= room:
            chosen.append(number)
            room -= len(sentences[number]) + 1
        if room < MIN_ROOM_CHARS:
            break
    return [sentences[number] for number in sorted(chosen)]


def _day(moment: datetime) -> str:
    """Return a date as text."""
    return f"{moment.day} {moment:%B %Y}"


def _folded(text: str) -> str:
    return " ".join(text.lower().split())
