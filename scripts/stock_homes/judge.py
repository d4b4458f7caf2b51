"""Judges whether a turn sees every message of its chat once and in order, and none of another chat."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.agent.context import SUMMARY_HEADING as OUR_SUMMARY
from hermes.store.copies import MERGED, SUMMARY
from scripts.stock_homes.drive import Said

MADE = re.compile(r"summary \d+ of \d+")
"""Marks of the loopback model's summaries."""
REPLY = re.compile(r"reply \d+")


@dataclass(frozen=True)
class Past:
    """The messages of one chat up to a turn, those that can be read at all, and those that a warning has reported as
    missing."""

    said: Sequence[Said]
    readable: Collection[str]
    told: Collection[str] = ()


def find_faults(past: Past, request: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the faults of a request for a turn after this past."""
    said = list(_since_reset(past.said))
    numbers = {one.text: one.number for one in said}
    seen = [word for message in request if message["role"] == "user" for word in words(message["content"])]
    replies = [text for message in request if REPLY.fullmatch(text := str(message.get("content")))]
    faults = [f"{word!r} was not said here" for word in seen if word not in numbers]
    faults += [
        f"{word!r} is there twice" for word in sorted({w for w in [*seen, *replies] if _times(w, seen, replies)})
    ]
    order = [numbers[word] for word in seen if word in numbers]
    if order != sorted(order):
        faults.append(f"another order: {seen}")
    return faults + list(_find_missing(past, said, seen, request))


def words(content: object) -> Iterator[str]:
    """Return a person's line in a message without its filling. A summary may be merged into the message, several
    messages may be one, and a program may have added a bracketed note."""
    text = str(content or "").strip()
    if not text or text.startswith(OUR_SUMMARY) or (SUMMARY.match(text) and MERGED not in text[:40]):
        return
    parts = [text.split("\n")[1]] if MERGED in text[:40] else text.split("\n\n")
    lines = (part.split("\n")[0].split(" lorem ipsum")[0].strip() for part in parts)
    yield from (line for line in lines if line and not line.startswith("["))


def _since_reset(said: Sequence[Said]) -> Iterator[Said]:
    last = max((place for place, one in enumerate(said) if one.text == "/new"), default=-1)
    return (one for one in said[last + 1 :] if not one.text.startswith("/"))


def _times(word: str, seen: Sequence[str], replies: Sequence[str]) -> bool:
    return [*seen, *replies].count(word) > 1


def _find_missing(
    past: Past, said: Sequence[Said], seen: Sequence[str], request: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Return the missing messages that are not in a single gap with a summary. A message that was cut off before it was
    stored is nowhere."""
    for one in said:
        if one.answered and one.text not in past.readable:
            yield f"{one.text!r} is nowhere"
    wanted = [one for one in said if one.text in past.readable and one.text not in past.told]
    gap = [place for place, one in enumerate(wanted) if one.text not in seen]
    if not gap:
        return
    names = [wanted[place].text for place in gap]
    if wanted[-1].text not in seen or gap[-1] - gap[0] + 1 != len(gap):
        yield f"{names} are not seen"
    elif not any(MADE.search(str(message.get("content"))) for message in request):
        yield f"{names} are not seen, and there is no summary"
