"""A note as its entries: list items, headings and paragraphs of a Markdown file that people edit by hand.

    text ──find_entries──> entries ──add · replace · remove──> text, every other line as it was

Pure functions over the file's exact text: line ends, blank lines and indents that a person made are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MARKER = re.compile(r"[ \t]*(?:[-*+]|\d{1,4}[.)]|#{1,6}|>)[ \t]+")


@dataclass(frozen=True, slots=True)
class Entry:
    """Lines `first` up to but without `end`. `marker` is what makes it an item or a heading, with its indent."""

    first: int
    end: int
    marker: str
    text: str


def find_entries(text: str) -> list[Entry]:
    """Every entry, in order. A line without a marker goes on with the entry right above it, but for a heading."""
    entries: list[Entry] = []
    for place, line in enumerate(text.removeprefix("\ufeff").split("\n")):
        if not line.strip():
            continue
        marker = found[0] if (found := MARKER.match(line)) else ""
        last = entries[-1] if entries else None
        if last and not marker and last.end == place and "#" not in last.marker:
            entries[-1] = Entry(last.first, place + 1, last.marker, f"{last.text} {line.strip()}")
        else:
            entries.append(Entry(place, place + 1, marker, line[len(marker) :].strip()))
    return entries


def add_entry(text: str, entry: str) -> str:
    """`text` with one more item at its end."""
    end = _line_end(text)
    begun = text if not text or text.endswith("\n") else f"{text}{end}"
    return f"{begun}- {entry}{end}"


def replace_entry(text: str, old: Entry, entry: str) -> str:
    """`text` with another entry of the same kind in the place of `old`."""
    marker = old.marker or ("- " if MARKER.match(entry) else "")
    return _put(text, old, [f"{marker}{entry}"])


def remove_entry(text: str, old: Entry) -> str:
    """`text` without `old`. Its neighbours do not grow together."""
    above, below = text.split("\n")[: old.first][-1:], text.split("\n")[old.end :][:1]
    joins = any(map(str.strip, above)) and any(line.strip() and not MARKER.match(line) for line in below)
    return _put(text, old, [""] if joins else [])


def _put(text: str, old: Entry, new: list[str]) -> str:
    lines = text.split("\n")
    bom = "\ufeff" if old.first == 0 and text.startswith("\ufeff") else ""
    carriage = "\r" if lines[old.end - 1].endswith("\r") else ""
    put = "\n".join([*lines[: old.first], *(f"{bom}{line}{carriage}" for line in new), *lines[old.end :]])
    return f"{put}\n" if put.endswith("\r") else put


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
