"""A deleted text is never sent to a second embedder, even before it is removed from the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import func, select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.db.sqlite import SqliteFile
from hermes.memory_server.db.tables import finer_again, finer_vectors, messages
from hermes.memory_server.embedder import EmbeddingEndpoint
from hermes.memory_server.engine.deletion import (
    ROWS_PER_TRANSACTION,
    delete_session,
    delete_workspace,
    purge_session,
    remove_part,
)
from hermes.memory_server.engine.embedding import Refinement, refining
from hermes.memory_server.engine.finer import count_behind
from hermes.memory_server.engine.job_kinds import MessageRemovalJob
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.peer_deletion import delete_peer
from hermes.memory_server.engine.sessions import get_session
from tests.memory_server.embeddings import Endpoint as There
from tests.memory_server.embeddings import endpoint, in_favour_of
from tests.memory_server.floor import draft
from tests.memory_server.sdk import eventually

NOW = 1_700_000_000_000_000
pytestmark = pytest.mark.contract("9.14")


def say(tx: Tx, workspace: str, session: str, peer: str, *texts: str) -> None:
    append_messages(tx, workspace, session, [draft(text, peer) for text in texts], NOW)


async def embed_all(database: SqliteFile, there: There) -> None:
    """Run a second embedder until it has finished."""
    refinement = Refinement(EmbeddingEndpoint(there.url, "some"))

    async def behind() -> int | None:
        space = refinement.space
        return None if space is None else await database.read(lambda tx: count_behind(tx, space))

    async with refining(database, refinement):
        await eventually(behind, lambda left: left == 0)


def asked(there: There) -> str:
    return "\n".join(text for texts in there.asked for text in texts)


async def count(database: SqliteFile) -> tuple[int, int]:
    """Return the numbers of messages that have a vector, and that must be embedded again."""
    return await database.read(
        lambda tx: (
            int(tx.execute(select(func.count(finer_vectors.c.message_id.distinct()))).scalar_one()),
            int(tx.execute(select(func.count()).select_from(finer_again)).scalar_one()),
        )
    )


@pytest.mark.parametrize("gone", ["session", "workspace", "peer"])
async def test_text_that_is_deleted_and_not_yet_removed_goes_to_no_second_embedder(tmp_path: Path, gone: str) -> None:
    database = open_database(tmp_path)

    def fill(tx: Tx) -> None:
        say(tx, "w", "kept", "ann", "I keep bees.")
        say(tx, "w", "kept", "eve", "A secret." if gone == "peer" else "I keep none.")
        say(tx, "w", "kept", "ann", "They make honey.")
        for place, name in (("w", "session"), ("v", "workspace")):
            say(tx, place, "talk", "ann", "A secret." if gone == name else "I bake bread.", "And more.")

    def forget(tx: Tx) -> None:
        if gone == "peer":
            delete_peer(tx, "w", "eve", NOW)
        else:
            delete_session(tx, "w" if gone == "session" else "v", "talk", NOW)
            if gone == "workspace":
                delete_workspace(tx, "v", NOW)

    await database.write(fill)
    await database.write(forget)
    with endpoint(in_favour_of("walnut")) as there:
        await embed_all(database, there)
    assert "secret" not in asked(there)
    assert all(text in asked(there) for text in ("I keep bees.", "They make honey.", "I bake bread."))
    assert await count(database) == (6 if gone == "peer" else 5, 0)
    await database.close()


async def test_session_that_is_being_removed_is_not_embedded_again(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(
        lambda tx: say(tx, "w", "talk", "ann", *(f"Number {n}." for n in range(ROWS_PER_TRANSACTION + 10)))
    )
    with endpoint(in_favour_of("walnut")) as there:
        await embed_all(database, there)
        session = await database.read(lambda tx: get_session(tx, "w", "talk").id)
        await database.write(lambda tx: remove_part(tx, MessageRemovalJob(session, 1, 1), NOW))
        assert await count(database) == (ROWS_PER_TRANSACTION + 8, 1), "the second was embedded together with the first"
        await database.write(lambda tx: delete_session(tx, "w", "talk", NOW))
        there.asked.clear()
        await embed_all(database, there)
        assert "Number" not in asked(there), "it waited when the session was deleted"
        await database.write(lambda tx: purge_session(tx, session, NOW))
        assert await database.read(lambda tx: tx.execute(select(func.count(messages.c.id))).scalar_one()) == 9
        assert await count(database) == (8, 0)
    await database.close()
