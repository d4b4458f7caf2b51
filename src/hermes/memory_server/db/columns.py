"""Building blocks of tables: the metadata that holds them, and kinds of columns and indexes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, SchemaItem
from sqlalchemy.sql.compiler import DDLCompiler

metadata = MetaData()
Whole = BigInteger().with_variant(Integer(), "sqlite")
"""64-bit integers, since times are microseconds. In SQLite every INTEGER has 64 bits."""


def new_table(name: str, *parts: SchemaItem, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


def key_columns(*names: str) -> list[Column[int]]:
    return [Column(name, Whole, primary_key=True) for name in names]


def reference(name: str, target: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, Whole, ForeignKey(f"{target}.id"), nullable=nullable)


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Return an index of the rows that meet a condition."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), info={"where": where})


@compiles(CreateIndex, "postgresql")
def _create_on_postgresql(creating: CreateIndex, compiler: DDLCompiler, **options: Any) -> str:
    """Add the condition of a partial index. Naming PostgreSQL's option above would import its dialect at every
    start."""
    index = creating.element
    if "where" in index.info:
        index.dialect_options["postgresql"]["where"] = text(index.info["where"])
    return str(compiler.visit_create_index(creating, **options))  # type: ignore[no-untyped-call]


def text_column(name: str, default: str | None = None) -> Column[str]:
    return Column(name, Text, nullable=False, server_default=default)
