"""Evidence for one message: what was said earlier that it is about, quoted letter for letter. Pure.

messages found, with scores ── about the message? ── sentences that fit ── Quote, the best first
quotes ── as many as fit ── in order of time, by day
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from hermes.fence import disarm
from hermes.honcho.recall_reader import RecalledConclusion, RecalledMessage, RecalledStanding
from hermes.ranking.relative_times import write_out
from hermes.ranking.utterances import only_asks
from hermes.ranking.words import share_held, split_words, telling_words
from hermes.types import RecalledLine

MAX_CANDIDATES = 50
"""Messages that are looked at for one question."""
MAX_QUERY_CHARS = 10_000
MAX_WHOLE_CHARS = 500
"""A message up to this length is quoted whole: half of an answer is often none."""
MAX_EXCERPT_CHARS = 200
"""Characters that are quoted of a longer one. Many short excerpts hold more of what is asked for than few long ones."""
MESSAGES_KEPT = 2048
"""Messages of which what their quotes need is cached."""
MIN_CERTAINTY = 0.03
"""Less sure hits are no evidence. On the dialogues of LoCoMo this brought most; at 0.21, where answers begin, a tenth
of the evidence was lost."""
MIN_ROOM_CHARS = 40
"""Room in an excerpt that is too small for another sentence."""
SURE_RANKS = 10
"""Of a server that gives no scores, so many of the first hits count as being about the question."""
FIRST_QUOTES = 10
"""So many quotes come before conclusions, which have no score to compare with theirs."""
SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
PIECE = re.compile(rf"\S.{{0,{MAX_WHOLE_CHARS - 2}}}(?!\S)|\S.{{0,{MAX_WHOLE_CHARS - 2}}}", re.DOTALL)
"""Sentences without an end (code, tables) are split at a space."""
UNDATED_KINDS = ("name", "instruction")
"""Kinds of what always holds that are the same whenever they were said."""
TITLE = "Said earlier"
UNTOLD_TITLE = "Said earlier (the nearest; memory was probably not told the answer to this message)"


class ScoredMessage(Struct, frozen=True):
    """A message that was found, how well it fits, and from 0 to 1 how sure it is that it is about the question."""

    message: RecalledMessage
    score: float = 0.0
    certainty: float = 1.0


class RecalledEvidence(Struct, frozen=True):
    """Hits of a server for one question: messages, and conclusions without a source message. Beside them what always
    holds, the worthiest first."""

    messages: Sequence[ScoredMessage] = ()
    conclusions: Sequence[RecalledConclusion] = ()
    standing: Sequence[RecalledStanding] = ()
    is_told: bool = True
    """False where the server says that it was probably not told an answer."""


class Quote(Struct, frozen=True):
    """Sentences of one message as they stand in a prompt, and why they are there."""

    day: str
    """The day in words; "" for a conclusion."""
    at: str
    text: str
    why: str
    line: RecalledLine
    """The same as data."""
    when: str = ""
    """The day behind the text, where it stands under none."""


def score_by_rank(found: Iterable[RecalledMessage], question: str) -> list[ScoredMessage]:
    """Score the hits of a server that only orders them: by their rank, and by the words of the question they hold."""
    wanted = telling_words(split_words(question))
    scored = []
    for rank, message in enumerate(found):
        held = share_held(wanted, message.content)
        certainty = max(held, MIN_CERTAINTY if rank < SURE_RANKS else 0.0)
        scored.append(ScoredMessage(message, held + 1 / (rank + 2), certainty))
    return sorted(scored, key=lambda one: -one.score)


def quote_all(found: RecalledEvidence, question: str, agent: str) -> tuple[Quote, ...]:
    """Return quotes of what is about the question, the best first, each text once. The question itself, and what
    people only asked the agent, are no evidence."""
    wanted, asked = telling_words(split_words(question)), _folded(question)
    quotes: dict[str, Quote] = {}
    for one in found.messages:
        message = one.message
        if one.certainty < MIN_CERTAINTY:
            continue
        said = _read(message.content, message.created_at)
        if said.folded in asked or (message.peer_id != agent and said.only_asks):
            continue
        chosen = said.whole or " ".join(_choose(_split(message.content), wanted))
        line = disarm(f"{message.peer_id}: {write_out(chosen, said.on)}")
        where = f"session {message.session_id}, message {message.id}"
        why = f"score {one.score:.2f}, {where}, {len(chosen)} of {len(message.content)} characters"
        held = RecalledLine(chosen, message.peer_id, said.on.timestamp(), one.certainty)
        quotes.setdefault(line, Quote(said.day, said.at, line, why, held))
    concluded: dict[str, Quote] = {}
    for rank, fact in enumerate(found.conclusions):
        text = disarm(" ".join(fact.content.split()))
        if not any(text in quote for quote in quotes):
            why = f"conclusion {fact.id}, rank {rank + 1}"
            concluded.setdefault(text, Quote("", "", text, why, RecalledLine(text)))
    first = tuple(quotes.values())
    return (*first[:FIRST_QUOTES], *concluded.values(), *first[FIRST_QUOTES:])


def quote_standing(lines: Sequence[RecalledStanding]) -> tuple[Quote, ...]:
    """Return what always holds as lines, in the order given. What may change says when it was said."""
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
    """Return as many of the best quotes as fit, in order of time under their days, and which these are."""
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
    """What the quotes of a message need, whatever the question is."""

    folded: str
    only_asks: bool
    whole: str
    """Its sentences, where all of them are quoted; else empty."""
    on: datetime
    at: str
    day: str


def _read(content: str, created_at: str) -> _SaidMessage:
    """Return what quotes need. Most messages are found again in the next turn: those of usual length are kept."""
    return _read_again(content, created_at) if len(content) <= MAX_WHOLE_CHARS else _make(content, created_at)


def _make(content: str, created_at: str) -> _SaidMessage:
    sentences, on = _split(content), datetime.fromisoformat(created_at)
    whole = " ".join(sentences) if sum(map(len, sentences)) <= MAX_WHOLE_CHARS else ""
    return _SaidMessage(_folded(content), only_asks(content), whole, on, on.isoformat(), _day(on))


_read_again = lru_cache(MESSAGES_KEPT)(_make)


def _split(text: str) -> list[str]:
    """Return the sentences of a text, none longer than a message that is quoted whole."""
    return [piece.rstrip() for part in SENTENCE_END.split(text) for piece in PIECE.findall(part)]


def _choose(sentences: Sequence[str], wanted: Sequence[str]) -> Sequence[str]:
    """Return the sentences of a long message that hold most of the wanted words for their length, in their order."""
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
    """A day in words."""
    return f"{moment.day} {moment:%B %Y}"


def _folded(text: str) -> str:
    return " ".join(text.lower().split())
