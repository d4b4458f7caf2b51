"""Statements of every request: SQLAlchemy builds and compiles one once per kind of database, and the driver runs it.

Running a statement through SQLAlchemy costs several times what the database needs for it. What is run once in a while
stays with `tx.execute`.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import BindParameter, ClauseElement, Column, ColumnElement, Insert, Table, bindparam, insert
from sqlalchemy.engine import Dialect

from hermes.memory_server.db.database import Tx

V = TypeVar("V")
MAX_VALUES_PER_STATEMENT = 10_000
"""How many values a statement names; SQLite knows up to 32,766."""


class PreparedStatement:
    """A statement with named parameters, all of which are given each time. It has no `IN` with a list."""

    def __init__(self, element: ClauseElement | Callable[[Dialect], ClauseElement]) -> None:
        """`element` is a function where SQLAlchemy has no words that every kind of database understands."""
        self._element = element
        self._compiled: dict[str, _Compiled] = {}

    def rows(self, tx: Tx, **given: Any) -> list[Any]:
        """All rows; their columns are attributes."""
        compiled = self._for(tx)
        return list(compiled.read(_run(tx, compiled, given)))

    def first(self, tx: Tx, **given: Any) -> Any | None:
        compiled = self._for(tx)
        cursor = _run(tx, compiled, given)
        first = next(compiled.read(cursor), None)
        cursor.close()
        return first

    def run(self, tx: Tx, **given: Any) -> int:
        """Change something: how many rows there were."""
        return int(_run(tx, self._for(tx), given).rowcount)

    def run_for_id(self, tx: Tx, **given: Any) -> int:
        """Add a row: the id that the driver tells."""
        return int(_run(tx, self._for(tx), given).lastrowid)

    def run_many(self, tx: Tx, given: Iterable[Mapping[str, Any]]) -> None:
        """Once for each set of parameters."""
        compiled = self._for(tx)
        cursor = _driver(tx).cursor()
        cursor.executemany(compiled.text, [compiled.values(values) for values in given])

    def text_for(self, dialect: Dialect) -> str:
        """The statement in the words of a kind of database."""
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
    """A statement with an `IN` of values, run for a fixed number of them at a time so that it is compiled once."""

    def __init__(self, build: Callable[[Sequence[BindParameter[Any]]], ClauseElement], at_once: int = 20) -> None:
        """`build` makes the statement from the parameters of its `IN`."""
        self._keys = [f"value{number}" for number in range(at_once)]
        self._statement = PreparedStatement(build([bindparam(key) for key in self._keys]))

    def rows(self, tx: Tx, values: Sequence[Any], **given: Any) -> list[Any]:
        """All rows for these values, in no order."""
        found: list[Any] = []
        for start in range(0, len(values), len(self._keys)):
            part = [*values[start : start + len(self._keys)]]
            part += part[-1:] * (len(self._keys) - len(part))
            found += self._statement.rows(tx, **given, **dict(zip(self._keys, part, strict=True)))
        return found


class PreparedInsert:
    """An INSERT of these columns of a table that counts its rows by `id`."""

    def __init__(self, table: Table, *names: str) -> None:
        self._plain = PreparedStatement(inserting(table, *names))
        self._returning = PreparedStatement(inserting(table, *names).returning(table.c.id))

    def add(self, tx: Tx, **given: Any) -> int:
        """Add a row: its id."""
        # RETURNING makes an INSERT five times as slow where the driver could tell the id by itself.
        if tx.dialect.name == "sqlite":
            return self._plain.run_for_id(tx, **given)
        return int(self._returning.rows(tx, **given)[0].id)


class _Compiled:
    """A statement in the words of one kind of database."""

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
        """The parameters as the driver takes them."""
        constants = self._constants
        if self._order is None:
            return {**constants, **given}
        return [constants[name] if name in constants else given[name] for name in self._order]

    def read(self, cursor: Iterable[Any]) -> Iterator[Any]:
        """The rows of a cursor."""
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


def in_parts(values: Sequence[V]) -> Iterator[Sequence[V]]:
    """Values for an `IN`, as many at a time as a statement may name."""
    return (
        values[start : start + MAX_VALUES_PER_STATEMENT] for start in range(0, len(values), MAX_VALUES_PER_STATEMENT)
    )


def inserting(table: Table, *names: str) -> Insert:
    """An INSERT of these columns, the others taking their defaults; of all columns when none is named."""
    return insert(table).values({name: bindparam(name) for name in names or table.c.keys()})


def inserting_new(table: Table, *names: str, returning: Column[Any] | None = None) -> Callable[[Dialect], Insert]:
    """As `inserting`, but where the row would break a rule of uniqueness, none is added and none returned."""

    def build(dialect: Dialect) -> Insert:
        added = _insert(dialect, table).values({name: bindparam(name) for name in names}).on_conflict_do_nothing()
        whole: Insert = added if returning is None else added.returning(returning)
        return whole

    return build


def upsert(
    tx: Tx, table: Table, keys: Sequence[str], values: Mapping[str, Any], where: ColumnElement[bool] | None = None
) -> None:
    """Add a row, or change the one with the same keys where it fits the condition."""
    changes = {name: value for name, value in values.items() if name not in keys}
    added = _insert(tx.dialect, table).values(values)
    tx.execute(added.on_conflict_do_update(index_elements=keys, set_=changes, where=where))


def _insert(dialect: Dialect, table: Table) -> Any:
    """An INSERT that knows ON CONFLICT. Only what the database needs is loaded: it takes a moment of every start."""
    if dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as insert_sqlite

        return insert_sqlite(table)
    from sqlalchemy.dialects.postgresql import insert as insert_postgresql

    return insert_postgresql(table)
