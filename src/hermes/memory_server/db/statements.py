"""Statements of every request: SQLAlchemy builds and compiles one once, and the driver runs it.

Running a statement through SQLAlchemy costs several times what SQLite needs for it. What is run once in a while stays
with `tx.execute`.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import ClauseElement, Insert, Select, Table, bindparam, insert

from hermes.memory_server.db.engine import Tx, driver

Convert = Callable[[Any], Any]


class Prepared:
    """A statement with named parameters, all of which are given each time. It has no `IN` with a list."""

    def __init__(self, element: ClauseElement) -> None:
        self._element = element
        self._text = ""
        self._order: tuple[str, ...] = ()
        self._constants: Mapping[str, Any] = {}
        self._row: Callable[[Iterable[Any]], Any] = tuple
        self._converts: tuple[tuple[int, Convert], ...] = ()

    def rows(self, tx: Tx, **given: Any) -> list[Any]:
        """All rows; their columns are attributes."""
        return list(self._read(tx, given))

    def first(self, tx: Tx, **given: Any) -> Any | None:
        """The first row, or None."""
        return next(self._read(tx, given), None)

    def run(self, tx: Tx, **given: Any) -> int:
        """Change something: how many rows there were."""
        return int(self._cursor(tx, given).rowcount)

    def insert(self, tx: Tx, **given: Any) -> int:
        """Add a row: its id."""
        return int(self._cursor(tx, given).lastrowid or 0)

    def run_many(self, tx: Tx, given: Iterable[Mapping[str, Any]]) -> None:
        """Once for each set of parameters."""
        if not self._text:
            self._compile(tx)
        driver(tx).executemany(self._text, [self._values(values) for values in given])

    def _read(self, tx: Tx, given: Mapping[str, Any]) -> Iterator[Any]:
        cursor = self._cursor(tx, given)
        if not self._converts:
            return map(self._row, cursor)
        return map(self._converted, cursor)

    def _converted(self, values: Iterable[Any]) -> Any:
        row = list(values)
        for place, convert in self._converts:
            row[place] = convert(row[place])
        return self._row(row)

    def _cursor(self, tx: Tx, given: Mapping[str, Any]) -> Any:
        if not self._text:
            self._compile(tx)
        return driver(tx).execute(self._text, self._values(given))

    def _values(self, given: Mapping[str, Any]) -> list[Any]:
        constants = self._constants
        return [constants[name] if name in constants else given[name] for name in self._order]

    def _compile(self, tx: Tx) -> None:
        compiled: Any = self._element.compile(dialect=tx.dialect)
        if isinstance(self._element, Select):
            columns = list(self._element.selected_columns)
            made: Any = namedtuple("Row", [column.key for column in columns])  # type: ignore[misc]
            self._row = made._make
            processors = [column.type.result_processor(tx.dialect, None) for column in columns]
            self._converts = tuple((place, convert) for place, convert in enumerate(processors) if convert is not None)
        self._order = tuple(compiled.positiontup)
        wanted = {name for name, bind in compiled.binds.items() if bind.required}
        self._constants = {name: value for name, value in compiled.params.items() if name not in wanted}
        self._text = compiled.string  # last: another thread takes a statement with a text for ready


def inserting(table: Table, *names: str) -> Insert:
    """An INSERT of these columns, the others taking their defaults; of all columns when none is named."""
    return insert(table).values({name: bindparam(name) for name in names or table.c.keys()})
