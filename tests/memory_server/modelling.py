"""A memory folder with a model behind it: a scripted endpoint on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select

from hermes.clock import Clock, SystemClock
from hermes.memory_server.db.database import Database
from hermes.memory_server.db.tables import model_calls
from hermes.memory_server.engine.workspaces import ensure_workspace
from hermes.memory_server.model.answer import ModelAnswer
from hermes.memory_server.model.door import ModelDoor
from hermes.memory_server.model.memory_model import MemoryModel
from hermes.memory_server.model.settings import FILE, ModelSettings, to_json
from tests.llm.loopback import LoopbackServer

SPACE = "club"
QUESTION = [{"role": "user", "content": "Which line?"}]
SCHEMA = {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]}


def write_model(folder: Path, **given: Any) -> None:
    """Write the folder's model settings as `hermes memory model` does."""
    folder.mkdir(exist_ok=True, parents=True)
    settings = ModelSettings(**{"source": "own", "name": "loop-1", "model_class": "compose", "window": 8192, **given})
    (folder / FILE).touch(0o600)
    (folder / FILE).write_text(to_json(settings), encoding="utf-8")


async def workspace_id(database: Database, name: str = SPACE) -> int:
    found, _ = await database.write(lambda tx: ensure_workspace(tx, name, 0))
    return int(found.id)


@asynccontextmanager
async def door_to(
    database: Database, server: LoopbackServer, clock: Clock | None = None, **given: Any
) -> AsyncIterator[ModelDoor]:
    """Open a `ModelDoor` whose folder uses the server's model."""
    assert database.folder is not None
    write_model(database.folder, url=server.base_url, **given)
    door = ModelDoor(database, clock or SystemClock())
    try:
        yield door
    finally:
        await door.close()


async def model_of(door: ModelDoor, database: Database, name: str = SPACE) -> MemoryModel:
    found = await door.of(await workspace_id(database, name))
    assert found is not None, door.file.problem
    return found


async def ask(model: MemoryModel, **given: Any) -> ModelAnswer:
    """Ask one question with default bounds."""
    bounds = {"max_tokens": 100, "deadline_seconds": 30.0, "messages": QUESTION, **given}
    return await model.ask("choice", bounds.pop("messages"), **bounds)


async def rows(database: Database) -> list[Any]:
    """Return every request that was counted."""
    return await database.read(lambda tx: list(tx.execute(select(model_calls).order_by(model_calls.c.id))))


async def until(holds: Any) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - what others do has no event
            await asyncio.sleep(0.01)
