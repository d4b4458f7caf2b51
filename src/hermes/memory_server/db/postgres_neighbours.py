"""HNSW indexes of pgvector, one for each large scope, over a column that is filled for such scopes only.

The tables store the same bytes as a folder does. For a large scope a trigger also stores each vector as a `halfvec`. So
an upgrade rewrites no other rows, small scopes cost nothing, and a search in a large scope meets no vectors of
others."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import psycopg
from sqlalchemy import text

from hermes.errors import StoreBusyError
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.neighbours import VectorScope
from hermes.memory_server.db.postgres import CONNECT_SECONDS, SCHEMA
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.embedder import Vector

LIVE = "deleted_at IS NULL AND retired_at IS NULL"
TABLES = {
    "messages": ("message_vectors", "workspace_id", "message_id", "piece", "true"),
    "conclusions": ("conclusions", "collection_id", "id", "0", LIVE),
}
"""For each kind of scope: its table, the columns of the scope's id, a row's id and its piece, and the condition on
rows."""
OWNERS = {"messages": "workspaces", "conclusions": "collections"}
"""Tables with one row per scope."""
HOME = (
    "SELECT n.nspname FROM pg_namespace AS n JOIN pg_extension AS e ON e.extnamespace = n.oid AND e.extname = 'vector'"
)
"""Query for the schema in which pgvector is installed."""
NAME = re.compile("near_(messages|conclusions)_([0-9]+)")
FIND = PreparedStatement(
    text(
        "SELECT home.nspname FROM pg_index AS made JOIN pg_class AS named ON named.oid = made.indexrelid "
        f"JOIN pg_namespace AS own ON own.oid = named.relnamespace AND own.nspname = '{SCHEMA}' "
        "JOIN pg_extension AS extension ON extension.extname = 'vector' "
        "JOIN pg_namespace AS home ON home.oid = extension.extnamespace "
        "WHERE named.relname = :name AND made.indisvalid"
    )
)
SETTINGS = PreparedStatement(
    text(
        "SELECT set_config('hnsw.ef_search', :breadth, true), set_config('hnsw.max_scan_tuples', '200000', true), "
        "set_config('hnsw.iterative_scan', 'relaxed_order', true)"
    )
)
"""An iterative scan continues until it has found the requested number of rows."""
MIN_BREADTH, MAX_BREADTH = 200, 1000
VECTOR_INDEX_LOCK_KEY = 7_402_118_554
"""Advisory lock held while an index is created or dropped. Processes poll for it: `CONCURRENTLY` would wait for
processes that wait for it."""
PREPARE = (
    "SET statement_timeout = 0",
    "SET client_connection_check_interval = '5s'",
    "SET maintenance_work_mem = '256MB'",
)
FILL_BATCH_ROWS = 1000
"""Rows that are filled in one transaction."""
SHORT_LOCK_TIMEOUT = "SET lock_timeout = '3s'"
"""Timeout for statements that lock a table briefly. Others queue behind a waiting statement, so it is retried
instead."""
NO_LOCK_TIMEOUT = "SET lock_timeout = 0"
COLUMN = "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS near {home}.halfvec"
HALVES = """
CREATE OR REPLACE FUNCTION {schema}.halves(vector bytea) RETURNS {home}.halfvec
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    powers CONSTANT float8[] := ARRAY(SELECT 2::float8 ^ (e - 25) FROM generate_series(0, 31) AS e);
    made float8[] := array_fill(0::float8, ARRAY[length(vector) / 2]);
    half int;
BEGIN
    FOR place IN 0 .. length(vector) / 2 - 1 LOOP
        half := get_byte(vector, 2 * place) | (get_byte(vector, 2 * place + 1) << 8);
        made[place + 1] := CASE WHEN half >= 32768 THEN -1 ELSE 1 END * CASE WHEN half & 31744 = 0
            THEN (half & 1023) * powers[2]
            ELSE ((half & 1023) + 1024) * powers[((half >> 10) & 31) + 1] END;
    END LOOP;
    RETURN made::{home}.halfvec;
END $$
"""
"""Function that converts a stored vector, the bytes of half floats, to a `halfvec`."""
KEEP = """
CREATE OR REPLACE FUNCTION {schema}.keep_near() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN NEW.near := {schema}.halves(NEW.vector); RETURN NEW; END $$
"""
TRIGGER = """
CREATE OR REPLACE TRIGGER {name} BEFORE INSERT OR UPDATE OF vector, {column} ON {table}
FOR EACH ROW WHEN (NEW.{column} = {id}) EXECUTE FUNCTION {schema}.keep_near()
"""
PART = """
SELECT max({row}) FROM (
    SELECT {row} FROM {table} WHERE {column} = {id} AND {row} > {after} ORDER BY {row} LIMIT {batch}) AS part
"""
FILL = """
UPDATE {table} SET near = {schema}.halves(vector)
WHERE {column} = {id} AND {row} > {after} AND {row} <= {last} AND near IS NULL
"""
INDEX = """
CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {table}
USING hnsw (({compared}) {home}.{operators}) WHERE {condition}
"""
COMPARED = {
    "messages": ("{home}.binary_quantize(near)::bit({size})", "bit_hamming_ops", "<~>"),
    "conclusions": ("near::{home}.halfvec({size})", "halfvec_cosine_ops", "<=>"),
}
"""Compared expressions, as in a process's memory: the signs of message vectors, and whole conclusion vectors; with the
operator class of the index and the distance expression."""


class PostgresNeighbours:
    """Search in the vector indexes that `index_scope` builds."""

    def covers(self, tx: Tx, scope: VectorScope) -> bool:
        return FIND.first(tx, name=_name(scope)) is not None

    def nearest(self, tx: Tx, scope: VectorScope, vector: Vector, limit: int) -> Sequence[Record]:
        found = FIND.first(tx, name=_name(scope))
        if found is None:
            return []
        SETTINGS.rows(tx, breadth=str(min(max(limit, MIN_BREADTH), MAX_BREADTH)))
        home, (table, _, row, piece, _) = f'"{found[0]}"', TABLES[scope.kind]
        compared, _, distance = COMPARED[scope.kind]
        compared = compared.format(home=home, size=len(vector))
        literal = _signs(vector) if scope.kind == "messages" else _direction(vector)
        # The scope is a literal: the planner uses a partial index only if it can prove its condition.
        query = (
            f"SELECT {row}, {piece} FROM {table} WHERE {_condition(scope)} "
            f"ORDER BY ({compared}) OPERATOR({home}.{distance}) {literal} LIMIT {limit}"
        )
        return tx.exec_driver_sql(query).all()

    def read(self, tx: Tx, scope: VectorScope, ids: Sequence[int]) -> Sequence[Record]:
        table, _, row, piece, _ = TABLES[scope.kind]
        query = f"SELECT {row}, {piece}, vector FROM {table} WHERE {_condition(scope)} AND {row} = ANY(%(ids)s)"
        return tx.exec_driver_sql(query, {"ids": list(ids)}).all()


async def index_scope(url: str, scope: VectorScope | None) -> None:
    """Build the index of a scope if it is missing, without blocking reads or writes, and drop unused indexes. It may
    take minutes. After a cancellation or a crash, the next call starts over.

    It may take minutes. When it is cancelled, or this process ends, the next call begins anew.
    """
    connecting = psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS)
    async with await connecting as connection:
        for setting in PREPARE:
            await connection.execute(setting.encode())
        if await _value(connection, f"SELECT pg_try_advisory_lock({VECTOR_INDEX_LOCK_KEY})"):
            await _drop_unused(connection)
            if scope is not None:
                await _create(connection, scope)
        elif scope is not None:
            raise StoreBusyError("another index of vectors is being made")


async def _create(connection: psycopg.AsyncConnection, scope: VectorScope) -> None:
    table, column, row, *_ = TABLES[scope.kind]
    home = await _value(connection, HOME)
    told: dict[str, object] = {
        "schema": SCHEMA,
        "home": f'"{home}"',
        "name": _name(scope),
        "condition": _condition(scope),
    }
    told |= {"table": f"{SCHEMA}.{table}", "column": column, "row": row, "id": scope.id, "batch": FILL_BATCH_ROWS}
    size = await _value(connection, "SELECT length(vector) / 2 FROM {table} WHERE {condition} LIMIT 1".format(**told))
    if size is None:
        return
    for statement in (SHORT_LOCK_TIMEOUT, COLUMN, HALVES, KEEP, TRIGGER, NO_LOCK_TIMEOUT):
        await connection.execute(statement.format(**told).encode())
    after: object = 0
    while (last := await _value(connection, PART.format(**told, after=after))) is not None:
        await connection.execute(FILL.format(**told, after=after, last=last).encode())
        after = last
    compared, operators, _ = COMPARED[scope.kind]
    told |= {"compared": compared.format(home=told["home"], size=size), "operators": operators}
    await connection.execute(INDEX.format(**told).encode())


async def _drop_unused(connection: psycopg.AsyncConnection) -> None:
    """Drop the indexes of scopes that no longer exist, and unfinished ones."""
    query = (
        "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        f"WHERE relnamespace = '{SCHEMA}'::regnamespace AND relname LIKE 'near%'"
    )
    for name, is_valid in await (await connection.execute(query.encode())).fetchall():
        found = NAME.fullmatch(name)
        if found is None:
            continue
        owner = f"SELECT 1 FROM {SCHEMA}.{OWNERS[found[1]]} WHERE id = {found[2]}"
        is_gone = await _value(connection, owner) is None
        if is_gone or not is_valid:
            await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {SCHEMA}.{name}".encode())
        if is_gone:
            drop = f"DROP TRIGGER IF EXISTS {name} ON {SCHEMA}.{TABLES[found[1]][0]}"
            for statement in (SHORT_LOCK_TIMEOUT, drop, NO_LOCK_TIMEOUT):
                await connection.execute(statement.encode())


async def _value(connection: psycopg.AsyncConnection, query: str) -> object:
    found = await (await connection.execute(query.encode())).fetchone()
    return None if found is None else found[0]


def _name(scope: VectorScope) -> str:
    return f"near_{scope.kind}_{scope.id:d}"


def _condition(scope: VectorScope) -> str:
    _, column, _, _, found = TABLES[scope.kind]
    return f"{column} = {scope.id:d} AND {found}"


def _signs(vector: Vector) -> str:
    return f"B'{''.join('1' if value > 0 else '0' for value in vector.tolist())}'"


def _direction(vector: Vector) -> str:
    length = math.sqrt(float(vector @ vector)) or 1.0
    return f"'[{','.join(f'{value / length:.6f}' for value in vector.tolist())}]'"
