"""The built-in notes: `MEMORY.md` (what the agent should know) and `USER.md` (who the person is).

Files are text that people edit by hand and that an existing Hermes reads and writes too: each keeps its shape
(`entries.py`). A change is made under the lock that all processes take, an existing Hermes as well, checked against the
size limit, and replaces the file in one step; what stood there before it is kept beside it.

Each person has their own: these are the owner's, a guest's and a group's are in `memories/people/`, a folder each.
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
from hermes.memory.entries import PARTING, NoteLines, add_entry, find_entries, remove_entry, replace_entry
from hermes.memory.likeness import says_the_same
from hermes.scope import OWNER, Scope

NotesFile = Literal["memory", "user"]
FILES: dict[NotesFile, str] = {"memory": "MEMORY.md", "user": "USER.md"}
BEFORE = ".before"
"""The end of the name under which the last version of a note is kept."""
UTF8_HINT = "Save it as UTF-8, or move it away; until then nothing is written to it"


class Change(Struct, frozen=True):
    target: NotesFile
    action: Literal["add", "replace", "remove"]
    text: str
    used: int
    limit: int
    is_new: bool = True
    """False when the note says so already and stayed as it was: `text` is how."""


class NotesRead(Struct, frozen=True):
    """The notes that can be read, when each was changed last, and what is wrong with the others."""

    texts: dict[NotesFile, str]
    problems: tuple[HomeError, ...] = ()
    changed: dict[NotesFile, float] = field(default_factory=dict)


class Notes:
    """The notes that one scope has in a home: the owner's, or a guest's or group's own beside them."""

    def __init__(self, home: Path, scope: Scope, limits: dict[NotesFile, int]) -> None:
        self.scope = scope
        self._home = home
        self._limits = limits

    def read(self, target: NotesFile) -> str:
        """The whole note; "" when nothing was noted yet."""
        return _shown(_text_of(self.path(target)))

    def read_all(self) -> NotesRead:
        """Every note; one that cannot be read is a problem to tell, and keeps nobody from talking."""
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
                with suppress(OSError):  # gone since it was read: a date is not worth a turn
                    if texts[target]:
                        changed[target] = path.stat().st_mtime
        return NotesRead(texts, tuple(problems), changed)

    def add(self, target: NotesFile, text: str) -> Change:
        """Add one entry. One that says the same, in this note or another, is left as it is, so that a repeated call has
        no second effect."""
        return self.replace(target, "", text)

    def replace(self, target: NotesFile, old: str, text: str) -> Change:
        """Replace the one entry that contains `old`; its kind and its neighbours stay. Where none does it is added."""
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
        """Remove the one entry that contains `old`."""
        with self._locked(target) as present:
            place = _find(target, find_entries(present), old)
            if place is None:
                raise NoteError(f"{FILES[target]}: no entry contains {old!r}", hint="Quote a part of one")
            return self._write(target, "remove", place.text, present, remove_entry(present, place))

    def entries(self, target: NotesFile) -> list[str]:
        """The entries of a note, as they can be corrected and forgotten; headings are none."""
        return [
            entry.text for entry in find_entries(_text_of(self.path(target))) if "#" not in entry.marker and entry.text
        ]

    def check_correct(self, target: NotesFile, old: str, text: str) -> str:
        """How an entry that is exactly `old` would be noted after `correct`; what that would raise is raised now."""
        entry, present = _one_line(text), _text_of(self.path(target))
        self._check_size(target, present, replace_entry(present, _find_exact(target, present, old), entry))
        return entry

    def correct(self, target: NotesFile, old: str, text: str) -> Change:
        """Let the entry that is exactly `old` say something else."""
        entry = _one_line(text)
        with self._locked(target) as present:
            place = _find_exact(target, present, old)
            return self._write(target, "replace", entry, present, replace_entry(present, place, entry))

    def check_forget(self, target: NotesFile, old: str) -> None:
        """Raise what `forget` would raise now."""
        _find_exact(target, _text_of(self.path(target)), old)

    def forget(self, target: NotesFile, old: str) -> Change:
        """Remove the entry that is exactly `old`, also from the version that is kept beside the note."""
        with self._locked(target) as present:
            whole = remove_entry(present, _find_exact(target, present, old))
            change = self._write(target, "remove", old, present, whole)
            path = self.path(target)
            replace_file(path.with_name(f"{path.name}{BEFORE}"), whole)
            return change

    def _noted_elsewhere(self, target: NotesFile, entry: str) -> Change | None:
        """The entry of another note that says the same. A note that cannot be read says nothing."""
        for other in FILES.keys() - {target}:
            with suppress(HomeError):  # it is told when the notes are read for a turn
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
            replace_file(path.with_name(f"{path.name}{BEFORE}"), present)
        replace_file(path, whole)
        return Change(target, action, text, used, self._limits[target])

    def _check_size(self, target: NotesFile, present: str, whole: str) -> int:
        """The characters of a changed note. Refuses one that is too long, unless it becomes shorter."""
        limit, used = self._limits[target], len(_shown(whole))
        if used > limit and used >= len(_shown(present)):
            raise NoteError(
                f"{FILES[target]} would have {used} characters, but {limit} is the limit",
                hint="Shorten or remove other entries first",
            )
        return used

    def path(self, target: NotesFile) -> Path:
        """The owner's in `memories/`, or in the home itself where an older version put it; others have folders."""
        folder = self._home / "memories"
        if self.scope != OWNER:
            return folder / "people" / self.scope.name / FILES[target]
        usual, older = folder / FILES[target], self._home / FILES[target]
        return older if older.exists() and not usual.exists() else usual

    @contextmanager
    def _locked(self, target: NotesFile) -> Iterator[str]:
        """The file to the letter, while no other process changes it."""
        with locked(self.path(target)):
            yield _text_of(self.path(target))


def _find(target: NotesFile, entries: Sequence[NoteLines], old: str) -> NoteLines | None:
    """The one entry that contains `old`, in this case or another; None when none does."""
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
        raise NoteError(f"{FILES[target]} has changed: this entry is not there any more", hint="List the notes again")
    return found


def _text_of(path: Path) -> str:
    """The file to the letter; "" when it is not there."""
    try:
        return read_file(path).decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}", hint="Mend it or move it away") from error
    except UnicodeDecodeError as error:
        raise HomeError(f"cannot read {path}: it is not UTF-8 text", hint=UTF8_HINT) from error


def _shown(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").strip()


def _one_line(text: str) -> str:
    entry = " ".join(strip_fences(text).split())
    entry = entry.removeprefix("- ") if entry != "-" else ""
    if not entry.strip(PARTING):
        raise NoteError("an entry cannot be empty", hint="Say what to note")
    return entry
