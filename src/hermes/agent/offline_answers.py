"""Answers from memory alone, in fixed sentences, each with its source.

message ── small talk? ── a request? ── a question? ─no─ what becomes of it └─ recalled lines, then local ones ── the
ones that answer it ── quoted
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from hermes.agent.offline import Inquiry, OfflineModel
from hermes.ranking.personal import Topic, find_name, find_topic, states
from hermes.ranking.relative_times import resolve, write_out
from hermes.ranking.traits import (
    find_small_talk,
    holds_secret,
    is_question,
    is_request,
    only_asks,
    speaks_of_oneself,
    wants_forgetting,
)
from hermes.ranking.words import split_words, telling_words
from hermes.types import RecalledLine, is_told

NEEDS_MODEL = "Without a model I can only keep what you tell me, and answer questions from it."
HOW_TO_FORGET = "Nothing is forgotten yet: `/memory search WORDS` shows what is kept, `/memory forget N` removes it."
HELLO = "{0}! Tell me what I should remember, or ask me about what you told me."
SMALL_TALK = {"farewell": "Goodbye!", "thanks": "You're welcome.", "nod": "All right."}
UNKNOWN: dict[Topic | None, str] = {
    None: "I remember nothing about that.",
    "name": "I was not told your name.",
    "home": "I was not told where you live.",
    "work": "I was not told what you do for work.",
    "oneself": "I was not told anything about you yet.",
    "said": "I remember nothing that you said then.",
}
NOT_READ = "But a part of memory could not be read just now: ask again in a moment."
MAX_QUOTE_CHARS, MAX_QUOTES, MAX_LISTED = 300, 3, 10
MIN_CERTAINTY = 0.21
"""Recalled lines with a lower certainty are not quoted."""
MIN_WORD_SHARE = 0.5
"""Share of the question's words that a line without a certainty must contain."""
MIN_SHARE_OF_BEST = 0.6
"""Minimum certainty of a line, as a share of the best line's."""
MIN_CERTAINTY_UNNAMED = 0.5
"""From this certainty on, a line may answer a question about "my cat" without naming the cat."""
OWNED = re.compile(
    r"\b(?:my|mein(?:e[mnrs]?)?|mis?|mon|ma|mes) (?:(?:fav\w+|new|old|first|last|next|best|own|current) )*(\w{3,})"
    r"|我的(\w)",
    re.IGNORECASE,
)
"""Matches the noun after a possessive, as in "my cat"."""
CHANGING: tuple[Topic, ...] = ("home", "work")
"""Topics whose newest statement about oneself replaces the earlier ones."""
OF_ANOTHER = re.compile(
    r"\b(?:my|mein\w*|mi|mon|ma) \w+ (?:lives|works|moved|wohnt|lebt|arbeitet|vive|trabaja|habite|travaille)\b",
    re.IGNORECASE,
)
"""Matches statements of where another person lives or works."""


async def reply(model: OfflineModel, said: str) -> str:
    """Return the reply of an offline model to a message."""
    kind = find_small_talk(said)
    if kind == "greeting":
        first = said.strip(" .!?¡¿").splitlines()[0]
        return HELLO.format("Hello" if is_question(said) else first[:1].upper() + first[1:])
    if kind is not None:
        return SMALL_TALK[kind]
    if wants_forgetting(said):
        return HOW_TO_FORGET
    if is_request(said):
        return NEEDS_MODEL
    if not is_question(said):
        return f"{model.fate}: {_brief(said)}"
    inquiry = read_inquiry(said, model.now())
    recalled, local = (_mark_own(lines, model.asker) for lines in (model.recalled, await model.recollect(inquiry)))
    text = answer(inquiry, recalled, local, model.now(), model.asker)
    return text if model.is_whole or text not in UNKNOWN.values() else f"{text} {NOT_READ}"


def read_inquiry(text: str, now: float) -> Inquiry:
    """Return the topic and period of a question; relative times count from `now`."""
    topic = find_topic(text)
    times = resolve(text, datetime.fromtimestamp(now)) if topic == "said" else []
    if not times:
        return Inquiry(text, topic)
    first = datetime.combine(times[0].first, datetime.min.time())
    end = datetime.combine(times[0].last, datetime.min.time()) + timedelta(days=1)
    return Inquiry(text, topic, first.timestamp(), end.timestamp(), times[0].written)


def _mark_own(lines: Iterable[RecalledLine], asker: str) -> list[RecalledLine]:
    return [replace(line, speaker="") if asker and line.speaker == asker else line for line in lines]


def answer(
    inquiry: Inquiry, recalled: Sequence[RecalledLine], local: Sequence[RecalledLine], now: float, asker: str = ""
) -> str:
    """Return the answer to a question. Equal arguments give equal words."""
    if inquiry.topic is None:
        quotes = find_answers(inquiry, recalled, local)
        return _quote(quotes, now) if quotes else UNKNOWN[None]
    own = _once(line for line in (*recalled, *local) if not line.speaker and _may_tell(line, inquiry))
    newest = sorted(own, key=lambda line: -(line.at or 0.0))
    if inquiry.topic == "name":
        return _tell_name(newest, now) or (f"Here you are {asker}." if asker else UNKNOWN["name"])
    if inquiry.topic == "said":
        return _tell_said(inquiry, newest, now)
    if inquiry.topic == "oneself":
        return _tell_all(own, newest, now)
    stated = [line for line in newest if states(inquiry.topic, line.text)]
    others = (line for line in own if is_answer(line, inquiry) and not OF_ANOTHER.search(line.text))
    if stated:
        return _quote_newest(stated[:MAX_QUOTES], now)
    quotes = list(others)[:MAX_QUOTES]
    return _quote(quotes, now) if quotes else UNKNOWN[inquiry.topic]


def find_answers(
    inquiry: Inquiry, recalled: Sequence[RecalledLine], local: Sequence[RecalledLine]
) -> list[RecalledLine]:
    """Return the lines that answer a question, the best first: recalled lines, and local lines if they are newer or
    nothing was recalled. If memory probably lacks the answer, only lines with every word of the question count."""
    if not is_told(recalled):
        recalled = [replace(line, certainty=None) for line in recalled if _holds_all(line, inquiry)]
        local = [line for line in local if _holds_all(line, inquiry)]
    fitting = [line for line in recalled if is_answer(line, inquiry)]
    least = MIN_SHARE_OF_BEST * max((line.certainty or 0.0 for line in fitting), default=0.0)
    found = _once(line for line in fitting if line.certainty is None or line.certainty >= least)
    newest = max((line.at or 0.0 for line in found), default=-1.0)
    more = [line for line in local if (line.at or 0.0) > newest and is_answer(line, inquiry)]
    return _once([*more, *found] if found else more)[:MAX_QUOTES]


def is_answer(line: RecalledLine, inquiry: Inquiry) -> bool:
    """Return True if a line answers a question. No other function decides that."""
    if not _may_tell(line, inquiry):
        return False
    words = telling_words(split_words(inquiry.text))
    certainty, least = line.certainty, MIN_CERTAINTY
    if certainty is None:
        certainty, least = share_of(words, line.text), MIN_WORD_SHARE
    owned = [word.lower() for found in OWNED.findall(inquiry.text) for word in found if word]
    names_it = not owned or share_of(owned, line.text) > 0 or all(word not in words for word in owned)
    return certainty >= least and (names_it or (line.certainty or 0.0) >= MIN_CERTAINTY_UNNAMED)


def _holds_all(line: RecalledLine, inquiry: Inquiry) -> bool:
    """Return True if the line holds every word of the question. Required when memory probably lacks the answer."""
    return share_of(telling_words(split_words(inquiry.text)), line.text) == 1.0


def share_of(words: Sequence[str], text: str) -> float:
    """Return the share of the words that a text contains, allowing for different endings."""
    said = set(split_words(text))
    held = [any(_is_form(word.rstrip("*"), other.rstrip("*")) for other in said) for word in words]
    return sum(held) / max(1, len(held))


def _is_form(one: str, other: str) -> bool:
    if one == other or not (one.isascii() or other.isascii()) or one.isdigit():
        return one == other
    shorter, longer = sorted((one, other), key=len)
    return (
        len(shorter) >= 3 and len(longer) - len(shorter) <= 3 and longer.startswith(shorter[: max(3, len(shorter) - 1)])
    )


def _may_tell(line: RecalledLine, inquiry: Inquiry) -> bool:
    """Return True if a line states something, and is not a secret that the question did not ask for."""
    is_open = holds_secret(inquiry.text) or not holds_secret(line.text)
    return is_open and find_small_talk(line.text) is None and not only_asks(line.text)


def _tell_name(newest: Sequence[RecalledLine], now: float) -> str:
    named = find_name(line.text for line in newest)
    if named is None:
        return ""
    line = next(line for line in newest if line.text == named[1])
    return f"Your name is {named[0]}. From memory: {_written(line, now)}"


def _tell_said(inquiry: Inquiry, newest: Sequence[RecalledLine], now: float) -> str:
    said = [line for line in newest if line.at is not None and inquiry.since <= line.at < inquiry.until]
    if not said:
        return UNKNOWN["said"]
    when = f"From memory, what you said ({inquiry.period}):" if inquiry.period else "From memory, what you said last:"
    return "\n".join([when, *(f"- {_written(line, now)}" for line in reversed(said[:MAX_LISTED]))])


def _tell_all(own: Sequence[RecalledLine], newest: Sequence[RecalledLine], now: float) -> str:
    """Return all lines about the person: notes first, then their statements about themselves, newest first."""
    named = find_name(line.text for line in newest)
    noted = [line for line in own if line.at is None]
    said = [line for line in newest if line.at is not None and speaks_of_oneself(line.text, split_words(line.text))]
    first = [line for line in newest if named is not None and line.text == named[1]][:1]
    listed = _put_outdated_last(_once([*first, *noted, *said])[:MAX_LISTED])
    if not listed:
        return UNKNOWN["oneself"]
    head = "From memory, about you:" if named is None else f"You are {named[0]}. From memory, about you:"
    return "\n".join([head, *(f"- {'earlier: ' * is_outdated}{_written(line, now)}" for line, is_outdated in listed)])


def _put_outdated_last(lines: Sequence[RecalledLine]) -> list[tuple[RecalledLine, bool]]:
    """Return each line with whether a later one states another home or work, those behind the others."""
    marked = [(line, any(_is_outdated(line, other) for other in lines)) for line in lines]
    return sorted(marked, key=lambda one: one[1])


def _is_outdated(line: RecalledLine, other: RecalledLine) -> bool:
    if line.at is None or other.at is None or other.at <= line.at or line.speaker or other.speaker:
        return False
    return any(states(topic, line.text) and states(topic, other.text) for topic in CHANGING)


def _quote(lines: Sequence[RecalledLine], now: float) -> str:
    return "From memory: " + " · ".join(_written(line, now) for line in lines)


def _quote_newest(lines: Sequence[RecalledLine], now: float) -> str:
    """Quote statements about one subject. Earlier ones are marked, since they may be outdated."""
    first = lines[0].at
    before = [line.at is not None and first is not None and line.at < first for line in lines]
    marked = (f"{'earlier: ' * is_before}{_written(line, now)}" for line, is_before in zip(lines, before, strict=True))
    return "From memory: " + " · ".join(marked)


def _written(line: RecalledLine, now: float) -> str:
    """Return a line in quotes, with its speaker if that is another person, and its date if that is not today."""
    if line.at is None:
        return f"“{_brief(line.text)}”"
    said_on, today = datetime.fromtimestamp(line.at), datetime.fromtimestamp(now)
    day = "" if said_on.date() == today.date() else f"{said_on.day} {said_on:%B %Y}"
    source = ", ".join(part for part in (line.speaker, day) if part)
    text = _brief(line.text if not day else write_out(line.text, said_on))
    return f"“{text}”" + (f" ({source})" if source else "")


def _once(lines: Iterable[RecalledLine]) -> list[RecalledLine]:
    """Return the lines without duplicates. Of a line and an excerpt of it, the line stays, at the earlier position."""
    kept: list[tuple[str, RecalledLine]] = []
    for line in lines:
        plain = " ".join(line.text.lower().split()).strip(".!。 ")
        if any(plain in other for other, _ in kept):
            continue
        place = next((at for at, (other, _) in enumerate(kept) if f" {other} " in f" {plain} "), len(kept))
        kept[place : place + 1] = [(plain, line)]
    return [line for _, line in kept]


def _brief(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_QUOTE_CHARS else f"{flat[: MAX_QUOTE_CHARS - 1]}…"
