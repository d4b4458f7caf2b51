"""The filter language of every list and search, as conditions on the tables.

    filter := { key: condition, …, "AND": [filter …], "OR": […], "NOT": […] }      the keys are ANDed
    condition := scalar | null | "*" | [scalar …] | { operator: operand, … }

`"*"` matches everything, `in: []` nothing. `ne` and `NOT` keep rows whose value is NULL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import ColumnElement, and_, false, func, not_, or_, true

from hermes.memory_server import limits, times
from hermes.memory_server.faults import Invalid

Kind = Literal["text", "integer", "time", "boolean", "json"]
Condition = ColumnElement[bool]
OPERATORS = ("gte", "lte", "gt", "lt", "ne", "in", "contains", "icontains")
ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "gte": lambda column, value: column >= value,
    "lte": lambda column, value: column <= value,
    "gt": lambda column, value: column > value,
    "lt": lambda column, value: column < value,
}


@dataclass(frozen=True, slots=True)
class Field:
    """A key of the language: the column behind it and what it holds."""

    column: ColumnElement[Any]
    kind: Kind = "text"
    allowed: frozenset[str] = field(default_factory=frozenset)


Fields = Mapping[str, Field]


def build_filter(given: Mapping[str, Any] | None, fields: Fields) -> Condition:
    """The condition that a filter means. Refused with a reason when it means nothing."""
    return _build(given, fields, depth=1) if given else true()


def _build(given: Any, fields: Fields, depth: int) -> Condition:
    if not isinstance(given, Mapping):
        raise Invalid(f"a filter must be an object, not {_show(given)}")
    if depth > limits.FILTER_DEPTH:
        raise Invalid(f"Filter nesting exceeds maximum depth of {limits.FILTER_DEPTH}")
    parts: list[Condition] = []
    for key, value in given.items():
        if key in ("AND", "OR", "NOT"):
            parts.append(_combine(key, value, fields, depth))
        elif key not in fields:
            raise Invalid(f"Unknown filter key '{key}': use one of {', '.join(fields)}")
        else:
            parts.append(_condition(fields[key], key, value))
    return and_(true(), *parts)


def _combine(word: str, value: Any, fields: Fields, depth: int) -> Condition:
    if not isinstance(value, list):
        raise Invalid(f"{word} takes a list of filters, not {_show(value)}")
    parts = [_build(item, fields, depth + 1) for item in value]
    if word == "AND":
        return and_(true(), *parts)
    if word == "OR":
        return or_(false(), *parts) if parts else true()
    # A condition that is NULL is not true, so that its negation keeps the row.
    return and_(true(), *(not_(func.coalesce(part, false())) for part in parts))


def _condition(field: Field, key: str, value: Any) -> Condition:
    if value == "*":
        return true()
    if field.kind == "json" and isinstance(value, Mapping):
        return _json_object(field, key, value)
    if value is None:
        return field.column.is_(None)
    if isinstance(value, list):
        return _one_of(field, key, value)
    if isinstance(value, Mapping):
        return and_(true(), *(_operator(field, key, op, operand) for op, operand in value.items()))
    equal: Condition = field.column == _operand(field, key, value)
    return equal


def _operator(field: Field, key: str, op: str, operand: Any) -> Condition:
    if op not in OPERATORS:
        raise Invalid(f"Unknown operator '{op}' on '{key}': use one of {', '.join(OPERATORS)}")
    if operand == "*":
        return true()
    if op == "ne":
        if operand is None:
            return field.column.is_not(None)
        return field.column.is_distinct_from(_operand(field, key, operand))
    if operand is None:
        raise Invalid(f"'{op}' on '{key}' cannot compare with null")
    if op == "in":
        return _one_of(field, key, operand)
    if op in ("contains", "icontains"):
        return _holds(field, key, op, operand)
    if field.kind in ("json", "boolean"):
        raise Invalid(f"'{op}' does not work on '{key}'")
    compared: Condition = ORDERED[op](field.column, _operand(field, key, operand))
    return compared


def _holds(field: Field, key: str, op: str, operand: Any) -> Condition:
    if field.kind == "json":
        return func.json_holds(field.column, _dump([operand] if isinstance(operand, str) else operand)) == 1
    if field.kind != "text" or not isinstance(operand, str):
        raise Invalid(f"'{op}' on '{key}' looks for text in text")
    return func.text_holds(field.column, operand) == 1


def _one_of(field: Field, key: str, values: Any) -> Condition:
    if not isinstance(values, list):
        raise Invalid(f"'in' on '{key}' takes a list, not {_show(values)}")
    if "*" in values:
        return true()
    if len(values) > limits.SESSIONS_PER_RECALL:
        raise Invalid(f"'in' on '{key}' takes at most {limits.SESSIONS_PER_RECALL} values")
    return field.column.in_([_operand(field, key, value) for value in values])


def _operand(field: Field, key: str, value: Any) -> Any:
    """The value as the column holds it; a value of another type is refused."""
    if field.kind == "json":
        return _dump(value)
    if field.kind == "boolean":
        return _checked(key, value, isinstance(value, bool), "true or false")
    if field.kind == "integer":
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= limits.LARGEST_INTEGER
        return _checked(key, value, whole, "a whole number")
    text = _checked(key, value, isinstance(value, str), "text" if field.kind == "text" else "a date")
    if field.kind == "time":
        return times.parse(text)
    if field.allowed:
        _checked(key, value, text in field.allowed, " or ".join(sorted(field.allowed)))
    return text


def _checked(key: str, value: Any, good: bool, wanted: str) -> Any:
    if not good:
        raise Invalid(f"'{key}' is compared with {wanted}, not with {_show(value)}")
    return value


def _json_object(field: Field, key: str, value: Mapping[str, Any]) -> Condition:
    """Per key: containment, or operators on the key's text."""
    parts: list[Condition] = []
    for name, wanted in value.items():
        if name in OPERATORS:
            parts.append(_operator(field, key, name, wanted))
        elif isinstance(wanted, Mapping) and wanted and all(op in OPERATORS for op in wanted):
            parts += [_json_operator(field, name, op, operand) for op, operand in wanted.items()]
        elif wanted != "*":
            parts.append(func.json_holds(field.column, _dump({name: wanted})) == 1)
    return and_(true(), *parts)


def _json_operator(field: Field, name: str, op: str, operand: Any) -> Condition:
    if operand == "*":
        return true()
    if op != "ne" and operand is None:
        raise Invalid(f"'{op}' on '{name}' cannot compare with null")
    if op == "in" and not isinstance(operand, list):
        raise Invalid(f"'in' on '{name}' takes a list, not {_show(operand)}")
    if op in ORDERED and not isinstance(operand, (str, int, float, bool)):
        raise Invalid(f"'{op}' on '{name}' compares with a scalar, not with {_show(operand)}")
    return func.json_compare(field.column, name, op, _dump(operand)) == 1


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _show(value: Any) -> str:
    text = _dump(value)
    return text if len(text) <= 60 else text[:57] + "..."


def session_allowlist(given: Mapping[str, Any] | None) -> Sequence[str] | None:
    """The sessions that recall is limited to; None for no limit. Recall takes `session_id` alone."""
    if given is None or given == {}:
        return None
    if set(given) != {"session_id"}:
        raise Invalid("filters here take session_id alone")
    value = given["session_id"]
    if isinstance(value, Mapping):
        if set(value) != {"in"}:
            raise Invalid("session_id takes an id, a list of ids or {'in': [ids]}")
        value = value["in"]
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Invalid("session_id takes an id, a list of ids or {'in': [ids]}")
    return checked_names(names)


def checked_names(names: Sequence[str]) -> Sequence[str]:
    """Session ids that can be ids, not too many of them."""
    if len(names) > limits.SESSIONS_PER_RECALL:
        raise Invalid(f"at most {limits.SESSIONS_PER_RECALL} sessions can be named")
    for name in names:
        if not name or not all(c.isascii() and (c.isalnum() or c in "_-") for c in name):
            raise Invalid(f"'{name}' is not a session id")
    return names
