"""Conditions on texts and JSON that SQL has no common words for: functions that a database has to have (`functions`).

A condition is true, false or NULL, as in SQL: a missing key is NULL. Metadata is kept as hashes too, which an index can
find: one hash, a "fact", for each value together with the keys that lead to it. A document that contains a pattern
(`holds_json`) has all facts of the pattern. The reverse need not be true.
"""

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
"""How many facts of one document are kept."""
PLAIN = re.compile(r"[ !#-\[\]-~]{1,100}")
"""A text that stands in JSON as it is."""
MAX_PREFILTER_TEXTS = 4
"""How many texts of a pattern are looked for in a document before it is parsed."""
OVERFLOW_FACT = 0
"""The single fact of a document with too many values: it may contain any pattern."""


def facts_of(document: str) -> Sequence[int]:
    """The facts to keep of a JSON text."""
    if document == "{}":
        return ()
    found = sorted({*pattern_facts(json.loads(document))})
    return found if len(found) <= MAX_FACTS else (OVERFLOW_FACT,)


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


def holds_text(column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    """Is `part` in the text, whatever the case?"""
    return func.holds_text(column, part, type_=Boolean())


def holds_json(column: ColumnElement[Any], pattern: str) -> ColumnElement[bool]:
    """Does the JSON contain the pattern: every key of an object, every item of a list, equal scalars?"""
    leaves = _leaves(json.loads(pattern), ())
    texts = [text for path, leaf in leaves for text in (*path, leaf) if isinstance(text, str)]
    return _where_mentioned(column, texts, func.holds_json(column, pattern, type_=Boolean()), false())


def compares_json(column: ColumnElement[Any], key: str, op: str, operand: str) -> ColumnElement[bool]:
    """Compare the text of the key's value with the operand, which is JSON; as numbers when the operand is one."""
    compares = func.compares_json(column, key, op, operand, type_=Boolean())
    return compares if op == "ne" else _where_mentioned(column, [key], compares, null())


def _where_mentioned(
    column: ColumnElement[Any], texts: Iterable[str], holds: ColumnElement[bool], otherwise: ColumnElement[Any]
) -> ColumnElement[bool]:
    """Return the condition `holds`, whose function is called only for documents in which these texts stand.

    SQLite finds a text ten times as fast as Python parses a document.
    """
    plain = [f'"{text}"' for text in dict.fromkeys(texts) if PLAIN.fullmatch(text)][:MAX_PREFILTER_TEXTS]
    if not plain:
        return holds
    return case((or_(*(func.instr(column, text) == 0 for text in plain)), otherwise), else_=holds)


def holds_any(column: ColumnElement[Any], values: Sequence[str]) -> ColumnElement[bool]:
    """Is one of the values in the JSON list?"""
    return func.holds_any(column, json.dumps(list(values)), type_=Boolean())
