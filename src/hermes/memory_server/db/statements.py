"""Prepared statements: SQLAlchemy builds and compiles each once per dialect, and the driver runs it.

Running a statement through SQLAlchemy costs several times what the database needs. Rare statements use `tx.execute`."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import BindParameter, ClauseElement, Column, ColumnElement, Insert, Table, bindparam, insert
from sqlalchemy.engine import Dialect

from hermes.memory_server.db.database import Tx

V = TypeVar("V")
MAX_VALUES_PER_STATEMENT = 10_000
"""Values in one `IN` list; SQLite allows 32,766 parameters."""


class PreparedStatement:
    """A statement with named parameters, all of which every call must pass. It has no `IN` with a list."""

    def __init__(self, element: ClauseElement | Callable[[Dialect], ClauseElement]) -> None:
        """Pass a function of the dialect as `element` if SQLAlchemy has no form that all databases accept."""
        self._element = element
        self._compiled: dict[str, _Compiled] = {}

    def rows(self, tx: Tx, **given: Any) -> list[Any]:
        """Return all rows, with their columns as attributes."""
        compiled = self._for(tx)
        return list(compiled.read(_run(tx, compiled, given)))

    def first(self, tx: Tx, **given: Any) -> Any | None:
        compiled = self._for(tx)
        cursor = _run(tx, compiled, given)
        first = next(compiled.read(cursor), None)
        cursor.close()
        return first

    def run(self, tx: Tx, **given: Any) -> int:
        """Execute the statement and return the number of affected rows."""
        return int(_run(tx, self._for(tx), given).rowcount)

    def run_for_id(self, tx: Tx, **given: Any) -> int:
        """Insert a row and return its id, as the driver reports it."""
        return int(_run(tx, self._for(tx), given).lastrowid)

    def run_many(self, tx: Tx, given: Iterable[Mapping[str, Any]]) -> None:
        """Execute the statement once for each set of parameters."""
        compiled = self._for(tx)
        cursor = _driver(tx).cursor()
        cursor.executemany(compiled.text, [compiled.values(values) for values in given])

    def text_for(self, dialect: Dialect) -> str:
        """Return the SQL text for a dialect."""
        return self._compile(dialect).text

    def _for(self, tx: Tx) -> _Compiled:
        name = tx.dialect.name
        found = self._compiled.get(name)
        if found is None:
            found = self._compiled[name] = self._compile(tx.dialect)
        return found

    def _compile(self, dialect: Dialect) -> _Compiled:
        element = self._element
        return _Compiled(element if isinstance(element, ClauseElement) else element(dialect), dialect)


class PreparedForList:
    """A statement with an `IN` list. It runs for a fixed number of values at a time, so that it is compiled once."""

    def __init__(self, build: Callable[[Sequence[BindParameter[Any]]], ClauseElement], at_once: int = 20) -> None:
        """`build` returns the statement for the parameters of its `IN`."""
        self._keys = [f"value{number}" for number in range(at_once)]
        self._statement = PreparedStatement(build([bindparam(key) for key in self._keys]))

    def rows(self, tx: Tx, values: Sequence[Any], **given: Any) -> list[Any]:
        """Return all rows for these values, in any order."""
        found: list[Any] = []
        for start in range(0, len(values), len(self._keys)):
            part = [*values[start : start + len(self._keys)]]
            part += part[-1:] * (len(self._keys) - len(part))
            found += self._statement.rows(tx, **given, **dict(zip(self._keys, part, strict=True)))
        return found


class PreparedInsert:
    """An INSERT of these columns into a table whose key is `id`."""

    def __init__(self, table: Table, *names: str) -> None:
        self._plain = PreparedStatement(inserting(table, *names))
        self._returning = PreparedStatement(inserting(table, *names).returning(table.c.id))

    def add(self, tx: Tx, **given: Any) -> int:
        """Insert a row and return its id."""
        # RETURNING makes an INSERT five times as slow where the driver could tell the id by itself.
        if tx.dialect.name == "sqlite":
            return self._plain.run_for_id(tx, **given)
        return int(self._returning.rows(tx, **given)[0].id)


class _Compiled:
    """A statement compiled for one dialect."""

    def __init__(self, element: ClauseElement, dialect: Dialect) -> None:
        compiled: Any = element.compile(dialect=dialect)
        self.text: str = compiled.string
        self._order: tuple[str, ...] | None = tuple(compiled.positiontup) if compiled.positional else None
        wanted = {name for name, bind in compiled.binds.items() if bind.required}
        self._constants = {name: value for name, value in compiled.params.items() if name not in wanted}
        columns = list(getattr(element, "exported_columns", ()))
        made: Any = namedtuple("Row", [column.key for column in columns])  # type: ignore[misc]
        self._row: Callable[[Iterable[Any]], Any] = partial(tuple.__new__, made) if columns else tuple
        processors = [column.type.result_processor(dialect, None) for column in columns]
        self._converts = tuple((place, convert) for place, convert in enumerate(processors) if convert is not None)

    def values(self, given: Mapping[str, Any]) -> list[Any] | dict[str, Any]:
        """Return the parameters as the driver takes them."""
        constants = self._constants
        if self._order is None:
            return {**constants, **given}
        return [constants[name] if name in constants else given[name] for name in self._order]

    def read(self, cursor: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows of a cursor."""
        return map(self._converted if self._converts else self._row, cursor)

    def _converted(self, values: Iterable[Any]) -> Any:
        row = list(values)
        for place, convert in self._converts:
            row[place] = convert(row[place])
        return self._row(row)


def _run(tx: Tx, compiled: _Compiled, given: Mapping[str, Any]) -> Any:
    cursor = _driver(tx).cursor()
    cursor.execute(compiled.text, compiled.values(given))
    return cursor


def _driver(tx: Tx) -> Any:
    return tx.connection.dbapi_connection


@contextmanager
def pipelined(tx: Tx) -> Iterator[None]:
    """Send the prepared statements of a block without waiting for each, if the database is on a server. Their errors
    may be raised by later ones. Nothing may use SQLAlchemy or the number of affected rows meanwhile."""
    with nullcontext() if tx.dialect.name == "sqlite" else _driver(tx).pipeline():
        yield


def in_parts(values: Sequence[V]) -> Iterator[Sequence[V]]:
    """Yield the values in parts that fit into one `IN` list."""
    return (
        values[start : start + MAX_VALUES_PER_STATEMENT] for start in range(0, len(values), MAX_VALUES_PER_STATEMENT)
    )


def inserting(table: Table, *names: str) -> Insert:
    """Return an INSERT of these columns; the others take their defaults. Without names it has all columns."""
    return insert(table).values({name: bindparam(name) for name in names or table.c.keys()})


def inserting_new(table: Table, *names: str, returning: Column[Any] | None = None) -> Callable[[Dialect], Insert]:
    """Return an INSERT that adds and returns no row if one would violate a unique constraint."""

    def build(dialect: Dialect) -> Insert:
        added = _insert(dialect, table).values({name: bindparam(name) for name in names}).on_conflict_do_nothing()
        whole: Insert = added if returning is None else added.returning(returning)
        return whole

    return build


def upsert(
    tx: Tx, table: Table, keys: Sequence[str], values: Mapping[str, Any], where: ColumnElement[bool] | None = None
) -> None:
    """Insert a row, or update the row with the same keys if it meets the condition."""
    changes = {name: value for name, value in values.items() if name not in keys}
    added = _insert(tx.dialect, table).values(values)
    tx.execute(added.on_conflict_do_update(index_elements=keys, set_=changes, where=where))


def _insert(dialect: Dialect, table: Table) -> Any:
    """Return an INSERT with ON CONFLICT. It imports only the dialect in use, since imports delay every start."""
    if dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as insert_sqlite

        return insert_sqlite(table)
    from sqlalchemy.dialects.postgresql import insert as insert_postgresql

    return insert_postgresql(table)
