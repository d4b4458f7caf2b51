"""AGENTS.md of the current directory, and which of these files the user has trusted.

A file is used only as it was when the user trusted it: the home's `trusted.json` holds a hash of each, keyed by the
real path of its directory.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.cli.output import note, printable
from hermes.errors import HomeError
from hermes.files import NOT_UTF8, locked, read_file, replace_file
from hermes.home import Home
from hermes.types import Json

NAME = "AGENTS.md"
MAX_CHARS = 16_000
"""Longer files are refused: this is their share of the prompt."""
MAX_BYTES = 4 * MAX_CHARS
MAX_TRUSTED = 1000
UNUSED = "It is not used until that is fixed"
CHANGED = "{} has changed since you trusted it, and is not used: `hermes trust` trusts it as it is now."
State = Literal["trusted", "refused", "changed", "unknown"]
TrustAnswer = Literal["yes", "no", "never"]
Ask: TypeAlias = Callable[["ProjectFile", State], TrustAnswer]
"""Asks the user whether to use a new or changed file; `never` holds until it changes."""
REFUSED = "not "
"""Prefix of the hash of a file that the user does not want to be asked about."""


class ProjectFile(Struct, frozen=True):
    """A directory's AGENTS.md as it was read."""

    path: Path
    text: str

    @property
    def digest(self) -> str:
        return sha256(self.text.encode()).hexdigest()


def find_project_file(directory: Path) -> ProjectFile | None:
    """Return a directory's AGENTS.md, or None. Raises HomeError if it is too long, not text, or a link that leads out
    of the directory."""
    try:
        folder = directory.resolve(strict=True)
        path = (folder / NAME).resolve(strict=True)
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:  # RuntimeError: links that point at each other
        raise _unusable(directory / NAME, getattr(error, "strerror", None) or "its links lead nowhere") from error
    if path.parent != folder:
        raise _unusable(folder / NAME, f"it is a link to {path}, outside the directory")
    try:
        text = _read(path).decode()
    except OSError as error:
        raise _unusable(path, error.strerror or "it cannot be read") from error
    except UnicodeDecodeError as error:
        raise _unusable(path, NOT_UTF8) from error
    if len(text) > MAX_CHARS:
        raise _unusable(path, f"it has more than {MAX_CHARS:,} characters")
    return ProjectFile(folder / NAME, text) if text.strip() else None


def _read(path: Path) -> bytes:
    """Read a regular file, up to one byte over the limit. Does not open pipes, or links made meanwhile."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is not a regular file")
        found = file.read(MAX_BYTES + 1)
    if len(found) > MAX_BYTES:
        raise OSError(0, f"it has more than {MAX_CHARS:,} characters")
    return found


def _unusable(path: Path, why: str) -> HomeError:
    return HomeError(f"{path} cannot be used: {why}", hint=UNUSED)


def choose_project_file(home: Home, ask: Ask | None) -> ProjectFile | None:
    """Return the AGENTS.md for sessions begun here: a trusted file, or one trusted now. Without `ask` the user is not
    asked. Prints to standard error whether it is used."""
    try:
        file = find_project_file(Path.cwd())
        if file is None:
            return None
        trusted = TrustedFiles(home)
        state = trusted.state(file)
        if state in ("changed", "unknown") and ask is not None and (answer := ask(file, state)) != "no":
            trusted.keep(file, is_wanted=answer == "yes")
            state = trusted.state(file)
    except HomeError as error:
        note(f"hermes: {printable(error.line())}")
        return None
    except FileNotFoundError:  # the directory is gone
        return None
    if state == "trusted":
        note(f"Using {printable(str(file.path))}.")
    elif state == "changed" and ask is None:
        note(f"hermes: {printable(CHANGED.format(file.path))}")
    return file if state == "trusted" else None


class TrustedFiles:
    """The files that a home's user has trusted, and those not to be asked about."""

    def __init__(self, home: Home) -> None:
        self._file = home.path / "trusted.json"

    def state(self, file: ProjectFile) -> State:
        """Return the user's decision about this version of the file."""
        known = self._read().get(str(file.path.parent))
        if known is None or (known.startswith(REFUSED) and known != f"{REFUSED}{file.digest}"):
            return "unknown"
        return "refused" if known.startswith(REFUSED) else "trusted" if known == file.digest else "changed"

    def keep(self, file: ProjectFile, *, is_wanted: bool) -> None:
        """Store the decision: use the file as it is now, or do not ask until it changes."""
        with locked(self._file):
            kept = {name: known for name, known in self._read().items() if name != str(file.path.parent)}
            newest = dict(list(kept.items())[-(MAX_TRUSTED - 1) :])
            self._write({**newest, str(file.path.parent): f"{'' if is_wanted else REFUSED}{file.digest}"})

    def drop(self, directory: Path) -> bool:
        """Forget the decision about a directory's file. Returns True if there was one."""
        with locked(self._file):
            kept = self._read()
            was = kept.pop(str(directory.resolve()), None) is not None
            if was:
                self._write(kept)
            return was

    def listed(self) -> list[str]:
        """Return the directories with a trusted file, by real path. Raises HomeError if the list is damaged."""
        return sorted(name for name, known in self._read().items() if not known.startswith(REFUSED))

    def _read(self) -> dict[str, str]:
        try:
            found: Json = json.loads(read_file(self._file))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise HomeError(f"cannot read {self._file}", hint="Delete it: you will be asked again") from error
        if not isinstance(found, dict) or not all(isinstance(known, str) for known in found.values()):
            raise HomeError(f"{self._file} is not a list of trusted files", hint="Delete it: you will be asked again")
        return found

    def _write(self, known: dict[str, str]) -> None:
        replace_file(self._file, json.dumps(known, indent=1))
