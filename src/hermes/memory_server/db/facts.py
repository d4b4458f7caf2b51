"""Metadata as hashes that an index can find: one hash, a "fact", for each value together with the keys that lead to it.

A document that contains a pattern (`matching.holds_json`) has all facts of the pattern. The reverse need not be true.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

FACTS = 64
"""How many facts of one document are kept."""
MANY = 0
"""The single fact of a document with too many values: it may contain any pattern."""


def facts_of(document: str) -> Sequence[int]:
    """The facts to keep of a JSON text."""
    if document == "{}":
        return ()
    found = sorted({*pattern_facts(json.loads(document))})
    return found if len(found) <= FACTS else (MANY,)


def pattern_facts(value: Any) -> list[int]:
    """The facts that a document needs to hold this; none when it needs none."""
    return [_number(path, leaf) for path, leaf in _leaves(value, ())]


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _leaves(inside, (*path, key))
    elif isinstance(value, list):
        for inside in value:
            yield from _leaves(inside, path)
    else:
        yield path, value


def _number(path: tuple[str, ...], leaf: Any) -> int:
    if isinstance(leaf, float) and leaf.is_integer():
        leaf = int(leaf)  # 1.0 and 1 are equal
    said = json.dumps([*path, leaf]).encode()
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest()) >> 1 or 1
