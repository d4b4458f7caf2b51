"""Numbered source lines for a model, and the check that its text rests on them. A model cites lines by number; a
sentence is dropped if it cites none, cites a line that does not exist, or contains a number that its lines do not
have.

Lines are data: each is a single line, and nothing in it can close the block around it.

Selection of sessions whose words may be sent to a model that must not receive guests' words. Every message of such a
session is marked as the owner's in its metadata. The client that writes a message sets the mark; unmarked messages are
not sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from sqlalchemy import not_, or_, select

from hermes.llm.tokens import estimate_tokens
from hermes.memory_server import times
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import in_parts
from hermes.memory_server.db.tables import messages
from hermes.memory_server.engine.sentence_kinds import MARKED_KINDS
from hermes.memory_server.engine.sentences import is_secret, read_message
from hermes.ranking.relative_times import resolve, write_out
from hermes.types import OWN_MARK

LineKind = Literal["said", "concluded", "noted"]
MAX_LINE_CHARS = 600
MAX_SENTENCE_CHARS = 2000
"""Longer text without an end is not treated as a sentence."""
CHECK_AFTER_CHARS, CITATION_REACH_CHARS = 24, 400
"""The number of new characters after which a growing text is checked, and the distance at which citations after a
sentence are found.
"""
NUMBER_TOKENS = 4
"""The cost of a line's number and line break."""
CITED = re.compile(r"\s{0,8}\[(?:lines?\s{1,4})?(\d{1,4}(?:\s{0,4}[,;]\s{0,4}\d{1,4}){0,40})\]", re.IGNORECASE)
CITED_BEHIND = r"(?:\s{0,8}+\[[^\[\]\n]{1,40}+\]){0,8}+"
SENTENCE = re.compile(rf"\S.*?(?:[.!?…]{{1,8}}+[\"')”]{{0,4}}+{CITED_BEHIND}(?=\s|$)|[。！？]{{1,8}}+{CITED_BEHIND}|$)")
ENDS_IN_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|prof|st|jr|sr|e\.g|i\.e|z\.b|d\.h|ca|approx|vs|nr|no|[a-z]|\d{1,2})\.$", re.I
)
"""Matches the end of a text after an abbreviation, where the sentence continues."""
MAX_ABBREVIATION_CHARS = 10
NUMBER, WORD = re.compile(r"\d+"), re.compile(r"\w+")
LIST_NUMBER = re.compile(r"^\s*\d{1,3}[.)]\s")
QUOTED = re.compile('["“”„«»「]([^"“”„«»「」\n]{2,300})["“”«»」]')
MAX_PREPOSITION_CHARS = 2
"""Words of a date up to this length, such as "in" or "am", say nothing about the time."""
UNDATED = date(2000, 1, 1)
"""An arbitrary day: only the presence of a date matters."""
ENDS = re.compile(r"[.!?…。！？\n]")
MARKS = re.compile(r"</?\s*lines\s*>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line for a model: a message, a conclusion, or (without a row) a line of a card. `text` is the line as the
    model sees it.
    """

    kind: LineKind
    text: str
    row: Record | None = None

    @property
    def key(self) -> tuple[str, object]:
        return self.kind, self.text if self.row is None else self.row.id

    @property
    def words(self) -> str:
        """The original text, letter for letter."""
        return self.text if self.row is None else str(self.row.content)


def quote_message(row: Record) -> SourceLine:
    """Return a message with its day and speaker; its relative times are replaced by dates."""
    day = times.to_day(row.created_at)
    return SourceLine("said", f"{_day(row.created_at)}, {row.peer} said: {write_out(_flat(row.content), day)}", row)


def quote_conclusion(row: Record) -> SourceLine:
    """Return a conclusion with the day on which it was stated or drawn, and the day until which it held."""
    until = "" if row.valid_until is None else f", no longer so since {_day(row.valid_until)}"
    how = "" if row.level == "explicit" else " (drawn from other lines)"
    content = write_out(_flat(row.content), times.to_day(row.created_at))
    return SourceLine("concluded", f"{_day(row.created_at)}{until}: {content}{how}", row)


def quote_card(line: str) -> SourceLine:
    return SourceLine("noted", _flat(line))


def quote_rows(conclusions: Iterable[Record], messages: Iterable[Record]) -> list[SourceLine]:
    """Return the rows as lines, without secrets and without messages that a person asked not to remember: models do
    not get those.
    """
    allowed = [row for row in messages if not any(said.kind in MARKED_KINDS for said in read_message(row.content))]
    found = [*map(quote_conclusion, conclusions), *map(quote_message, allowed)]
    return [quote for quote in found if not is_secret(quote.words)]


def keep_own(tx: Tx, quotes: Sequence[SourceLine], *, is_of_one: bool) -> list[SourceLine]:
    """Return the lines that are surely not about other people: those of the owner's own sessions, and, if there are
    any and all are about one person, lines without a session.
    """
    sessions = {quote.row.session_id for quote in quotes if quote.row is not None} - {None}
    own = own_sessions(tx, sessions)
    kept = [quote for quote in quotes if quote.row is not None and quote.row.session_id in own]
    if not kept or not is_of_one:
        return kept
    return [quote for quote in quotes if quote in kept or quote.row is None or quote.row.session_id is None]


def _day(micros: int) -> str:
    day = times.to_day(micros)
    return f"{day.day} {day:%B %Y}"


def _flat(text: str) -> str:
    """Return the text as one line, without the marks that close a block of lines."""
    line = MARKS.sub(" ", " ".join(text.split()))
    return line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 1] + "…"


class NumberedLines:
    """Lines numbered from 1, in the order in which a model got them."""

    def __init__(self, room_tokens: int) -> None:
        self._room = room_tokens
        self._numbers: dict[tuple[str, object], int] = {}
        self.quotes: list[SourceLine] = []
        self.cited: dict[int, None] = {}
        """The lines that accepted sentences cite."""

    def give(self, quotes: Iterable[SourceLine], *, keep_free: int = 0) -> list[str]:
        """Number lines and return them as shown to the model. Lines given before keep their number, and lines that do
        not fit are left out. `keep_free` tokens are reserved for later lines.
        """
        shown: list[str] = []
        for quote in quotes:
            number = self._numbers.get(quote.key)
            if number is None:
                cost = estimate_tokens(quote.text) + NUMBER_TOKENS
                if cost > self._room - keep_free:
                    break
                self._room -= cost
                self.quotes.append(quote)
                number = self._numbers[quote.key] = len(self.quotes)
            shown.append(f"[{number}] {quote.text}")
        return shown

    def pick(self, numbers: Iterable[object]) -> list[SourceLine]:
        """Return the lines with these numbers, each once. Numbers without a line are skipped."""
        wanted = [one for one in numbers if type(one) is int and 1 <= one <= len(self.quotes)]
        self.cited |= dict.fromkeys(wanted)
        return [self.quotes[number - 1] for number in dict.fromkeys(wanted)]

    def keep(self, sentence: str) -> str | None:
        """Return a sentence without its citations, or None if it does not rest on lines."""
        numbers = [int(one) for found in CITED.finditer(sentence) for one in NUMBER.findall(found.group(1))]
        bare = CITED.sub("", sentence).strip()
        if not numbers or not bare or not all(1 <= one <= len(self.quotes) for one in numbers):
            return None
        if not is_within(bare, [self.quotes[number - 1].text for number in numbers]):
            return None
        self.cited |= dict.fromkeys(numbers)
        return bare

    def cited_first(self) -> list[SourceLine]:
        """Return all lines that were given, cited ones first."""
        others = (number for number in range(1, len(self.quotes) + 1) if number not in self.cited)
        return [self.quotes[number - 1] for number in (*self.cited, *others)]


def is_within(text: str, sources: Sequence[str]) -> bool:
    """Return True if every number, date and quotation in the text is in the sources as well: a model must not compute
    dates or sums, nor invent quotations.
    """
    known = {int(number) for source in sources for number in NUMBER.findall(source)}
    words = {word for source in sources for word in WORD.findall(source.lower())}
    times = (text[time.start : time.end].lower() for time in resolve(text, UNDATED))
    dated = (word for time in times for word in WORD.findall(time) if len(word) > MAX_PREPOSITION_CHARS)
    said = " ".join(sources).lower()
    return (
        all(int(number) in known for number in NUMBER.findall(LIST_NUMBER.sub("", text)))
        and all(word in words for word in dated)
        and all(" ".join(quote.lower().split()).strip(" .,!?…") in said for quote in QUOTED.findall(text))
    )


def fence(lines: Sequence[str]) -> str:
    """Return the lines as a block of data."""
    return "\n".join(["<lines>", *lines, "</lines>"])


def split_sentences(line: str) -> Iterator[str]:
    """Yield the sentences of one line, each with the citations after it."""
    begun: list[str] = []
    for found in SENTENCE.finditer(line):
        begun.append(found.group())
        if not ENDS_IN_ABBREVIATION.search(found.group()[-MAX_ABBREVIATION_CHARS:]):
            yield " ".join(begun)
            begun = []
    if begun:
        yield " ".join(begun)


class SentenceFilter:
    """A filter for growing text that passes only sentences that rest on lines."""

    def __init__(self, lines: NumberedLines) -> None:
        self._lines = lines
        self._rest = self._new = self._between = ""

    def add(self, piece: str) -> str:
        """Return the complete sentences that pass, with the separators between them."""
        self._new += piece
        if len(self._new) < CHECK_AFTER_CHARS and "\n" not in self._new:
            return ""
        if not ENDS.search(self._rest[-CITATION_REACH_CHARS:] + self._new):
            self._rest, self._new = (self._rest + self._new)[: MAX_SENTENCE_CHARS + 1], ""
            return ""
        *whole, last = (self._rest + self._new).split("\n")
        self._new = ""
        kept = [self._keep(line) for line in whole]
        *begun, rest = [*split_sentences(last)] or [""]
        if begun and rest.startswith("["):  # may begin a citation of the previous sentence
            *begun, before = begun
            rest = f"{before} {rest}"
        self._rest = rest + last[len(last.rstrip()) :] if len(rest) <= MAX_SENTENCE_CHARS else ""
        return "".join([*kept, *map(self._keep_sentence, begun)])

    def end(self) -> str:
        """Return the sentences of the rest that pass."""
        rest, self._rest, self._new = self._rest + self._new, "", ""
        return "".join(map(self._keep, rest.split("\n")))

    def _keep(self, line: str) -> str:
        kept = "".join(map(self._keep_sentence, split_sentences(line)))
        self._between = self._between and "\n"
        return kept

    def _keep_sentence(self, sentence: str) -> str:
        if (bare := self._lines.keep(sentence)) is None:
            return ""
        before, self._between = self._between, " "
        return before + bare


MARKED = or_(*(messages.c.metadata.contains(f'"{OWN_MARK}":{space}true', autoescape=True) for space in ("", " ")))
"""Metadata is JSON text, in which quotes inside strings are escaped, so no text can imitate the mark."""


def own_sessions(tx: Tx, session_ids: Iterable[int]) -> set[int]:
    """Return the sessions among these that have messages, all of them marked."""
    own: set[int] = set()
    for part in in_parts(sorted(set(session_ids))):
        inside = messages.c.session_id.in_(part)
        held = tx.execute(select(messages.c.session_id).where(inside).distinct()).scalars()
        unmarked = tx.execute(select(messages.c.session_id).where(inside, not_(MARKED)).distinct()).scalars()
        own |= set(held) - set(unmarked)
    return own
