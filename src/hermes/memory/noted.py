"""Notes in which words stand that are to be forgotten: a person's to edit, and known to every turn until then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from hermes.files import read_file
from hermes.home import Home
from hermes.memory.notes import FILES, Notes
from hermes.memory.values import Wording
from hermes.scope import OWNER


def find_noted(home: Home, wording: Wording) -> list[str]:
    """In words, which notes hold it or could not be looked at: the owner's by name, those of guests and groups by how
    many they are."""
    own = Notes(home.path, OWNER, {})
    found = [
        f"{path} {why}: what stands there stays known until you edit it"
        for path, why in _look([*map(own.path, FILES), home.soul_file], wording)
    ]
    people = home.path / "memories" / "people"
    theirs = [path for path, _ in _look((one for name in FILES.values() for one in people.glob(f"*/{name}")), wording)]
    if theirs:
        count = "1 note" if len(theirs) == 1 else f"{len(theirs):,} notes"
        found.append(f"{count} of guests and groups in {people} may hold it, such as {theirs[0].relative_to(people)}")
    return found


def _look(paths: Iterable[Path], wording: Wording) -> Iterator[tuple[Path, str]]:
    for path in paths:
        try:
            text = read_file(path).decode("utf-8-sig", "replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            yield path, f"may hold it and cannot be read ({error.strerror})"
        else:
            if wording.is_in(text):
                yield path, "holds it"
