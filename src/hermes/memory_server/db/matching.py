"""Conditions on texts and JSON that have no common SQL form: they call functions which each database provides
(`functions`). As in SQL, a condition is true, false or NULL; a missing key yields NULL.

Metadata is also stored as hashes, which an index can find: one hash, a "fact", for each value with the path of keys
that leads to it. A document that contains a pattern (`holds_json`) has all facts of the pattern. The reverse need not
be true."""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Boolean, ColumnElement, case, false, func, null, or_

ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "gte": operator.ge,
    "lte": operator.le,
    "gt": operator.gt,
    "lt": operator.lt,
}
MAX_FACTS = 64
"""Facts that are stored of one document."""
PLAIN = re.compile(r"[ !#-\[\]-~]{1,100}")
"""Texts that JSON does not escape."""
MAX_PREFILTER_TEXTS = 4
"""Texts of a pattern that are searched in a document before it is parsed."""
OVERFLOW_FACT = 0
"""The only fact of a document with more values: it may contain any pattern."""


def facts_of(document: str) -> Sequence[int]:
    """Return the facts to store for a JSON text."""
    if document == "{}":
        return ()
    found = sorted({*pattern_facts(json.loads(document))})
    return found if len(found) <= MAX_FACTS else (OVERFLOW_FACT,)


def pattern_facts(value: Any) -> list[int]:
    """Return the facts that a document needs to contain this value; empty if it needs none."""
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


def holds_text(column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    """Return the condition that the text contains `part`, in any case."""
    return func.holds_text(column, part, type_=Boolean())


def holds_json(column: ColumnElement[Any], pattern: str) -> ColumnElement[bool]:
    """Return the condition that the JSON contains the pattern: all keys of an object, all items of a list, equal
    scalars."""
    leaves = _leaves(json.loads(pattern), ())
    texts = [text for path, leaf in leaves for text in (*path, leaf) if isinstance(text, str)]
    return _where_mentioned(column, texts, func.holds_json(column, pattern, type_=Boolean()), false())


def compares_json(column: ColumnElement[Any], key: str, op: str, operand: str) -> ColumnElement[bool]:
    """Return the condition that compares a key's value with the operand, which is JSON; numerically if that is a
    number."""
    compares = func.compares_json(column, key, op, operand, type_=Boolean())
    return compares if op == "ne" else _where_mentioned(column, [key], compares, null())


def _where_mentioned(
    column: ColumnElement[Any], texts: Iterable[str], holds: ColumnElement[bool], otherwise: ColumnElement[Any]
) -> ColumnElement[bool]:
    """Return the condition `holds`, evaluated only for documents that contain these texts, else `otherwise`.

    SQLite finds a text ten times as fast as Python parses a document.
    """
    plain = [f'"{text}"' for text in dict.fromkeys(texts) if PLAIN.fullmatch(text)][:MAX_PREFILTER_TEXTS]
    if not plain:
        return holds
    return case((or_(*(func.instr(column, text) == 0 for text in plain)), otherwise), else_=holds)


def holds_any(column: ColumnElement[Any], values: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition that the JSON list contains one of the values."""
    return func.holds_any(column, json.dumps(list(values)), type_=Boolean())
