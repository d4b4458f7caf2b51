"""Input typed at the terminals of a home, as its history file stores it; deleted text is removed from it too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hermes.errors import HomeError
from hermes.files import replacing


def remove_typed(path: Path, goes: Callable[[str], bool]) -> int:
    """Remove the entries for which `goes` is true, and return their number. The file is private.

    An entry is a line with its time, followed by lines that begin with a plus.
    """
    try:
        lines = path.read_bytes().decode("utf-8", "replace").split("\n") if path.exists() else []
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}", hint="What was typed may still be in it") from error
    blocks = list(_blocks(lines))
    kept = [block for block in blocks if not goes(_entry(block))]
    if taken := len(blocks) - len(kept):
        with replacing(path) as file:
            file.write("\n".join(line for block in kept for line in block))
    return taken


def _entry(block: Iterable[str]) -> str:
    return "\n".join(line[1:] for line in block if line.startswith("+")).strip()


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the lines of each entry, with the lines before it."""
    block: list[str] = []
    for line in lines:
        if not line.startswith("+") and block and block[-1].startswith("+"):
            yield block
            block = []
        block.append(line)
    yield block
