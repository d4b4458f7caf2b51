"""Large scopes on PostgreSQL: their vectors stay in the database, and searches find the same as in a file."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import pytest_asyncio
from sqlalchemy import insert

from hermes.errors import StoreBusyError, StoreError
from hermes.memory_server.db import postgres_neighbours, postgres_schema
from hermes.memory_server.db.address import DatabaseAddress
from hermes.memory_server.db.database import Database, JsonMap, Tx
from hermes.memory_server.db.dialects import neighbour_index
from hermes.memory_server.db.neighbours import VectorScope
from hermes.memory_server.db.postgres import PostgresDatabase
from hermes.memory_server.db.schema import open_database, open_postgres
from hermes.memory_server.db.tables import conclusions
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import to_blob
from hermes.memory_server.engine import near_vectors, words
from hermes.memory_server.engine.conclusions import digest, ensure_collection, remove_conclusions
from hermes.memory_server.engine.deletion import delete_session, delete_workspace
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.peers import get_peer
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.ids import new_id
from tests.memory_server.floor import draft, embed, new_index, question, search_messages
from tests.memory_server.inside import serving
from tests.postgres import Postgres
from tests.scale import scale

pytestmark = [pytest.mark.processes, pytest.mark.contract("9.7")]
AT = 1_700_000_000_000_000
MESSAGES = scale(1500, 60_000)
EXACT_ROWS = scale(400, 50_000)
RESULT_LIMIT = 10
UNFINISHED = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'near_messages_1'::regclass"
"""State of an index whose worker was killed while it built the index."""
NEVER = """
CREATE OR REPLACE FUNCTION halves(vector bytea) RETURNS public.halfvec LANGUAGE plpgsql IMMUTABLE STRICT AS
$$ BEGIN RAISE EXCEPTION 'a row is compared that the index should have found'; END $$
"""
MESSAGES_PER_SESSION = 250
"""Messages in one session."""
CHANCE = random.Random(11)
WHO = ["my sister", "the neighbour", "our teacher", "a friend", "the doctor", "my boss", "the baker", "her cat"]
DID = [
    *("bought a new", "lost the old", "painted a small", "repaired the", "sold a rusty", "dreamt of a", "cooked a"),
    *("wrote about the", "carried a", "hid the golden", "forgot a", "photographed the", "inherited the", "broke a"),
]
WHAT = [
    *("bicycle", "piano", "garden", "violin", "suitcase", "telescope", "soup", "novel", "boat", "lamp", "kitchen"),
    *("passport", "camera", "tent", "mirror", "hammer", "necklace", "tractor", "carpet", "umbrella", "chess board"),
    *("wedding cake", "rainforest", "tax form", "train ticket", "guitar", "snowman"),
]
WHERE = ["in Lisbon", "at the sea", "last winter", "near the station", "on a hill", "for the children", "by mistake"]
QUESTIONS = [
    *("Who likes music?", "travelling by rail", "something about cooking dinner", "jewellery", "Where is my bike?"),
    *(
        "photography equipment",
        "a story that somebody wrote",
        "bad weather",
        "furniture",
        "Did anybody lose documents?",
    ),
    *("stars at night", "farm machines", "a celebration with dessert", "board games", "animals", "camping outside"),
]


def sentence() -> str:
    parts = (WHO, DID, WHAT, WHERE)
    return " ".join(CHANCE.choice(part) for part in parts) + f", {CHANCE.choice(WHO)} said."


SENTENCES = [sentence() for _ in range(MESSAGES)]


def fill(tx: Tx) -> None:
    for talk, start in enumerate(range(0, MESSAGES, MESSAGES_PER_SESSION)):
        said = [
            draft(text, f"p{number % 3}") for number, text in enumerate(SENTENCES[start : start + MESSAGES_PER_SESSION])
        ]
        append_messages(tx, "w", f"s{talk % 20}", said, AT)


@pytest_asyncio.fixture(params=["messages", "conclusions"])
async def both(
    request: pytest.FixtureRequest, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Database, PostgresDatabase]]:
    """Open a file and a database with the same large scope, which the database has indexed."""
    monkeypatch.setattr(near_vectors, "EXACT_ROWS", EXACT_ROWS)
    file, database = open_database(tmp_path), open_postgres(address(postgres.create()))
    for opened in (file, database):
        await opened.write(fill if request.param == "messages" else conclude)
    await database.index_vectors(VectorScope(request.param, 1))
    yield file, database
    await file.close()
    await database.close()


def conclude(tx: Tx) -> None:
    append_messages(tx, "w", "s", [draft("Hello.", "ann"), draft("Hello.", "ben")], AT)
    ann, ben, session = get_peer(tx, "w", "ann").id, get_peer(tx, "w", "ben").id, get_session(tx, "w", "s").id
    of = {"workspace_id": 1, "collection_id": ensure_collection(tx, 1, ann, ben), "created_at": AT}
    rows: list[dict[str, Any]] = [
        {"public_id": new_id(), "content": text, "digest": digest(text)} for text in SENTENCES
    ]
    for number, row in enumerate(rows):
        where = {"session_id": session if number % 100 == 0 else None, "vector": to_blob(embed(SENTENCES[number]))}
        rows[number] = of | row | where
    tx.execute(insert(conclusions), rows)


def address(url: str) -> DatabaseAddress:
    return DatabaseAddress.parse(url, "test")


def first_ten(index: VectorIndex, place: SearchArea, filters: JsonMap | None = None) -> Callable[[Tx], list[list[int]]]:
    def find(tx: Tx) -> list[list[int]]:
        asked = [search_messages(tx, index, place, question(text), filters, RESULT_LIMIT) for text in QUESTIONS]
        return [[row.id for row in rows] for rows in asked]

    return find


def agreement(found: Sequence[list[int]], expected: Sequence[list[int]]) -> float:
    """Return the average share of common results among ten."""
    return sum(len({*some} & {*others}) for some, others in zip(found, expected, strict=True)) / len(expected)


@pytest.mark.stress
@pytest.mark.parametrize("both", ["messages"], indirect=True)
async def test_first_ten_of_a_large_workspace_are_those_of_a_file(both: tuple[Database, PostgresDatabase]) -> None:
    file, database = both
    index = new_index()
    await database.write(lambda tx: tx.exec_driver_sql(NEVER))
    await database.read(
        lambda tx: search_messages(tx, index, SearchArea(1), question(QUESTIONS[0]), None, RESULT_LIMIT)
    )
    signed = (await database.read(lambda tx: index.memory_indexes.load(tx, 1))).rows.signed
    assert signed is not None
    assert 0 < signed.sum() < MESSAGES, "vectors are read as far as they are needed"
    found = await database.read(first_ten(index, SearchArea(1)))
    expected = await file.read(first_ten(new_index(), SearchArea(1)))
    assert agreement(found, expected) >= 9


@pytest.mark.parametrize("both", ["messages"], indirect=True)
async def test_small_part_of_a_large_workspace_is_searched_exactly(both: tuple[Database, PostgresDatabase]) -> None:
    parts: list[tuple[SearchArea, JsonMap | None]] = [(SearchArea(1, (3,)), None), (SearchArea(1, (3, 4), 1), None)]
    parts += [(SearchArea(1), {"session_id": "s2"}), (SearchArea(1), {"session_id": "s1", "peer_id": {"ne": "p0"}})]
    for place, filters in parts:
        file, database = [await each.read(first_ten(new_index(), place, filters)) for each in both]
        assert file == database
        assert all(len(ids) == RESULT_LIMIT for ids in database)


@pytest.mark.parametrize("both", ["messages"], indirect=True)
async def test_filter_on_a_large_workspace_leaves_ten(both: tuple[Database, PostgresDatabase]) -> None:
    for place, filters in ((SearchArea(1, None, 2), None), (SearchArea(1), {"peer_id": {"in": ["p1", "p2"]}})):
        file, database = [await each.read(first_ten(new_index(), place, filters)) for each in both]
        assert agreement(database, file) >= 9
        assert all(len(ids) == RESULT_LIMIT for ids in database)


@pytest.mark.parametrize("both", ["messages"], indirect=True)
async def test_index_follows_what_comes_and_goes(both: tuple[Database, PostgresDatabase]) -> None:
    _, database = both
    index = new_index()
    text = "A zeppelin landed behind the opera."

    def nearest(tx: Tx) -> int:
        near = neighbour_index(tx)
        assert near is not None
        return int(near.nearest(tx, VectorScope("messages", 1), embed(text), 1)[0][0])

    def best(tx: Tx) -> str:
        return str(search_messages(tx, index, SearchArea(1), question(text), None, 1)[0].content)

    assert await database.read(best) != text
    async with serving(database) as client:
        new = {"messages": [{"content": text, "peer_id": "p0"}]}
        await client.post("/v3/workspaces/w/sessions/s0/messages", json=new)
        assert await database.read(nearest) == MESSAGES + 1
        assert await database.read(best) == text
        [found] = (await client.post("/v3/workspaces/w/search", json={"query": text, "limit": 1})).json()
        await client.delete(f"/v3/workspaces/w/ext/sessions/s0/messages/{found['id']}")
        assert await database.read(nearest) <= MESSAGES
        assert await database.read(best) != text


@pytest.mark.stress
@pytest.mark.parametrize("both", ["conclusions"], indirect=True)
async def test_conclusions_of_a_large_collection_are_those_of_a_file(both: tuple[Database, PostgresDatabase]) -> None:
    def nearest(index: VectorIndex, sessions: tuple[int, ...] | None) -> Callable[[Tx], list[list[int]]]:
        def find(tx: Tx) -> list[list[int]]:
            asked = [index.nearest_conclusions(tx, 1, embed(q), RESULT_LIMIT, sessions=sessions) for q in QUESTIONS]
            return [[found for found, _ in hits] for hits in asked]

        return find

    index = new_index()
    file, database = await both[0].read(nearest(new_index(), None)), await both[1].read(nearest(index, None))
    assert agreement(database, file) >= 9
    assert not index._matrices, "the vectors stay in the database"
    file, database = [await each.read(nearest(new_index(), (1,))) for each in both]
    assert file == database
    await both[1].write(lambda tx: remove_conclusions(tx, database[0], 1, AT))
    again = await both[1].read(nearest(index, None))
    assert not {*database[0]} & {*again[0]}
    assert len(again[0]) == RESULT_LIMIT


async def test_index_is_made_when_a_search_finds_a_scope_large(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_vectors, "EXACT_ROWS", 40)
    url = postgres.create()
    opened, work = open_postgres(address(url)), open_postgres(address(url))
    await opened.write(lambda tx: append_messages(tx, "w", "s", [draft(text, "p") for text in SENTENCES[:50]], AT))

    async def names(client: httpx.AsyncClient) -> list[str]:
        while (await client.get("/v3/workspaces/w/queue/status")).json()["pending_work_units"]:
            pass
        query = (
            "SELECT indexrelid::regclass::text FROM pg_index WHERE indisvalid AND indexrelid::regclass::text ~ 'near_'"
        )
        async with await psycopg.AsyncConnection.connect(url) as connection:
            return [row[0] for row in await (await connection.execute(query)).fetchall()]

    async with serving(opened, work=work) as client:
        assert await names(client) == []
        await client.post("/v3/workspaces/w/search", json={"query": "piano"})
        while not (found := await names(client)):
            pass
        assert found == ["hermes_memory.near_messages_1"]
        await opened.write(lambda tx: tx.exec_driver_sql(UNFINISHED))
        assert await names(client) == []
        await opened.index_vectors(VectorScope("messages", 1))
        assert await names(client) == found
        await opened.write(lambda tx: delete_session(tx, "w", "s", AT))
        await opened.write(lambda tx: delete_workspace(tx, "w", AT))
        while await names(client):
            pass


async def test_one_index_is_made_at_a_time(postgres: Postgres) -> None:
    url = postgres.create()
    opened = open_postgres(address(url))
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        await other.execute(f"SELECT pg_advisory_lock({postgres_neighbours.VECTOR_INDEX_LOCK_KEY})".encode())
        with pytest.raises(StoreBusyError):
            await opened.index_vectors(VectorScope("messages", 1))
        await opened.index_vectors(None)
    await opened.close()


def test_database_without_pgvector_says_what_to_install(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_schema, "EXTENSION", "no_vector")
    with pytest.raises(StoreError, match=r'no pgvector: .*"no_vector" is not available') as refused:
        open_postgres(address(postgres.create()))
    assert refused.value.hint == postgres_schema.INSTALL_PGVECTOR


def test_old_pgvector_is_refused(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres.create()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    monkeypatch.setattr(postgres_schema, "OLDEST_PGVECTOR", (99, 0))
    with pytest.raises(StoreError, match=r"has pgvector \d") as refused:
        open_postgres(address(url))
    assert refused.value.hint == postgres_schema.UPDATE_PGVECTOR


COUNTING = """
SET search_path = hermes_memory; ANALYZE messages; CREATE SEQUENCE compared;
CREATE OR REPLACE FUNCTION holds_text(content text, part text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE COST 1
AS $$ BEGIN PERFORM nextval('compared'); RETURN false; END $$
"""
"""Counts the messages that are compared; it costs the planner as little as ours, which is written out."""


async def test_unused_word_is_looked_for_in_the_newest_messages_alone(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "MAX_SUBSTRING_ROWS", 80)
    opened = open_postgres(DatabaseAddress.parse(url := postgres.create(), "test"))
    drafts = [draft(f"I said {number}.", "ann") for number in range(400)]
    await opened.write(lambda tx: append_messages(tx, "w", "s", drafts, AT))
    with psycopg.connect(url) as counting:
        counting.execute(COUNTING)

    def search(tx: Tx) -> int:
        assert search_messages(tx, new_index(), SearchArea(1), question("zzqqxx"), None, 10)
        return int(tx.exec_driver_sql("SELECT last_value FROM compared").scalar_one())

    assert await opened.write(search) == 80
    await opened.close()
