"""Both ends of a move, and the memory that is moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select

from hermes.clock import SystemClock
from hermes.memory_server.db import moving
from hermes.memory_server.db.address import DatabaseAddress
from hermes.memory_server.db.database import Database
from hermes.memory_server.db.move_places import FolderPlace, MovePlace, PostgresPlace
from hermes.memory_server.db.moving import DATA, move, undo
from hermes.memory_server.db.schema import open_database, open_postgres
from hermes.memory_server.engine.worker import JobWorker
from tests.memory_server.floor import EMBEDDER
from tests.memory_server.inside import serving
from tests.postgres import Postgres

TEXTS = ["I live in Porto.", "日本語のテキスト", "Ann's Café ' \\ \t\n %s {x}", "I own a boat.", "emoji 🎉", "x" * 9000]


def quietly(*_: object) -> None:
    """Report nothing."""


class Ends:
    """Both ends of a move, created anew for each simulated process."""

    def __init__(self, kind: str, folder: Path, postgres: Postgres) -> None:
        self.kind, self.folder, self.url = kind, folder, postgres.create()
        self.address = DatabaseAddress.parse(self.url, "test")

    def pair(self) -> tuple[MovePlace, MovePlace]:
        """Return the source and the target."""
        if self.kind == "folder":
            return FolderPlace(self.folder), PostgresPlace(self.address)
        return PostgresPlace(self.address), FolderPlace(self.folder)

    def open_source(self) -> Database:
        return self._open(self.kind)

    def open_target(self) -> Database:
        return self._open("folder" if self.kind == "postgres" else "postgres")

    def _open(self, kind: str) -> Database:
        return open_database(self.folder) if kind == "folder" else open_postgres(self.address)

    def move(self, tell: Callable[..., None] = quietly) -> moving.MoveReport:
        with closing(*self.pair()) as (source, target):
            return move(source, target, tell)

    def undo(self) -> moving.MoveReport:
        with closing(*self.pair()) as (source, target):
            return undo(source, target)


@contextmanager
def closing(*ends: MovePlace) -> Iterator[tuple[MovePlace, ...]]:
    try:
        yield ends
    finally:
        for end in ends:
            end.close()


async def fill(opened: Database) -> None:
    worker = JobWorker(opened, SystemClock(), EMBEDDER)
    async with serving(opened) as client:
        for session in ("one", "two", "gone"):
            said = [{"content": text, "peer_id": "ann", "metadata": {"n": 1.5}} for text in TEXTS]
            path = f"/v3/workspaces/w/sessions/{session}/messages"
            answer = await client.post(path, json={"messages": said}, headers={"Idempotency-Key": session})
            assert answer.status_code == 201, answer.text
        while await worker.work_once():
            pass
        listed = (await client.post("/v3/workspaces/w/conclusions/list", json={})).json()["items"]
        boat = next(item for item in listed if "boat" in item["content"])
        assert (await client.delete(f"/v3/workspaces/w/conclusions/{boat['id']}")).is_success
        assert (await client.delete("/v3/workspaces/w/sessions/gone")).is_success
        while await worker.work_once():
            pass
        await client.put("/v3/workspaces/w/peers/ann/card", json={"peer_card": ["Ann lives in Porto."]})


def read_all(place: MovePlace) -> dict[str, list[tuple[Any, ...]]]:
    with place.memory() as tx:
        return {
            table.name: [tuple(row) for row in tx.execute(select(table).order_by(*table.primary_key)).all()]
            for table in DATA
        }
