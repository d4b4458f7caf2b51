"""The application in this process, over a database that the test has opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from hermes.clock import Clock, SystemClock
from hermes.memory_server.api.app import create_app
from hermes.memory_server.api.life import Life
from hermes.memory_server.api.server import Options
from hermes.memory_server.db.database import Database
from hermes.memory_server.embedder import Embedder
from hermes.memory_server.engine.webhooks import WebhookDelivery
from tests.memory_server.floor import EMBEDDER


def inward(secret: str = "") -> WebhookDelivery:
    """Return webhook delivery that resolves every host name to this machine."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    return WebhookDelivery(secret, may_reach=lambda _address: True, resolve=resolve)


@asynccontextmanager
async def serving(
    database: Database,
    clock: Clock | None = None,
    *,
    work: Database | None = None,
    options: Options | None = None,
    life: Life | None = None,
    finer: Embedder | None = None,
) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of an application over this database. Background work runs only if `work` is given."""
    app = create_app(
        lambda: database,
        clock=clock or SystemClock(),
        options=options or Options(),
        embedder=EMBEDDER,
        open_for_work=None if work is None else lambda: work,
        life=life,
        finer=finer,
    )
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client
