"""The models of a memory folder, as its settings currently define them.

A fixed test of a model's class: it can point at a line, or also write a sentence from quotes.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence

from sqlalchemy import select

from hermes.clock import Clock
from hermes.errors import StoreError
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.statements import upsert
from hermes.memory_server.db.tables import meta, workspaces
from hermes.memory_server.engine.jobs import resume_deferred
from hermes.memory_server.model.calls import SELF_TEST_WORKSPACE_ID, CallCounter
from hermes.memory_server.model.endpoint import ModelEndpoint
from hermes.memory_server.model.memory_model import MemoryModel
from hermes.memory_server.model.settings import ModelClass, ModelSettings, SettingsFile
from hermes.types import Json

DEADLINE_SECONDS = 180.0
MAX_TOKENS = 120
LINES = (
    "[1] Tove said on 3 May: the kitchen will be painted green.",
    "[2] Tove said on 14 May: the boat is moored at pier 9 until autumn.",
    "[3] Ulf said on 20 May: pier 4 is closed for repairs.",
)
WHICH: Json = {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]}
POINT = "Which line answers the question? Give its number, or 0 if none does.\nQuestion: {}\n{}"
CHOICES = (("Where is Tove's boat?", 2), ("What does Ulf do for a living?", 0))
COMPOSE = (
    "Answer the question in one sentence from these lines alone. Name the day, and put the number of the line that you "
    "used in brackets behind the sentence, like [3].\nQuestion: Where is Tove's boat, and when did she say so?\n{}"
)
NUMBERS = re.compile(r"\d+")


async def try_out(model: MemoryModel) -> ModelClass | None:
    """Return the class that the model's answers show; None if it cannot be asked now."""
    points = []
    for question, right in CHOICES:
        answer = await model.ask(
            "self_test", _user(POINT.format(question, "\n".join(LINES))), schema=WHICH, max_tokens=MAX_TOKENS,
            deadline_seconds=DEADLINE_SECONDS,
        )  # fmt: skip
        if answer.failure is not None and answer.failure.may_pass:
            return None
        points.append(answer.failure is None and answer.parsed["line"] == right)
    written = await model.ask(
        "self_test", _user(COMPOSE.format("\n".join(LINES))), max_tokens=MAX_TOKENS, deadline_seconds=DEADLINE_SECONDS
    )
    if written.failure is not None and written.failure.may_pass:
        return None
    return "compose" if all(points) and _is_faithful(written.text) else "point"


def _is_faithful(text: str) -> bool:
    """Return True if a sentence gives the facts of line 2, cites it, and invents no number."""
    numbers = set(NUMBERS.findall(text))
    return "[2]" in text and {"9", "14"} <= numbers <= {"2", "9", "14"}


def _user(text: str) -> Sequence[dict[str, Json]]:
    return [{"role": "user", "content": text}]


log = logging.getLogger(__name__)
WATCH_SECONDS = 1.0
"""Interval at which a running server checks the settings file."""


class ModelDoor:
    """The models of one memory folder, for one process. A database without a folder has no model."""

    def __init__(self, database: Database, clock: Clock, file: SettingsFile | None = None) -> None:
        """Without a `file`, read the settings in the database's folder, and no environment variables."""
        self._database = database
        self._clock = clock
        self.file = file or SettingsFile(database.folder)
        self.counter = CallCounter(database, clock)
        self._names: dict[int, str] = {}
        self._endpoints: dict[tuple[str, str, str, int | None], ModelEndpoint] = {}
        self.wake: Callable[[], None] = lambda: None
        """Called when jobs that waited for a model are due."""

    async def of(self, workspace_id: int) -> MemoryModel | None:
        """Return the model of a workspace under the current settings, or None."""
        name = self._names.get(workspace_id)
        if name is None:
            name = await self._database.read(lambda tx: _name_of(tx, workspace_id))
            self._names[workspace_id] = name
        found = self.find(name, workspace_id)
        if found is not None and found.is_untested:
            self._begin_test(found)
        return found

    def find(self, workspace: str, workspace_id: int) -> MemoryModel | None:
        """Return the model of a workspace whose name is known, or None."""
        settings = self.file.find(workspace)
        return None if settings is None else self.open(settings, workspace_id)

    def open(self, settings: ModelSettings, workspace_id: int) -> MemoryModel:
        """Return the model that the settings define, for a workspace."""
        key = (settings.url, settings.name, settings.key, settings.window)
        if key not in self._endpoints:
            self._endpoints[key] = ModelEndpoint(settings, self._clock)
        return MemoryModel(self.counter, workspace_id, settings, self._endpoints[key], self._worked)

    async def watch(self) -> None:
        """Watch the settings file until cancelled: test a new model, and resume jobs that wait for one."""
        seen = 0
        while True:
            if (version := self.file.version()) != seen:
                if seen:  # a starting worker retries all jobs anyway
                    await self._resume()
                seen = version
                if (found := self.find("", SELF_TEST_WORKSPACE_ID)) is not None and found.is_untested:
                    self._begin_test(found)
            await asyncio.sleep(WATCH_SECONDS)

    async def close(self) -> None:
        """Cancel running tests and close connections."""
        testing = [endpoint.testing for endpoint in self._endpoints.values() if endpoint.testing is not None]
        for task in testing:
            task.cancel()
        await asyncio.gather(*testing, return_exceptions=True)
        await asyncio.gather(*(endpoint.model.close() for endpoint in self._endpoints.values()))

    def report(self) -> dict[str, Json] | None:
        """Return the state of the folder's model, without its address: the report is public."""
        settings = self.file.settings
        if settings.source == "off" and self.file.problem is None:
            return None
        found = self.find("", SELF_TEST_WORKSPACE_ID)
        if found is None:
            return {"name": settings.name, "state": "misconfigured"}
        return {**found.report(), "cap_calls": settings.cap_calls, "cap_tokens": settings.cap_tokens}

    def _begin_test(self, model: MemoryModel) -> None:
        endpoint = model.endpoint
        if endpoint.testing is None or endpoint.testing.done():
            endpoint.testing = asyncio.create_task(self._test(self.open(endpoint.settings, SELF_TEST_WORKSPACE_ID)))

    async def _test(self, model: MemoryModel) -> None:
        """Determine the model's class: read an earlier result, or run the self-test and store its result."""
        name = f"model_class {model.endpoint.place} {model.endpoint.settings.name}"
        try:
            known = await self._database.read(lambda tx: _read_meta(tx, name))
            found = known or await try_out(model)
            if found is not None and not known:
                kept: ModelClass = found
                await self._database.write(lambda tx: upsert(tx, meta, ("name",), {"name": name, "value": kept}))
            model.endpoint.tested = found
        except StoreError as error:
            log.warning("memory server: the model is not tested yet: %s", error.line())

    async def _worked(self, endpoint: ModelEndpoint) -> None:
        """Record a successful response; after an outage, resume the jobs that wait."""
        if endpoint.worked():
            await self._resume()

    async def _resume(self) -> None:
        try:
            await self._database.write(resume_deferred)
        except StoreError as error:  # the jobs become due by themselves later
            log.warning("memory server: %s", error.line())
        self.wake()


def _read_meta(tx: Tx, name: str) -> ModelClass | None:
    value = tx.execute(select(meta.c.value).where(meta.c.name == name)).scalar()
    return value if value in ("point", "compose") else None


def _name_of(tx: Tx, workspace_id: int) -> str:
    return tx.execute(select(workspaces.c.name).where(workspaces.c.id == workspace_id)).scalar() or ""
