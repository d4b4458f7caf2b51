"""Pages of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, func, select

from hermes.memory_server.db.database import Tx


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page to return. `reverse` reverses the order."""

    number: int = 1
    size: int = 50
    reverse: bool = False

    @property
    def offset(self) -> int:
        return (self.number - 1) * self.size


@dataclass(frozen=True, slots=True)
class Paged:
    """The rows of one page, and the total number of rows."""

    rows: list[Row[Any]]
    total: int
    page: PageRequest

    @property
    def pages(self) -> int:
        return -(-self.total // self.page.size)


def fetch_page(tx: Tx, query: Select[Any], order: tuple[Any, ...], page: PageRequest) -> Paged:
    """Return the page of `query` in `order`, which is ascending columns."""
    total = tx.execute(select(func.count()).select_from(query.order_by(None).subquery())).scalar_one()
    directed = [column.desc() for column in order] if page.reverse else list(order)
    rows = tx.execute(query.order_by(*directed).limit(page.size).offset(min(page.offset, total))).all()
    return Paged(list(rows), int(total), page)
