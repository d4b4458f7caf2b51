"""Numbered lines that a model may rest on, and what of its text rests on them. A model points at lines by number; a
sentence that points at none, at one that does not exist, or that has a number which its lines do not have, is dropped.

Lines are data: each is one line of its own, and nothing in it can close the block that they stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from hermes.llm.tokens import estimate_tokens
from hermes.memory_server import times
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.engine.sentence_kinds import MARKED_KINDS
from hermes.memory_server.engine.sentences import read_message
from hermes.memory_server.model.own_words import own_sessions
from hermes.ranking.personal import holds_secret
from hermes.ranking.relative_times import resolve, write_out

LineKind = Literal["said", "concluded", "noted"]
LINE_CHARS = 600
MAX_SENTENCE_CHARS = 2000
"""What goes on for longer without an end is no sentence."""
LOOK_CHARS, BEHIND_CHARS = 24, 400
"""New characters of a growing text after which it is looked at, and how far behind a sentence its citations reach."""
NUMBER_TOKENS = 4
"""A line's number and end."""
CITED = re.compile(r"\s{0,8}\[(?:lines?\s{1,4})?(\d{1,4}(?:\s{0,4}[,;]\s{0,4}\d{1,4}){0,40})\]", re.IGNORECASE)
CITED_BEHIND = r"(?:\s{0,8}+\[[^\[\]\n]{1,40}+\]){0,8}+"
SENTENCE = re.compile(rf"\S.*?(?:[.!?…]{{1,8}}+[\"')”]{{0,4}}+{CITED_BEHIND}(?=\s|$)|[。！？]{{1,8}}+{CITED_BEHIND}|$)")
GOES_ON = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|prof|st|jr|sr|e\.g|i\.e|z\.b|d\.h|ca|approx|vs|nr|no|[a-z]|\d{1,2})\.$", re.I
)
"""Ends with a word after which a sentence goes on."""
GOES_ON_CHARS = 10
NUMBER, WORD = re.compile(r"\d+"), re.compile(r"\w+")
LIST_NUMBER = re.compile(r"^\s*\d{1,3}[.)]\s")
QUOTED = re.compile('["“”„«»「]([^"“”„«»「」\n]{2,300})["“”«»」]')
MAX_PREPOSITION_CHARS = 2
"""Shorter words of a date, such as "in" or "am", say nothing of when."""
UNDATED = date(2000, 1, 1)
"""Any day: only whether a text has a date is asked."""
ENDS = re.compile(r"[.!?…。！？\n]")
MARKS = re.compile(r"</?\s*lines\s*>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line: a message, a conclusion, or (without a row) a line of a card. `text` is how a model is shown it."""

    kind: LineKind
    text: str
    row: Record | None = None

    @property
    def key(self) -> tuple[str, object]:
        return self.kind, self.text if self.row is None else self.row.id

    @property
    def words(self) -> str:
        """What is quoted, letter for letter."""
        return self.text if self.row is None else str(self.row.content)


def quote_message(row: Record) -> SourceLine:
    """A message with its day and speaker, its relative times worked out."""
    day = times.to_day(row.created_at)
    return SourceLine("said", f"{_day(row.created_at)}, {row.peer} said: {write_out(_flat(row.content), day)}", row)


def quote_conclusion(row: Record) -> SourceLine:
    """A conclusion with the day on which it was said or drawn, and until when it held."""
    until = "" if row.valid_until is None else f", no longer so since {_day(row.valid_until)}"
    how = "" if row.level == "explicit" else " (drawn from other lines)"
    content = write_out(_flat(row.content), times.to_day(row.created_at))
    return SourceLine("concluded", f"{_day(row.created_at)}{until}: {content}{how}", row)


def quote_card(line: str) -> SourceLine:
    return SourceLine("noted", _flat(line))


def quote_rows(conclusions: Iterable[Record], messages: Iterable[Record]) -> list[SourceLine]:
    """Quotes of rows that hold no secret, and of messages that nobody wished not to be remembered: those are not given
    to a model."""
    told = [row for row in messages if not any(said.kind in MARKED_KINDS for said in read_message(row.content))]
    found = [*map(quote_conclusion, conclusions), *map(quote_message, told)]
    return [quote for quote in found if not holds_secret(quote.words)]


def keep_own(tx: Tx, quotes: Sequence[SourceLine], *, is_of_one: bool) -> list[SourceLine]:
    """Leave out what may be of people other than the owner: lines of sessions that are not the owner's own, and lines
    without a session where there is none of such a session about the same one person."""
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
    """The text on one line, without what ends the block of lines."""
    line = MARKS.sub(" ", " ".join(text.split()))
    return line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 1] + "…"


class NumberedLines:
    """Lines with numbers, from 1 on, in the order in which they were given to a model."""

    def __init__(self, room_tokens: int) -> None:
        self._room = room_tokens
        self._numbers: dict[tuple[str, object], int] = {}
        self.quotes: list[SourceLine] = []
        self.cited: dict[int, None] = {}
        """The lines that kept sentences rest on."""

    def give(self, quotes: Iterable[SourceLine], *, keep_free: int = 0) -> list[str]:
        """Number lines and return how they are shown; those that were given before keep their number, and those that
        there is no room for are left out. `keep_free` tokens are left for later ones."""
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
        """Return the lines with these numbers, each once. Numbers that no line has are passed over."""
        wanted = [one for one in numbers if type(one) is int and 1 <= one <= len(self.quotes)]
        self.cited |= dict.fromkeys(wanted)
        return [self.quotes[number - 1] for number in dict.fromkeys(wanted)]

    def keep(self, sentence: str) -> str | None:
        """Return a sentence without its citations; None if it does not rest on lines."""
        numbers = [int(one) for found in CITED.finditer(sentence) for one in NUMBER.findall(found.group(1))]
        bare = CITED.sub("", sentence).strip()
        if not numbers or not bare or not all(1 <= one <= len(self.quotes) for one in numbers):
            return None
        if not is_within(bare, [self.quotes[number - 1].text for number in numbers]):
            return None
        self.cited |= dict.fromkeys(numbers)
        return bare

    def cited_first(self) -> list[SourceLine]:
        """All lines that were given, those that were rested on before the others."""
        others = (number for number in range(1, len(self.quotes) + 1) if number not in self.cited)
        return [self.quotes[number - 1] for number in (*self.cited, *others)]


def is_within(text: str, sources: Sequence[str]) -> bool:
    """Return True if every number, date and quoted text stands in the sources, too: a model works out no dates and no
    sums, and puts no words into a mouth."""
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
    """Lines as a block of data."""
    return "\n".join(["<lines>", *lines, "</lines>"])


def split_sentences(line: str) -> Iterator[str]:
    """The sentences of one line, each with the citations behind it."""
    begun: list[str] = []
    for found in SENTENCE.finditer(line):
        begun.append(found.group())
        if not GOES_ON.search(found.group()[-GOES_ON_CHARS:]):
            yield " ".join(begun)
            begun = []
    if begun:
        yield " ".join(begun)


class SentenceFilter:
    """Lets those sentences of a growing text through that rest on lines."""

    def __init__(self, lines: NumberedLines) -> None:
        self._lines = lines
        self._rest = self._new = self._between = ""

    def add(self, piece: str) -> str:
        """Return the sentences that are whole by now and are kept, with what separates them from earlier ones."""
        self._new += piece
        if len(self._new) < LOOK_CHARS and "\n" not in self._new:
            return ""
        if not ENDS.search(self._rest[-BEHIND_CHARS:] + self._new):
            self._rest, self._new = (self._rest + self._new)[: MAX_SENTENCE_CHARS + 1], ""
            return ""
        *whole, last = (self._rest + self._new).split("\n")
        self._new = ""
        kept = [self._keep(line) for line in whole]
        *begun, rest = [*split_sentences(last)] or [""]
        if begun and rest.startswith("["):  # perhaps the beginning of a citation of the sentence before
            *begun, before = begun
            rest = f"{before} {rest}"
        self._rest = rest + last[len(last.rstrip()) :] if len(rest) <= MAX_SENTENCE_CHARS else ""
        return "".join([*kept, *map(self._keep_sentence, begun)])

    def end(self) -> str:
        """Return the same for what is left."""
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
