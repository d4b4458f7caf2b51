"""Recalled texts as data: speaker, time and certainty of each line. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

from msgspec.structs import replace

from hermes.honcho.injection import MAX_CACHED_LINES, Section
from hermes.types import RecalledLine

FACT = re.compile(
    r"(?:[-*•]\s+|\d{1,3}[.)]\s+)?(?:\[(?P<at>\d{4}-\d\d-\d\d[ T][\d:]{5,8})[^\]\n]{0,30}\]\s*)?"
    r"(?:(?P<speaker>[\w-]{1,100}): )?(?P<text>\S.*)"
)
"""Matches a line of a representation: a mark, the time, the speaker, the text."""
CARD, REPRESENTATION = "user card", "user representation"


def read_lines(sections: Iterable[Section], about: str | None) -> tuple[RecalledLine, ...]:
    """Return evidence, the best first; then card lines of the person; then further facts, the newest first."""
    evidence: list[RecalledLine] = []
    card: list[RecalledLine] = []
    known: list[RecalledLine] = []
    for section in sections:
        evidence += [quote.line for quote in section.quotes]
        lines = (line for line in section.text.splitlines() if line.strip() and line[0] not in "# ")
        facts = [fact for line in lines if (fact := _read(line)) is not None]
        if section.layer == CARD:
            card += facts
        elif section.layer == REPRESENTATION:
            known += facts
    known.sort(key=lambda line: -(line.at or 0.0))
    return tuple(replace(one, speaker="") if one.speaker == about else one for one in (*evidence, *card, *known))


@lru_cache(MAX_CACHED_LINES)
def _read(line: str) -> RecalledLine | None:
    found = FACT.match(line)
    if found is None:
        return None
    try:
        at = datetime.fromisoformat(f"{found['at']}+00:00").timestamp()
    except ValueError:  # there is no time, or none that a clock shows
        at = None
    return RecalledLine(found["text"], found["speaker"] or "", at)
