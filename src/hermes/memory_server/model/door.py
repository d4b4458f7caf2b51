"""Asking a model: counted, capped, within a window and a deadline. What an endpoint does is never raised."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import select

from hermes.clock import Clock
from hermes.errors import StoreError
from hermes.llm.events import Completed, ModelFailed, Reply, TextPiece
from hermes.llm.model import ModelRequest
from hermes.llm.tokens import estimate_request, estimate_tokens
from hermes.memory_server import times
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.tables import workspaces
from hermes.memory_server.model import calls, structured
from hermes.memory_server.model.answer import ModelAnswer, ModelFailure, Purpose
from hermes.memory_server.model.calls import CallCost
from hermes.memory_server.model.endpoint import ModelEndpoint
from hermes.memory_server.model.fitting import Messages, answer_tokens, fit_messages
from hermes.memory_server.model.settings import ModelClass, ModelSettings, SettingsFile
from hermes.types import Json, ToolSpec

log = logging.getLogger(__name__)
THINKING_TOKENS = 2048
"""What an answer may have beyond the tokens that were asked for, once a model was seen to think first."""
SHRUNK = 0.6
"""The share of its window that is used once an endpoint said that a request is too long."""
SELF_TEST = 0
"""The workspace under which requests of no workspace are counted; they have no cap."""
CUT, FILTERED = "length", "content_filter"
"""Reasons of an end, in the endpoints' words."""
REPAIR = "That cannot be used: {}. Give the same answer again, as JSON that follows the schema, and nothing else."


class _Question(Struct, frozen=True):
    """What is asked, before it is put into the form that an endpoint takes."""

    purpose: Purpose
    messages: Messages
    tools: tuple[ToolSpec, ...]
    schema: Json
    max_tokens: int


class MemoryModel:
    """The model of one workspace, as its settings are now."""

    def __init__(self, door: ModelDoor, workspace_id: int, settings: ModelSettings, endpoint: ModelEndpoint) -> None:
        self._door = door
        self._workspace_id = workspace_id
        self._settings = settings
        self._endpoint = endpoint

    @property
    def name(self) -> str:
        """What the endpoint calls it; "" while only the endpoint knows."""
        return self._endpoint.model.name

    @property
    def context_tokens(self) -> int:
        return self._endpoint.model.context_length

    @property
    def model_class(self) -> ModelClass:
        return self._settings.model_class or "point"

    @property
    def may_hear_guests(self) -> bool:
        """Whether words of people other than the owner may be sent."""
        return self._settings.guests

    async def ask(
        self,
        purpose: Purpose,
        messages: Messages,
        *,
        tools: Sequence[ToolSpec] = (),
        schema: Json = None,
        max_tokens: int,
        deadline_seconds: float,
    ) -> ModelAnswer:
        """Ask once, and once more where the answer does not follow the schema. With `tools` the answer may be tool
        calls instead. Texts that do not fit the window lose their end."""
        question = _Question(purpose, messages, tuple(tools), schema, max_tokens)
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self._ask(question)
        except TimeoutError:
            return self._too_late(deadline_seconds)

    async def stream(
        self,
        purpose: Purpose,
        messages: Messages,
        *,
        tools: Sequence[ToolSpec] = (),
        max_tokens: int,
        deadline_seconds: float,
    ) -> AsyncGenerator[str | ModelAnswer, None]:
        """Yield pieces of the text as they come, and last the whole answer, which may be tool calls. Wrap it in
        `contextlib.aclosing`."""
        question = _Question(purpose, messages, tuple(tools), None, max_tokens)
        end = time.monotonic() + deadline_seconds
        events, visible = self._send(question), _Visible()
        try:
            while True:
                async with asyncio.timeout(max(0.0, end - time.monotonic())):
                    event = await anext(events)
                if isinstance(event, str):
                    if piece := visible.add(event):
                        yield piece
                elif isinstance(event, ModelFailure) and self._adapt(event, question):
                    events, visible = self._send(question), _Visible()
                else:
                    yield _read(event, question) if isinstance(event, Reply) else ModelAnswer(failure=event)
                    return
        except TimeoutError:
            yield self._too_late(deadline_seconds)
        finally:
            await events.aclose()

    async def _ask(self, question: _Question) -> ModelAnswer:
        answer, text = await self._answer(question)
        if answer.failure is None or answer.failure.kind != "invalid":
            return answer
        said = [
            {"role": "assistant", "content": text},
            {"role": "user", "content": REPAIR.format(answer.failure.reason)},
        ]
        again, _ = await self._answer(replace(question, messages=[*question.messages, *said], tools=()))
        return again

    async def _answer(self, question: _Question) -> tuple[ModelAnswer, str]:
        """Send a question, in another form if the first is refused. Returns the answer and its text."""
        while True:
            async with aclosing(self._send(question)) as events:
                last = [event async for event in events if not isinstance(event, str)][-1]
            if isinstance(last, Reply):
                answer = _read(last, question)
                if answer.failure is None or not self._needs_more(answer.failure, last):
                    return answer, last.text
            elif not self._adapt(last, question):
                return ModelAnswer(failure=last), ""

    def _needs_more(self, failure: ModelFailure, reply: Reply) -> bool:
        """Return True, once, if a model thought until its tokens were used up."""
        thought = bool(reply.reasoning) or "<think" in reply.text
        if failure.kind != "truncated" or not thought or self._endpoint.thinks:
            return False
        self._endpoint.thinks = True
        return True

    def _adapt(self, failure: ModelFailure, question: _Question) -> bool:
        """Change the form in which this endpoint is asked. False when there is none left to try."""
        endpoint = self._endpoint
        if failure.kind == "context_too_long" and not endpoint.is_tight:
            endpoint.is_tight = True
        elif failure.kind == "bad_request" and question.tools and endpoint.takes_tools:
            endpoint.takes_tools = False
        elif failure.kind == "bad_request" and question.schema and not question.tools and endpoint.takes_schema:
            endpoint.takes_schema = False
        else:
            return False
        return True

    async def _send(self, question: _Question) -> AsyncGenerator[str | Reply | ModelFailure, None]:
        """Send one request, counted: pieces of text, and last the reply or a failure."""
        if (refused := self._endpoint.refuse()) is not None:
            yield refused
            return
        request = self._form(question)
        reserved = CallCost(request.tokens or 0, request.max_tokens or 0)
        call = await self._door.reserve(self._workspace_id, self._settings, question.purpose, self.name, reserved)
        if isinstance(call, ModelFailure):
            yield call
            return
        said, outcome, usage = 0, "unfinished", None
        began = time.monotonic()
        try:
            async with aclosing(self._endpoint.model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, TextPiece):
                        said += estimate_tokens(event.text)
                        yield event.text
                    elif isinstance(event, Completed):
                        outcome, usage = calls.OK, event.reply.usage
                        await self._door.worked(self._endpoint)
                        yield event.reply
                    elif isinstance(event, ModelFailed):
                        outcome, usage = event.kind, event.partial.usage
                        yield self._endpoint.failed(event)
        finally:  # also when nobody wants to hear the rest
            took = round((time.monotonic() - began) * 1000)
            spent = (usage.prompt_tokens, usage.completion_tokens) if usage else (reserved.prompt_tokens, said)
            await self._door.settle(call, CallCost(*spent, took), outcome)

    def _form(self, question: _Question) -> ModelRequest:
        """Put a question into the form that this endpoint takes, cut to its window."""
        endpoint = self._endpoint
        messages, tools, orders = question.messages, question.tools, []
        if tools and not endpoint.takes_tools:
            messages, orders, tools = structured.to_text_protocol(messages), [structured.describe_tools(tools)], ()
        form: Json = None
        if question.schema is not None:
            orders.append(structured.describe_schema(question.schema))
            if endpoint.takes_schema and not question.tools:
                form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": question.schema}}
        window = int(self.context_tokens * (SHRUNK if endpoint.is_tight else 1.0))
        wanted = question.max_tokens + (THINKING_TOKENS if endpoint.thinks else 0)
        answer = answer_tokens(window, wanted)
        fitting = fit_messages(_with_orders(messages, orders), tools, window, answer)
        return ModelRequest(fitting, tools, answer, estimate_request(fitting, tools), form)

    def _too_late(self, seconds: float) -> ModelAnswer:
        line = f"the model at {self._endpoint.place} did not answer within {seconds:g} s"
        failure = self._endpoint.failed(ModelFailed("timeout", line, retryable=True))
        return ModelAnswer(failure=failure)


class ModelDoor:
    """The models of one memory folder, for one process. Without a folder there are none."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        folder: Path | None,
        env: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._database = database
        self._clock = clock
        self.file = SettingsFile(folder, env)
        self._names: dict[int, str] = {}
        self._endpoints: dict[tuple[str, str, str, int | None], ModelEndpoint] = {}
        self.on_recovery: Callable[[], None] = lambda: None
        """Called when a model came, or answers again after it was down."""

    async def of(self, workspace_id: int) -> MemoryModel | None:
        """Return the model of a workspace, by the settings as they are now; None where it has none."""
        name = self._names.get(workspace_id)
        if name is None:
            name = await self._database.read(lambda tx: _name_of(tx, workspace_id))
            self._names[workspace_id] = name
        return self.find(name, workspace_id)

    def find(self, workspace: str, workspace_id: int) -> MemoryModel | None:
        """As `of`, where the workspace's name is known."""
        settings = self.file.find(workspace)
        if settings is None:
            return None
        key = (settings.url, settings.name, settings.key, settings.window)
        if key not in self._endpoints:
            self._endpoints[key] = ModelEndpoint(settings, self._clock)
        return MemoryModel(self, workspace_id, settings, self._endpoints[key])

    async def close(self) -> None:
        """Let go of connections."""
        await asyncio.gather(*(endpoint.model.close() for endpoint in self._endpoints.values()))

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

    async def settle(self, call_id: int, cost: CallCost, outcome: str) -> None:
        """Write what a request took, also when who asked is cancelled meanwhile."""
        try:
            await asyncio.shield(self._database.write(lambda tx: calls.finish_call(tx, call_id, cost, outcome)))
        except StoreError as error:  # what was reserved stays counted
            log.warning("memory server: the tokens of a request were not written: %s", error.line())

    async def worked(self, endpoint: ModelEndpoint) -> None:
        """Note that an endpoint answered."""
        if endpoint.worked():
            self.on_recovery()


class _Visible:
    """Text as it comes, without thoughts between tags."""

    def __init__(self) -> None:
        self._all = ""
        self._shown = 0

    def add(self, piece: str) -> str:
        """Return what can be shown now. A beginning that may become a tag waits."""
        self._all += piece
        visible = structured.without_thoughts(self._all)
        held = visible.rfind("<")
        if held >= 0 and len(visible) - held <= len("<reasoning>"):
            visible = visible[:held]
        new = visible[self._shown :]
        self._shown = max(self._shown, len(visible))
        return new


def _name_of(tx: Tx, workspace_id: int) -> str:
    return tx.execute(select(workspaces.c.name).where(workspaces.c.id == workspace_id)).scalar() or ""


def _with_orders(messages: Messages, orders: Sequence[str]) -> Messages:
    """Add what the form demands to the first system message."""
    if not orders:
        return messages
    first, rest = (messages[0], messages[1:]) if messages[0].get("role") == "system" else ({"content": ""}, messages)
    return [{"role": "system", "content": "\n\n".join([first["content"], *orders]).strip()}, *rest]


def _read(reply: Reply, question: _Question) -> ModelAnswer:
    """Read a whole reply: tool calls, JSON of the schema, or text."""
    text = structured.without_thoughts(reply.text)
    called = reply.tool_calls or structured.find_calls(text, question.tools)
    if called:
        return ModelAnswer(text, tool_calls=called)
    is_cut = reply.finish_reason == CUT
    if reply.finish_reason == FILTERED:
        return ModelAnswer(text, failure=ModelFailure("refusal", "the endpoint held the answer back"))
    if question.schema is not None and text:
        parsed, problem = structured.read_json(text, question.schema)
        return ModelAnswer(text, parsed, failure=ModelFailure("invalid", problem) if problem else None)
    if not text:
        return ModelAnswer(failure=ModelFailure("truncated" if is_cut else "bad_reply", "the answer has no text"))
    return ModelAnswer(text, failure=ModelFailure("truncated", "the answer was cut off") if is_cut else None)
