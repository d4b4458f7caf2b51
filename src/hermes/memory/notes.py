"""The built-in notes: `MEMORY.md` (what the agent should know) and `USER.md` (who the person is).

Notes are text files that people edit by hand and that an existing Hermes also reads and writes; each keeps its format
(`entries.py`). A change takes the lock that all processes use, an existing Hermes included, checks the size limit, and
replaces the file atomically. The previous version is kept beside it.

The owner, each guest and each group have separate notes; those of guests and groups are in `memories/people/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from hermes.errors import HomeError, NoteError
from hermes.fence import strip_fences
from hermes.files import locked, read_file, replace_file
from hermes.memory.entries import SEPARATOR, NoteLines, add_entry, find_entries, remove_entry, replace_entry
from hermes.memory.likeness import says_the_same
from hermes.scope import OWNER, Scope

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
        raise HomeError(f"cannot read {path}: it is not UTF-8 text", hint=UTF8_HINT) from error


def _shown(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").strip()


def _one_line(text: str) -> str:
    entry = " ".join(strip_fences(text).split())
    entry = entry.removeprefix("- ") if entry != "-" else ""
    if not entry.strip(SEPARATOR):
        raise NoteError("an entry cannot be empty", hint="Say what to note")
    return entry
