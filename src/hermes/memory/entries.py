"""The entries of a note, in either of its two formats.

    sections   entries of any length, separated by a line `§`: written by an existing Hermes, and by us in new notes
    Markdown   list items, headings and paragraphs, as people write them by hand

    text ──find_entries──> entries ──add · replace · remove──> text in the same format, all other lines unchanged

Pure functions on the file's exact text: line ends, blank lines and indents are kept.
"""

from __future__ import annotations

import re
from itertools import pairwise

from msgspec import Struct

MARKER = re.compile(r"\A[ \t]*(?:[-*+]|\d{1,4}[.)]|#{1,6}|>)[ \t]+")
SEPARATOR = "§"
"""The line between two entries."""
BLANK_CHARS = f"{SEPARATOR} \t\r\n"
"""Characters that a note without entries may contain."""


class NoteLines(Struct, frozen=True):
    """An entry: lines `first` to `end`, exclusive. `marker` is the list or heading mark with its indent."""

    first: int
    end: int
    marker: str
    text: str


def find_entries(text: str) -> list[NoteLines]:
    """Return all entries in order.

    A section is one entry, except for a list of several lines, whose items are entries: a list of ours becomes such a
    section when another program adds its first section below.
    """
    lines = text.removeprefix("\ufeff").split("\n")
    if not any(map(_is_separator, lines)):
        return _find_items(lines, 0, len(lines))
    entries: list[NoteLines] = []
    for first, end in _sections(lines):
        if end - first > 1 and MARKER.match(lines[first]):
            entries += _find_items(lines, first, end)
        else:
            entries.append(NoteLines(first, end, "", " ".join(" ".join(lines[first:end]).split())))
    return entries


def add_entry(text: str, entry: str) -> str:
    """Return `text` with an entry added at the end."""
    end = "\r\n" if "\r\n" in text else "\n"
    if not find_entries(text):
        return f"{text.rstrip(BLANK_CHARS)}{'- ' if MARKER.match(entry) else ''}{entry}{end}"
    if _has_sections(text):
        last = end if text.endswith("\n") else ""
        return f"{text.rstrip()}{end}{SEPARATOR}{end}{entry}{last}"
    begun = text if text.endswith("\n") else f"{text}{end}"
    return f"{begun}- {entry}{end}"


def replace_entry(text: str, old: NoteLines, entry: str) -> str:
    """Return `text` with `old` replaced by an entry of the same kind."""
    marker = old.marker or ("- " if MARKER.match(entry) and not any(map(_is_separator, text.split("\n"))) else "")
    return _splice(text, old.first, old.end, [f"{marker}{entry}"])


def remove_entry(text: str, old: NoteLines) -> str:
    """Return `text` without `old`. Its neighbours stay separate entries."""
    lines = text.removeprefix("\ufeff").split("\n")
    above, below = lines[: old.first][-1:], lines[old.end :][:1]
    joins = any(map(str.strip, above)) and any(line.strip() and not MARKER.match(line) for line in below)
    gap = [""] if joins else []
    if not any(map(_is_separator, lines)):
        return _splice(text, old.first, old.end, gap)
    sections = _sections(lines)
    place = next(place for place, (first, end) in enumerate(sections) if first <= old.first < end)
    first, end = sections[place]
    rest = [*lines[first : old.first], *gap, *lines[old.end : end]]
    left = "\n".join(line.removesuffix("\r") for line in rest).strip()
    return _splice(text, first, end, left.split("\n")) if left else _remove_section(text, sections, place)


def _remove_section(text: str, sections: list[tuple[int, int]], place: int) -> str:
    """Return the text without a section and the separator after it, or before it if it is the last."""
    if len(sections) == 1:
        return _splice(text, 0, len(text.split("\n")), [])
    if place + 1 < len(sections):
        return _splice(text, sections[place][0], sections[place + 1][0], [])
    return _splice(text, sections[place - 1][1], sections[place][1], [])


def _sections(lines: list[str]) -> list[tuple[int, int]]:
    """Return the first line and the end of each section that is not empty, without surrounding blank lines."""
    edges = [-1, *(place for place, line in enumerate(lines) if _is_separator(line)), len(lines)]
    found = []
    for before, after in pairwise(edges):
        filled = [place for place in range(before + 1, after) if lines[place].strip()]
        if filled:
            found.append((filled[0], filled[-1] + 1))
    return found


def _is_separator(line: str) -> bool:
    return line.removesuffix("\r") == SEPARATOR


def _has_sections(text: str) -> bool:
    """Return True if the text has the format with sections; a single paragraph is one section."""
    lines = text.removeprefix("\ufeff").split("\n")
    items = _find_items(lines, 0, len(lines))
    return any(map(_is_separator, lines)) or (len(items) == 1 and not items[0].marker)


def _find_items(lines: list[str], first: int, end: int) -> list[NoteLines]:
    """Return items, headings and paragraphs. A line without a marker continues the entry above, unless that is a
    heading."""
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


def _splice(text: str, first: int, end: int, new: list[str]) -> str:
    lines = text.split("\n")
    bom = "\ufeff" if first == 0 and text.startswith("\ufeff") else ""
    carriage = "\r" if lines[end - 1].endswith("\r") else ""
    kept = [*(f"{line}{carriage}" for line in new), *lines[end:]]
    put = "\n".join([*lines[:first], *kept])
    put = f"{bom}{put}" if not put.startswith(bom) else put
    return f"{put}\n" if put.endswith("\r") else put
