"""The built-in notes: `MEMORY.md` (what the agent should know) and `USER.md` (who the person is).

Notes are text files that people edit by hand and that an existing Hermes also reads and writes; each keeps its format
(`entries.py`). A change takes the lock that all processes use, an existing Hermes included, checks the size limit, and
replaces the file atomically. The previous version is kept beside it.

The owner, each guest and each group have separate notes; those of guests and groups are in `memories/people/`.

The entries of a note, in either of its two formats.

    sections   entries of any length, separated by a line `§`: written by an existing Hermes, and by us in new notes
    Markdown   list items, headings and paragraphs, as people write them by hand

    text ──find_entries──> entries ──add · replace · remove──> text in the same format, all other lines unchanged

Pure functions on the file's exact text: line ends, blank lines and indents are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from hermes.errors import HomeError, NoteError
from hermes.fence import strip_fences
from hermes.files import NOT_UTF8, locked, read_file, replace_file
from hermes.memory.likeness import says_the_same
from hermes.scope import OWNER, Scope

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


NotesFile = Literal["memory", "user"]
FILES: dict[NotesFile, str] = {"memory": "MEMORY.md", "user": "USER.md"}
BACKUP_SUFFIX = ".before"
"""The suffix of a note's previous version."""
UTF8_HINT = "Save it as UTF-8, or move it away; until then nothing is written to it"


class Change(Struct, frozen=True):
    target: NotesFile
    action: Literal["add", "replace", "remove"]
    text: str
    used: int
    limit: int
    is_new: bool = True
    """False if the note already contained such an entry, which is then `text`."""


class NotesRead(Struct, frozen=True):
    """The readable notes with the times of their last change, and the problems of the others."""

    texts: dict[NotesFile, str]
    problems: tuple[HomeError, ...] = ()
    changed: dict[NotesFile, float] = field(default_factory=dict)


class Notes:
    """The notes of one scope in a home: of the owner, a guest or a group."""

    def __init__(self, home: Path, scope: Scope, limits: dict[NotesFile, int]) -> None:
        self.scope = scope
        self._home = home
        self._limits = limits

    def read(self, target: NotesFile) -> str:
        """Return a note's text; "" if it does not exist."""
        return _shown(_text_of(self.path(target)))

    def read_all(self) -> NotesRead:
        """Return all notes. An unreadable note becomes a problem in the result and stops nobody from talking."""
        texts: dict[NotesFile, str] = {}
        changed: dict[NotesFile, float] = {}
        problems: list[HomeError] = []
        for target in FILES:
            path = self.path(target)
            try:
                texts[target] = _shown(_text_of(path))
            except HomeError as error:
                problems.append(error)
            else:
                with suppress(OSError):  # deleted since it was read: only the date is missing
                    if texts[target]:
                        changed[target] = path.stat().st_mtime
        return NotesRead(texts, tuple(problems), changed)

    def add(self, target: NotesFile, text: str) -> Change:
        """Add an entry. If this or another note already says the same, nothing changes, so repeated calls are
        harmless."""
        return self.replace(target, "", text)

    def replace(self, target: NotesFile, old: str, text: str) -> Change:
        """Replace the only entry that contains `old`, keeping its kind and neighbours. Without such an entry, add
        one."""
        entry = _one_line(text)
        with self._locked(target) as present:
            entries = find_entries(present)
            place = _find(target, entries, old) if old.strip() else None
            same = next((there for there in entries if says_the_same(there.text, entry)), None)
            if same is not None and place in (None, same):
                limit, used = self._limits[target], len(_shown(present))
                return Change(target, "add", same.text.removeprefix("- "), used, limit, is_new=False)
            if place is None:
                elsewhere = self._noted_elsewhere(target, entry)
                return elsewhere or self._write(target, "add", entry, present, add_entry(present, entry))
            return self._write(target, "replace", entry, present, replace_entry(present, place, entry))

    def remove(self, target: NotesFile, old: str) -> Change:
        """Remove the only entry that contains `old`."""
        with self._locked(target) as present:
            place = _find(target, find_entries(present), old)
            if place is None:
                raise NoteError(f"{FILES[target]}: no entry contains {old!r}", hint="Quote a part of one")
            return self._write(target, "remove", place.text, present, remove_entry(present, place))

    def entries(self, target: NotesFile) -> list[str]:
        """Return the entries of a note that can be corrected and forgotten, so without headings."""
        return [
            entry.text for entry in find_entries(_text_of(self.path(target))) if "#" not in entry.marker and entry.text
        ]

    def check_correct(self, target: NotesFile, old: str, text: str) -> str:
        """Return the text that `correct` would store, raising any error that it would raise."""
        entry, present = _one_line(text), _text_of(self.path(target))
        self._check_size(target, present, replace_entry(present, _find_exact(target, present, old), entry))
        return entry

    def correct(self, target: NotesFile, old: str, text: str) -> Change:
        """Replace the entry whose text is exactly `old`."""
        entry = _one_line(text)
        with self._locked(target) as present:
            place = _find_exact(target, present, old)
            return self._write(target, "replace", entry, present, replace_entry(present, place, entry))

    def check_forget(self, target: NotesFile, old: str) -> None:
        """Raise any error that `forget` would raise."""
        _find_exact(target, _text_of(self.path(target)), old)

    def forget(self, target: NotesFile, old: str) -> Change:
        """Remove the entry whose text is exactly `old`, also from the previous version of the note."""
        with self._locked(target) as present:
            whole = remove_entry(present, _find_exact(target, present, old))
            change = self._write(target, "remove", old, present, whole)
            path = self.path(target)
            replace_file(path.with_name(f"{path.name}{BACKUP_SUFFIX}"), whole)
            return change

    def _noted_elsewhere(self, target: NotesFile, entry: str) -> Change | None:
        """Return an entry of another note that says the same. Unreadable notes are skipped."""
        for other in FILES.keys() - {target}:
            with suppress(HomeError):  # reported when a turn reads the notes
                whole = _text_of(self.path(other))
                for there in find_entries(whole):
                    if says_the_same(there.text, entry):
                        text, used = there.text.removeprefix("- "), len(_shown(whole))
                        return Change(other, "add", text, used, self._limits[other], is_new=False)
        return None

    def _write(
        self, target: NotesFile, action: Literal["add", "replace", "remove"], text: str, present: str, whole: str
    ) -> Change:
        used = self._check_size(target, present, whole)
        path = self.path(target)
        if present:
            replace_file(path.with_name(f"{path.name}{BACKUP_SUFFIX}"), present)
        replace_file(path, whole)
        return Change(target, action, text, used, self._limits[target])

    def _check_size(self, target: NotesFile, present: str, whole: str) -> int:
        """Return the length of a changed note. Raises NoteError if it is too long, unless it became shorter."""
        limit, used = self._limits[target], len(_shown(whole))
        if used > limit and used >= len(_shown(present)):
            raise NoteError(
                f"{FILES[target]} would have {used} characters, but {limit} is the limit",
                hint="Shorten or remove other entries first",
            )
        return used

    def path(self, target: NotesFile) -> Path:
        """Return a note's path. The owner's is in `memories/`, or in the home itself if an older version put it
        there."""
        folder = self._home / "memories"
        if self.scope != OWNER:
            return folder / "people" / self.scope.name / FILES[target]
        usual, older = folder / FILES[target], self._home / FILES[target]
        return older if older.exists() and not usual.exists() else usual

    @contextmanager
    def _locked(self, target: NotesFile) -> Iterator[str]:
        """Lock the note against other processes and yield its exact text."""
        with locked(self.path(target)):
            yield _text_of(self.path(target))


def _find(target: NotesFile, entries: Sequence[NoteLines], old: str) -> NoteLines | None:
    """Return the only entry that contains `old`, preferring exact case, or None. Raises NoteError if several do."""
    wanted = " ".join(old.split())
    for form in (str, str.casefold):
        places = [entry for entry in entries if wanted and form(wanted) in form(" ".join(entry.text.split()))]
        exact = [entry for entry in places if form(entry.text) == form(wanted)]
        if len(exact or places) == 1:
            return (exact or places)[0]
        if places:
            raise NoteError(
                f"{FILES[target]}: {len(places)} entries contain {old!r}", hint="Quote a part that only one entry has"
            )
    return None


def _find_exact(target: NotesFile, present: str, old: str) -> NoteLines:
    found = next((entry for entry in find_entries(present) if entry.text == old), None)
    if found is None:
        raise NoteError(f"{FILES[target]} has changed: this entry no longer exists", hint="List the notes again")
    return found


def _text_of(path: Path) -> str:
    """Return a file's exact text; "" if it does not exist."""
    try:
        return read_file(path).decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}", hint="Repair the file or move it away") from error
    except UnicodeDecodeError as error:
        raise HomeError(f"cannot read {path}: {NOT_UTF8}", hint=UTF8_HINT) from error


def _shown(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").strip()


def _one_line(text: str) -> str:
    entry = " ".join(strip_fences(text).split())
    entry = entry.removeprefix("- ") if entry != "-" else ""
    if not entry.strip(SEPARATOR):
        raise NoteError("an entry cannot be empty", hint="Say what to note")
    return entry
