"""Evidence for one message: what was said earlier that it is about, quoted letter for letter. Pure.

messages found, with scores ── about the message? ── sentences that fit ── Quote, the best first
quotes ── as many as fit ── in order of time, by day
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from hermes.honcho.recall_reader import RecalledConclusion, RecalledMessage
from hermes.ranking.relative_times import write_out
from hermes.ranking.words import share_held, split_words, telling_words

MAX_CANDIDATES = 50
"""Messages that are looked at for one question."""
MAX_QUERY_CHARS = 10_000
MAX_QUOTE_CHARS = 420
"""Characters of one message that are quoted; of a longer one the sentences that fit the question best."""
MIN_CERTAINTY = 0.07
"""Less sure hits are no evidence. On the dialogues of LoCoMo, 0.03 to 0.07 brought most; at 0.21, where answers begin,
a tenth of the evidence was lost."""
MIN_ROOM_CHARS = 40
"""Room in a quote that is too small for another sentence."""
SURE_RANKS = 10
"""Of a server that gives no scores, so many of the first hits count as being about the question."""
SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
QUESTION_ENDS = ("?", "？")
TITLE = "Said earlier"


class ScoredMessage(Struct, frozen=True):
    """A message that was found, how well it fits, and from 0 to 1 how sure it is that it is about the question."""

    message: RecalledMessage
    score: float = 0.0
    certainty: float = 1.0


class Evidence(Struct, frozen=True):
    """What a server found for a question: messages, and conclusions that no message says."""

    messages: Sequence[ScoredMessage] = ()
    conclusions: Sequence[RecalledConclusion] = ()


class Quote(Struct, frozen=True):
    """Sentences of one message as they stand in a prompt, and why they are there."""

    day: str
    """The day in words; "" for a conclusion."""
    at: str
    text: str
    why: str


def score_by_rank(found: Iterable[RecalledMessage], question: str) -> list[ScoredMessage]:
    """Score the hits of a server that only orders them: by their rank, and by the words of the question they hold."""
    wanted = telling_words(split_words(question))
    scored = []
    for rank, message in enumerate(found):
        held = share_held(wanted, message.content)
        scored.append(ScoredMessage(message, held + 1 / (rank + 2), float(rank < SURE_RANKS or held > 0)))
    return sorted(scored, key=lambda one: -one.score)


def quote_all(found: Evidence, question: str, person: str | None) -> tuple[Quote, ...]:
    """Return quotes of what is about the question, the best first, each text once. The question itself, and what the
    person only asked, are no evidence."""
    wanted, asked = telling_words(split_words(question)), _folded(question)
    quotes: dict[str, Quote] = {}
    for one in found.messages:
        message = one.message
        if one.certainty < MIN_CERTAINTY or _folded(message.content) in asked:
            continue
        sentences = [part.strip() for part in SENTENCE_END.split(message.content) if part.strip()]
        if message.peer_id == person and all(part.endswith(QUESTION_ENDS) for part in sentences):
            continue
        said_on = datetime.fromisoformat(message.created_at)
        text = write_out(" ".join(_choose(sentences, wanted)), said_on)
        why = f"{one.score:.2f} {message.session_id or 'a session'}, message {message.id}"
        line = f"{message.peer_id}: {text}"
        quotes.setdefault(line, Quote(f"{said_on.day} {said_on:%B %Y}", message.created_at, line, why))
    for rank, held in enumerate(found.conclusions):
        text = " ".join(held.content.split())
        if not any(text in quote for quote in quotes):
            quotes[text] = Quote("", "", text, f"conclusion {held.id}, rank {rank + 1}")
    return tuple(quotes.values())


def write_quotes(quotes: Sequence[Quote], limit: int) -> tuple[str, Sequence[Quote]]:
    """Return as many of the best quotes as fit, in order of time under their days, and which these are."""
    kept: list[Quote] = []
    days: set[str] = set()
    room = limit
    for quote in quotes:
        cost = len(quote.text) + 3 + (0 if quote.day in days else len(quote.day) + 2)
        if cost <= room:
            kept.append(quote)
            days.add(quote.day)
            room -= cost
    kept.sort(key=lambda quote: quote.at)
    lines: list[str] = []
    for quote, before in zip(kept, [None, *kept], strict=False):
        if quote.day and (before is None or before.day != quote.day):
            lines.append(f"{quote.day}:")
        lines.append(f"- {quote.text}")
    return "\n".join(lines), kept


def _choose(sentences: Sequence[str], wanted: Sequence[str]) -> Sequence[str]:
    """Return a short message whole; of a long one the sentences that hold most of the wanted words, in their order."""
    if sum(map(len, sentences)) <= MAX_QUOTE_CHARS:
        return sentences
    best = sorted(range(len(sentences)), key=lambda number: (-share_held(wanted, sentences[number]), number))
    chosen: list[int] = []
    room = MAX_QUOTE_CHARS
    for number in best:
        if not chosen or len(sentences[number]) <= room:
            chosen.append(number)
            room -= len(sentences[number]) + 1
        if room < MIN_ROOM_CHARS:
            break
    return [sentences[number] for number in sorted(chosen)]


def _folded(text: str) -> str:
    return " ".join(text.lower().split())
