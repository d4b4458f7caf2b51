"""The filter language of all lists and searches, translated into SQL conditions.

filter := { key: condition, …, "AND": [filter …], "OR": […], "NOT": […] }      keys are ANDed
condition := scalar | null | "*" | [scalar …] | { operator: operand, … }

`"*"` matches everything, `in: []` nothing. `ne` and `NOT` keep rows whose value is NULL. If a row has several values
(`Field.among`), one match is enough; `ne` then means that none of them equals the operand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sqlalchemy import ColumnElement, True_, and_, false, func, not_, or_, true

from hermes.memory_server import limits, times
from hermes.memory_server.db.database import JsonMap
from hermes.memory_server.db.matching import ORDERED, compares_json, holds_any, holds_json, holds_text
from hermes.memory_server.faults import Invalid

FieldKind = Literal["text", "integer", "time", "boolean", "json", "ids"]
"""`json` is an object, `ids` a JSON list of ids."""
Condition = ColumnElement[bool]
OPERATORS = ("gte", "lte", "gt", "lt", "ne", "in", "contains", "icontains")


@dataclass(frozen=True, slots=True)
class Field:
    """A key of the language: its column, and the type of its values."""

    column: ColumnElement[Any]
    kind: FieldKind = "text"
    allowed: frozenset[str] = field(default_factory=frozenset)
    among: Callable[[Condition], Condition] | None = None
    """For rows with several values: turns a condition on one value into a condition on the row."""


FilterFields = Mapping[str, Field]


def build_filter(given: JsonMap | None, fields: FilterFields) -> Condition:
    """Return the condition of a filter. Raise Invalid with the reason if it has no meaning."""
    if not given:
        return true()
    if _count(given) > limits.MAX_FILTER_CONDITIONS:
        raise Invalid(f"A filter can have at most {limits.MAX_FILTER_CONDITIONS} conditions")
    return _build(given, fields, depth=0)


def _count(given: Any) -> int:
    """Return the number of conditions; 50 values of a list count as one, because a list becomes one condition."""
    if isinstance(given, Mapping):
        return sum(_count(value) for value in given.values())
    if isinstance(given, list) and any(isinstance(item, Mapping) for item in given):
        return sum(_count(item) for item in given)
    return 1 + (len(given) if isinstance(given, list) else 0) // 50


def _build(given: Any, fields: FilterFields, depth: int) -> Condition:
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
    return _all(parts)


def _combine(word: str, value: Any, fields: FilterFields, depth: int) -> Condition:
    if not isinstance(value, list):
        raise Invalid(f"{word} takes a list of filters, not {_show(value)}")
    parts = [_build(item, fields, depth + 1) for item in value]
    if word == "AND":
        return _all(parts)
    if word == "OR":
        return or_(false(), *parts) if parts else true()
    # A condition that is NULL is not true, so that its negation keeps the row.
    return _all([not_(func.coalesce(part, false())) for part in parts])


def _all(parts: Sequence[Condition]) -> Condition:
    """Return the conjunction of the conditions; `true()` itself if none restricts anything."""
    telling = [part for part in parts if not isinstance(part, True_)]
    return and_(*telling) if telling else true()


def _condition(field: Field, key: str, value: Any) -> Condition:
    if value == "*":
        return true()
    if field.among is not None:
        return _condition_among(field, key, value)
    if value is None:
        return field.column.is_(None)
    if field.kind == "ids" and not isinstance(value, Mapping):
        return _holds(field, key, "contains", value)
    if field.kind == "json":
        return _json_object(field, key, value)
    if isinstance(value, list):
        return _one_of(field, key, value)
    if isinstance(value, Mapping):
        return _all([_operator(field, key, op, operand) for op, operand in value.items()])
    equal: Condition = field.column == _operand(field, key, value)
    return equal


def _condition_among(field: Field, key: str, value: Any) -> Condition:
    """Return the condition that some value of the row matches; with `ne`, that no value equals the operand."""
    some = field.among or (lambda condition: condition)
    one = replace(field, among=None)
    if value is None:
        return not_(some(true()))
    parts: list[Condition] = []
    rest = value
    if isinstance(value, Mapping):
        rest = {op: operand for op, operand in value.items() if op != "ne"}
        if (unwanted := value.get("ne", "*")) is None:
            parts.append(some(true()))
        elif unwanted != "*":
            parts.append(not_(some(field.column == _operand(one, key, unwanted))))
    fits = _condition(one, key, rest)
    return _all([*parts, fits if isinstance(fits, True_) else some(fits)])


def _operator(field: Field, key: str, op: str, operand: Any) -> Condition:
    _check_operator(key, op, operand)
    if operand == "*":
        return true()
    if operand is None:
        return field.column.is_not(None)
    if (field.kind == "json" and op != "contains") or (field.kind == "ids" and op not in ("contains", "in")):
        raise Invalid(f"'{op}' does not work on '{key}'")
    if op == "ne":
        return field.column.is_distinct_from(_operand(field, key, operand))
    if op == "in":
        return _one_of(field, key, operand)
    if op in ("contains", "icontains"):
        return _holds(field, key, op, operand)
    if field.kind == "boolean":
        raise Invalid(f"'{op}' does not work on '{key}'")
    compared: Condition = ORDERED[op](field.column, _operand(field, key, operand))
    return compared


def _check_operator(key: str, op: str, operand: Any) -> None:
    if op not in OPERATORS:
        raise Invalid(f"Unknown operator '{op}' on '{key}': use one of {', '.join(OPERATORS)}")
    if op != "ne" and operand is None:
        raise Invalid(f"'{op}' on '{key}' cannot compare with null")


def _holds(field: Field, key: str, op: str, operand: Any) -> Condition:
    if field.kind == "ids":
        wanted = [_text(key, item) for item in (operand if isinstance(operand, list) else [operand])]
        return true() if "*" in wanted else holds_json(field.column, _dump(wanted))
    if field.kind == "json":
        _checked(key, operand, isinstance(operand, (Mapping, list)), "an object")
        return holds_json(field.column, _dump(operand))
    if field.kind != "text" or not isinstance(operand, str):
        raise Invalid(f"'{op}' on '{key}' works only with a text field and a text")
    return holds_text(field.column, operand)


def _one_of(field: Field, key: str, values: Any) -> Condition:
    if not isinstance(values, list):
        raise Invalid(f"'in' on '{key}' takes a list, not {_show(values)}")
    if "*" in values:
        return true()
    if len(values) > limits.SESSIONS_PER_RECALL:
        raise Invalid(f"'in' on '{key}' takes at most {limits.SESSIONS_PER_RECALL} values")
    if field.kind == "ids":
        return holds_any(field.column, [_text(key, value) for value in values])
    return field.column.in_([_operand(field, key, value) for value in values])


def _operand(field: Field, key: str, value: Any) -> Any:
    """Return the value as the column stores it. Raise Invalid for a value of another type."""
    if field.kind == "boolean":
        return _checked(key, value, isinstance(value, bool), "true or false")
    if field.kind == "integer":
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return _checked(key, value, number and abs(value) <= limits.MAX_INTEGER, "a number")
    if field.kind == "time":
        return times.parse(_checked(key, value, isinstance(value, str), "a date"))
    text = _text(key, value)
    if field.allowed:
        _checked(key, value, text in field.allowed, " or ".join(sorted(field.allowed)))
    return text


def _text(key: str, value: Any) -> str:
    return str(_checked(key, value, isinstance(value, str), "text"))


def _checked(key: str, value: Any, good: bool, wanted: str) -> Any:
    if not good:
        raise Invalid(f"'{key}' is compared with {wanted}, not with {_show(value)}")
    return value


def _json_object(field: Field, key: str, value: Any) -> Condition:
    """Return the condition for each key: containment, or operators on the key's text."""
    if not isinstance(value, Mapping):
        raise Invalid(f"'{key}' is compared with an object, not with {_show(value)}")
    parts: list[Condition] = []
    for name, wanted in value.items():
        if name in OPERATORS:
            parts.append(_operator(field, key, name, wanted))
        elif isinstance(wanted, Mapping) and any(op in OPERATORS for op in wanted):
            parts += [_json_operator(field, name, op, operand) for op, operand in wanted.items()]
        elif wanted != "*":
            parts.append(holds_json(field.column, _dump({name: wanted})))
    return _all(parts)


def _json_operator(field: Field, name: str, op: str, operand: Any) -> Condition:
    _check_operator(name, op, operand)
    if operand == "*" or (isinstance(operand, list) and op == "in" and "*" in operand):
        return true()
    if op == "in" and not isinstance(operand, list):
        raise Invalid(f"'in' on '{name}' takes a list, not {_show(operand)}")
    if op in ORDERED and not isinstance(operand, (str, int, float, bool)):
        raise Invalid(f"'{op}' on '{name}' compares with a scalar, not with {_show(operand)}")
    return compares_json(field.column, name, op, _dump(operand))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _show(value: Any) -> str:
    text = _dump(value)
    return text if len(text) <= 60 else text[:57] + "..."
