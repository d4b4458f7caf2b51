"""Asking a model: counted, capped, within a window and a deadline. What an endpoint does is never raised."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from msgspec.structs import replace
from sqlalchemy import select

from hermes.clock import Clock
from hermes.errors import StoreError
from hermes.llm.events import Completed, ModelFailed, Reply, TextPiece
from hermes.llm.tokens import estimate_tokens
from hermes.memory_server import times
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.statements import upsert
from hermes.memory_server.db.tables import meta, workspaces
from hermes.memory_server.engine.jobs import resume_deferred
from hermes.memory_server.model import calls
from hermes.memory_server.model.answer import ModelAnswer, ModelFailure, Purpose
from hermes.memory_server.model.calls import CallCost
from hermes.memory_server.model.endpoint import ModelEndpoint
from hermes.memory_server.model.fitting import ChatMessages
from hermes.memory_server.model.form import ModelQuestion, VisibleText, find_room, make_request, read_reply
from hermes.memory_server.model.self_test import try_out
from hermes.memory_server.model.settings import ModelClass, ModelSettings, SettingsFile
from hermes.types import Json, ToolSpec

log = logging.getLogger(__name__)
WATCH_SECONDS = 1.0
"""Between two looks at the settings of a folder that is served."""
SELF_TEST = 0
"""The workspace under which requests of no workspace are counted; they have no cap."""
REPAIR = "That cannot be used: {}. Give the same answer again, as JSON that follows the schema, and nothing else."


class MemoryModel:
    """The model of one workspace, as its settings are now."""

    def __init__(self, door: ModelDoor, workspace_id: int, settings: ModelSettings, endpoint: ModelEndpoint) -> None:
        self._door = door
        self._workspace_id = workspace_id
        self._settings = settings
        self.endpoint = endpoint

    @property
    def name(self) -> str:
        """What the endpoint calls it; "" while only the endpoint knows."""
        return self.endpoint.model.name

    @property
    def window_tokens(self) -> int:
        return self.endpoint.model.context_length

    def room_tokens(
        self, messages: ChatMessages, *, tools: Sequence[ToolSpec] = (), schema: Json = None, max_tokens: int
    ) -> int:
        """Return the tokens that still fit into a question, beside its tools, its form and the answer."""
        return find_room(ModelQuestion("choice", messages, tuple(tools), schema, max_tokens), self.endpoint)

    @property
    def model_class(self) -> ModelClass:
        """The class that was set, else what the self-test found; `point` while that is not known."""
        return self._settings.model_class or self.endpoint.tested or "point"

    @property
    def is_untested(self) -> bool:
        return self._settings.model_class is None and self.endpoint.tested is None

    def report(self) -> dict[str, Json]:
        """Return its name, class and state."""
        endpoint = self.endpoint
        failed = endpoint.last_failure
        at = None if endpoint.last_failure_at is None else times.to_wire(round(endpoint.last_failure_at * 1e6))
        return {
            "name": self.name,
            "class": None if self.is_untested else self.model_class,
            "state": "down" if endpoint.is_down else "ok",
            "last_failure": None if failed is None else {"kind": failed.kind, "at": at},
        }

    @property
    def may_hear_guests(self) -> bool:
        """Whether words of people other than the owner may be sent."""
        return self._settings.guests

    async def ask(
        self,
        purpose: Purpose,
        messages: ChatMessages,
        *,
        tools: Sequence[ToolSpec] = (),
        schema: Json = None,
        max_tokens: int,
        deadline_seconds: float,
    ) -> ModelAnswer:
        """Ask once, and once more where the answer does not follow the schema. With `tools` the answer may be tool
        calls instead. Texts that do not fit the window lose their end."""
        question = ModelQuestion(purpose, messages, tuple(tools), schema, max_tokens)
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self._ask(question)
        except TimeoutError:
            return self._too_late(deadline_seconds)

    async def stream(
        self,
        purpose: Purpose,
        messages: ChatMessages,
        *,
        tools: Sequence[ToolSpec] = (),
        max_tokens: int,
        deadline_seconds: float,
    ) -> AsyncGenerator[str | ModelAnswer, None]:
        """Yield pieces of the text as they come, and last the whole answer, which may be tool calls. Wrap it in
        `contextlib.aclosing`."""
        question = ModelQuestion(purpose, messages, tuple(tools), None, max_tokens)
        end = time.monotonic() + deadline_seconds
        events, visible = self._send(question), VisibleText()
        try:
            while True:
                async with asyncio.timeout(max(0.0, end - time.monotonic())):
                    event = await anext(events)
                if isinstance(event, str):
                    if piece := visible.add(event):
                        yield piece
                elif isinstance(event, ModelFailure) and self._adapt(event, question):
                    await events.aclose()
                    events, visible = self._send(question), VisibleText()
                else:
                    yield read_reply(event, question) if isinstance(event, Reply) else ModelAnswer(failure=event)
                    return
        except TimeoutError:
            yield self._too_late(deadline_seconds)
        finally:
            await events.aclose()

    async def _ask(self, question: ModelQuestion) -> ModelAnswer:
        answer, text = await self._answer(question)
        if answer.failure is None or answer.failure.kind != "invalid":
            return answer
        said = [
            {"role": "assistant", "content": text},
            {"role": "user", "content": REPAIR.format(answer.failure.reason)},
        ]
        again, _ = await self._answer(replace(question, messages=[*question.messages, *said], tools=()))
        return again

    async def _answer(self, question: ModelQuestion) -> tuple[ModelAnswer, str]:
        """Send a question, in another form if the first is refused. Returns the answer and its text."""
        while True:
            async with aclosing(self._send(question)) as events:
                last = [event async for event in events if not isinstance(event, str)][-1]
            if isinstance(last, Reply):
                answer = read_reply(last, question)
                if answer.failure is None or not self._needs_more(answer.failure, last):
                    return answer, last.text
            elif not self._adapt(last, question):
                return ModelAnswer(failure=last), ""

    def _needs_more(self, failure: ModelFailure, reply: Reply) -> bool:
        """Return True, once, if a model thought until its tokens were used up."""
        thought = bool(reply.reasoning) or "<think" in reply.text
        if failure.kind != "truncated" or not thought or self.endpoint.thinks:
            return False
        self.endpoint.thinks = True
        return True

    def _adapt(self, failure: ModelFailure, question: ModelQuestion) -> bool:
        """Change the form in which this endpoint is asked. False when there is none left to try."""
        endpoint = self.endpoint
        if failure.kind == "context_too_long" and not endpoint.is_tight:
            endpoint.is_tight = True
        elif failure.kind == "bad_request" and question.tools and endpoint.takes_tools:
            endpoint.takes_tools = False
        elif failure.kind == "bad_request" and question.schema and not question.tools and endpoint.takes_schema:
            endpoint.takes_schema = False
        else:
            return False
        return True

    async def _send(self, question: ModelQuestion) -> AsyncGenerator[str | Reply | ModelFailure, None]:
        """Send one request, counted: pieces of text, and last the reply or a failure."""
        if (refused := self.endpoint.refuse()) is not None:
            yield refused
            return
        request = make_request(question, self.endpoint)
        reserved = CallCost(request.tokens or 0, request.max_tokens or 0)
        call = await self._door.reserve(self._workspace_id, self._settings, question.purpose, self.name, reserved)
        if isinstance(call, ModelFailure):
            yield call
            return
        said, outcome, usage = 0, "unfinished", None
        began = time.monotonic()
        try:
            async with aclosing(self.endpoint.model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, TextPiece):
                        said += estimate_tokens(event.text)
                        yield event.text
                    elif isinstance(event, Completed):
                        outcome, usage = calls.OK, event.reply.usage
                        await self._door.worked(self.endpoint)
                        yield event.reply
                    elif isinstance(event, ModelFailed):
                        outcome, usage = event.kind, event.partial.usage
                        yield self.endpoint.failed(event)
        finally:  # also when nobody wants to hear the rest
            took = round((time.monotonic() - began) * 1000)
            spent = (usage.prompt_tokens, usage.completion_tokens) if usage else (reserved.prompt_tokens, said)
            await self._door.settle(call, question.purpose, CallCost(*spent, took), outcome)

    def _too_late(self, seconds: float) -> ModelAnswer:
        line = f"the model at {self.endpoint.place} did not answer within {seconds:g} s"
        failure = self.endpoint.failed(ModelFailed("timeout", line, retryable=True))
        return ModelAnswer(failure=failure)


class ModelDoor:
    """The models of one memory folder, for one process. Without a folder there are none."""

    def __init__(self, database: Database, clock: Clock, file: SettingsFile | None = None) -> None:
        """Without a `file`, that of the database's folder is used, and no environment."""
        self._database = database
        self._clock = clock
        self.file = file or SettingsFile(database.folder)
        self._names: dict[int, str] = {}
        self._endpoints: dict[tuple[str, str, str, int | None], ModelEndpoint] = {}
        self.wake: Callable[[], None] = lambda: None
        """Called when jobs that waited for a model are due."""
        self.metrics: Counter[tuple[str, str, str]] = Counter()
        """By name of the count, purpose and outcome, since the start of this process."""

    async def of(self, workspace_id: int) -> MemoryModel | None:
        """Return the model of a workspace, by the settings as they are now; None where it has none."""
        name = self._names.get(workspace_id)
        if name is None:
            name = await self._database.read(lambda tx: _name_of(tx, workspace_id))
            self._names[workspace_id] = name
        found = self.find(name, workspace_id)
        if found is not None and found.is_untested:
            self._begin_test(found)
        return found

    def find(self, workspace: str, workspace_id: int) -> MemoryModel | None:
        """As `of`, where the workspace's name is known."""
        settings = self.file.find(workspace)
        if settings is None:
            return None
        key = (settings.url, settings.name, settings.key, settings.window)
        if key not in self._endpoints:
            self._endpoints[key] = ModelEndpoint(settings, self._clock)
        return MemoryModel(self, workspace_id, settings, self._endpoints[key])

    async def watch(self) -> None:
        """Look for changed settings for as long as this runs: a new model is tested, and jobs that wait for one are
        tried again."""
        seen = 0
        while True:
            if (version := self.file.version()) != seen:
                if seen:  # at its start a worker tries all again by itself
                    await self._resume()
                seen = version
                if (found := self.find("", SELF_TEST)) is not None and found.is_untested:
                    self._begin_test(found)
            await asyncio.sleep(WATCH_SECONDS)

    async def close(self) -> None:
        """Stop testing and let go of connections."""
        testing = [endpoint.testing for endpoint in self._endpoints.values() if endpoint.testing is not None]
        for task in testing:
            task.cancel()
        await asyncio.gather(*testing, return_exceptions=True)
        await asyncio.gather(*(endpoint.model.close() for endpoint in self._endpoints.values()))

    def report(self) -> dict[str, Json] | None:
        """Return what there is to say of the folder's own model, without its address: everybody may read it."""
        settings = self.file.settings
        if settings.source == "off" and self.file.problem is None:
            return None
        found = self.find("", SELF_TEST)
        if found is None:
            return {"name": settings.name, "state": "misconfigured"}
        return {**found.report(), "cap_calls": settings.cap_calls, "cap_tokens": settings.cap_tokens}

    def _begin_test(self, model: MemoryModel) -> None:
        endpoint = model.endpoint
        if endpoint.testing is None or endpoint.testing.done():
            tester = MemoryModel(self, SELF_TEST, endpoint.settings, endpoint)
            endpoint.testing = asyncio.create_task(self._test(tester))

    async def _test(self, model: MemoryModel) -> None:
        """Find out a model's class: what an earlier test found, else a test, whose result is kept."""
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

    async def reserve(
        self, workspace_id: int, settings: ModelSettings, purpose: Purpose, model: str, cost: CallCost
    ) -> int | ModelFailure:
        """Count a request before it is sent. Returns its id, or why a cap forbids it."""
        at = times.now(self._clock)
        tokens = cost.prompt_tokens + cost.completion_tokens

        def run(tx: Tx) -> int | ModelFailure:
            spent_calls, spent_tokens = calls.spent_today(tx, workspace_id, at)
            over = f"{settings.cap_calls:,} calls" if spent_calls >= settings.cap_calls else ""
            over = over or (f"{settings.cap_tokens:,} tokens" if spent_tokens + tokens > settings.cap_tokens else "")
            if over and workspace_id != SELF_TEST:
                reason = f"the workspace's cap of {over} to a model is reached for today"
                return ModelFailure("cap", reason, calls.seconds_to_next_day(at))
            return calls.add_call(tx, workspace_id, purpose, model, cost, at)

        try:
            return await self._database.write(run)
        except StoreError as error:  # what cannot be counted is not sent
            return ModelFailure("down", error.line())

    async def settle(self, call_id: int, purpose: Purpose, cost: CallCost, outcome: str) -> None:
        """Write what a request took, also when who asked is cancelled meanwhile."""
        self.metrics["calls", purpose, outcome] += 1
        self.metrics["tokens", purpose, outcome] += cost.prompt_tokens + cost.completion_tokens
        self.metrics["milliseconds", purpose, outcome] += cost.milliseconds
        try:
            await asyncio.shield(self._database.write(lambda tx: calls.finish_call(tx, call_id, cost, outcome)))
        except StoreError as error:  # what was reserved stays counted
            log.warning("memory server: the tokens of a request were not written: %s", error.line())

    async def worked(self, endpoint: ModelEndpoint) -> None:
        """Note that an endpoint answered."""
        if endpoint.worked():
            await self._resume()

    async def _resume(self) -> None:
        try:
            await self._database.write(resume_deferred)
        except StoreError as error:  # they are due by themselves in a while
            log.warning("memory server: %s", error.line())
        self.wake()


def _read_meta(tx: Tx, name: str) -> ModelClass | None:
    value = tx.execute(select(meta.c.value).where(meta.c.name == name)).scalar()
    return value if value in ("point", "compose") else None


def _name_of(tx: Tx, workspace_id: int) -> str:
    return tx.execute(select(workspaces.c.name).where(workspaces.c.id == workspace_id)).scalar() or ""
