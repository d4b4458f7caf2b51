"""The application in this process, on a database that the test holds in its hands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from hermes.clock import Clock, SystemClock
from hermes.memory_server.api.app import create_app
from hermes.memory_server.api.server import Options
from hermes.memory_server.db.database import Database
from tests.memory_server.floor import EMBEDDER


@asynccontextmanager
async def serving(database: Database, clock: Clock | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application over this database, which is closed at the end. Background work waits."""
    app = create_app(
        lambda: database, clock=clock or SystemClock(), options=Options(), embedder=EMBEDDER, open_for_work=None
    )
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client
