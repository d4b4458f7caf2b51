"""The health of a profile: memory provider and server, gateway, queues, model calls, and warnings of the log."""

from __future__ import annotations

import asyncio

from msgspec import to_builtins

from hermes.app import App
from hermes.db import queue_items
from hermes.db.engine import Tx
from hermes.files import check_room
from hermes.gateway.store_watch import STATUS_PART
from hermes.logs import read_warnings
from hermes.memory.active import ActiveProvider
from hermes.owner.server import read_server
from hermes.owner.status import describe_status
from hermes.store import inbox
from hermes.store.store import Store
from hermes.store.usage import usage_by_model
from hermes.types import Json

MAX_MODELS, MAX_WARNINGS = 20, 20


async def read_health(app: App, store: Store, provider: ActiveProvider | None) -> dict[str, Json]:
    """Return the contents of `hermes memory status` and `hermes gateway status`, the tokens of each model, and the
    latest warnings. Starts nothing."""
    memory, server, warnings = await asyncio.gather(
        describe_status(app, store, provider),
        asyncio.to_thread(read_server, app.home),
        asyncio.to_thread(read_warnings, app.home.log_file, MAX_WARNINGS),
    )
    gateway = await store.read(lambda tx: read_gateway(app, tx))
    models = await store.read(lambda tx: usage_by_model(tx, MAX_MODELS))
    return {
        "memory": memory,
        "server": server,
        "gateway": gateway,
        "models": to_builtins(models),
        "warnings": to_builtins(warnings),
    }


def read_gateway(app: App, tx: Tx) -> dict[str, Json]:
    """Return whether a gateway runs, the state of its parts, and the counts of all queues."""
    now = app.clock.now()
    running = inbox.running_gateway(tx, now=now)
    # One that was killed has left behind how its parts were.
    parts = [to_builtins(part) for part in [*(inbox.read_status(tx) if running else []), *_store_status(app)]]
    queues = {name: to_builtins(queue_items.stats(tx, name, now=now)) for name in queue_items.queues(tx)}
    return {"running": running, "parts": parts, "queues": queues}


def _store_status(app: App) -> list[inbox.PartStatus]:
    """Return a failing part if the home cannot be written to: the gateway could not record that itself."""
    try:
        check_room(app.home.path)
    except OSError as error:
        detail = f"nothing can be written in {app.home.path} ({error.strerror})"
        return [inbox.PartStatus(STATUS_PART, "failing", detail, app.clock.now())]
    return []
