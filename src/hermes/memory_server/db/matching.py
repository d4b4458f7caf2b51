"""Conditions on texts and JSON that SQL has no common words for. Each database has its own, or refuses to compile.

A condition is true, false or NULL, as in SQL: a missing key is NULL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Boolean, ColumnElement, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class _Matching(FunctionElement[bool]):
    type = Boolean()


class _HoldsText(_Matching):
    name = "holds_text"
    inherit_cache = True


class _HoldsJson(_Matching):
    name = "holds_json"
    inherit_cache = True


class _ComparesJson(_Matching):
    name = "compares_json"
    inherit_cache = True


class _HoldsAny(_Matching):
    name = "holds_any"
    inherit_cache = True


def holds_text(column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    """Is `part` in the text, whatever the case?"""
    return _HoldsText(column, bindparam(None, part))


def holds_json(column: ColumnElement[Any], pattern: str) -> ColumnElement[bool]:
    """Does the JSON contain the pattern: every key of an object, every item of a list, equal scalars?"""
    return _HoldsJson(column, bindparam(None, pattern))


def compares_json(column: ColumnElement[Any], key: str, op: str, operand: str) -> ColumnElement[bool]:
    """Compare the text of the key's value with the operand, which is JSON; as numbers when the operand is one."""
    return _ComparesJson(column, bindparam(None, key), bindparam(None, op), bindparam(None, operand))


def holds_any(column: ColumnElement[Any], values: Sequence[str]) -> ColumnElement[bool]:
    """Is one of the values in the JSON list?"""
    return _HoldsAny(column, bindparam(None, json.dumps(list(values))))


@compiles(_Matching, "sqlite")
def _in_sqlite(element: _Matching, compiler: SQLCompiler, **kw: Any) -> str:
    """`functions` registers one of the same name."""
    return f"{element.name}({compiler.process(element.clauses, **kw)})"
