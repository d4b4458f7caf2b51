"""A note as its entries, in either of the two shapes that notes have.

    sections   entries of any length, parted by a line that is just `§`: what an existing Hermes writes, and we in a
               note that is new
    Markdown   list items, headings and paragraphs, as people write them by hand

    text ──find_entries──> entries ──add · replace · remove──> text in its own shape, every other line as it was

Pure functions over the file's exact text: line ends, blank lines and indents that a person made are kept.
"""

from __future__ import annotations

import re
from itertools import pairwise

from msgspec import Struct

MARKER = re.compile(r"\A[ \t]*(?:[-*+]|\d{1,4}[.)]|#{1,6}|>)[ \t]+")
PARTING = "§"
"""A line of its own between two entries."""
BLANK = f"{PARTING} \t\r\n"
"""What a note without entries may consist of."""


class NoteLines(Struct, frozen=True):
    """Lines `first` up to but without `end`. `marker` is what makes it an item or a heading, with its indent."""

    first: int
    end: int
    marker: str
    text: str


def find_entries(text: str) -> list[NoteLines]:
    """Every entry, in order.

    A section is one entry, but for a list of several lines: its items are entries, because that is what a list of ours
    becomes when another program adds its first section below.
    """
    lines = text.removeprefix("\ufeff").split("\n")
    if not any(map(_parts, lines)):
        return _find_items(lines, 0, len(lines))
    entries: list[NoteLines] = []
    for first, end in _sections(lines):
        if end - first > 1 and MARKER.match(lines[first]):
            entries += _find_items(lines, first, end)
        else:
            entries.append(NoteLines(first, end, "", " ".join(" ".join(lines[first:end]).split())))
    return entries


def add_entry(text: str, entry: str) -> str:
    """`text` with one more entry at its end."""
    end = "\r\n" if "\r\n" in text else "\n"
    if not find_entries(text):
        return f"{text.rstrip(BLANK)}{'- ' if MARKER.match(entry) else ''}{entry}{end}"
    if _is_parted(text):
        last = end if text.endswith("\n") else ""
        return f"{text.rstrip()}{end}{PARTING}{end}{entry}{last}"
    begun = text if text.endswith("\n") else f"{text}{end}"
    return f"{begun}- {entry}{end}"


def replace_entry(text: str, old: NoteLines, entry: str) -> str:
    """`text` with another entry of the same kind in the place of `old`."""
    marker = old.marker or ("- " if MARKER.match(entry) and not any(map(_parts, text.split("\n"))) else "")
    return _put(text, old.first, old.end, [f"{marker}{entry}"])


def remove_entry(text: str, old: NoteLines) -> str:
    """`text` without `old`. Its neighbours do not grow together."""
    lines = text.removeprefix("\ufeff").split("\n")
    above, below = lines[: old.first][-1:], lines[old.end :][:1]
    joins = any(map(str.strip, above)) and any(line.strip() and not MARKER.match(line) for line in below)
    gap = [""] if joins else []
    if not any(map(_parts, lines)):
        return _put(text, old.first, old.end, gap)
    sections = _sections(lines)
    place = next(place for place, (first, end) in enumerate(sections) if first <= old.first < end)
    first, end = sections[place]
    rest = [*lines[first : old.first], *gap, *lines[old.end : end]]
    left = "\n".join(line.removesuffix("\r") for line in rest).strip()
    return _put(text, first, end, left.split("\n")) if left else _remove_section(text, sections, place)


def _remove_section(text: str, sections: list[tuple[int, int]], place: int) -> str:
    """Without a section and the line that parts it from the next, or the last from the one before."""
    if len(sections) == 1:
        return _put(text, 0, len(text.split("\n")), [])
    if place + 1 < len(sections):
        return _put(text, sections[place][0], sections[place + 1][0], [])
    return _put(text, sections[place - 1][1], sections[place][1], [])


def _sections(lines: list[str]) -> list[tuple[int, int]]:
    """The first line and the end of each section that holds something, without blank lines around it."""
    edges = [-1, *(place for place, line in enumerate(lines) if _parts(line)), len(lines)]
    found = []
    for before, after in pairwise(edges):
        filled = [place for place in range(before + 1, after) if lines[place].strip()]
        if filled:
            found.append((filled[0], filled[-1] + 1))
    return found


def _parts(line: str) -> bool:
    return line.removesuffix("\r") == PARTING


def _is_parted(text: str) -> bool:
    """Whether it is of the shape with sections; one paragraph alone is a single section."""
    lines = text.removeprefix("\ufeff").split("\n")
    items = _find_items(lines, 0, len(lines))
    return any(map(_parts, lines)) or (len(items) == 1 and not items[0].marker)


def _find_items(lines: list[str], first: int, end: int) -> list[NoteLines]:
    """Items, headings and paragraphs. A line without a marker goes on with the entry above it, but for a heading."""
    entries: list[NoteLines] = []
    for place in range(first, end):
        line = lines[place]
        if not line.strip():
            continue
        marker = found[0] if (found := MARKER.match(line)) else ""
        last = entries[-1] if entries else None
        if last and not marker and last.end == place and "#" not in last.marker:
            entries[-1] = NoteLines(last.first, place + 1, last.marker, f"{last.text} {line.strip()}")
        else:
            entries.append(NoteLines(place, place + 1, marker, line[len(marker) :].strip()))
    return entries


def _put(text: str, first: int, end: int, new: list[str]) -> str:
    lines = text.split("\n")
    bom = "\ufeff" if first == 0 and text.startswith("\ufeff") else ""
    carriage = "\r" if lines[end - 1].endswith("\r") else ""
    kept = [*(f"{line}{carriage}" for line in new), *lines[end:]]
    put = "\n".join([*lines[:first], *kept])
    put = f"{bom}{put}" if not put.startswith(bom) else put
    return f"{put}\n" if put.endswith("\r") else put
