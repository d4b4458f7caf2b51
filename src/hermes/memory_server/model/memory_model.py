"""Requests to a model, with caps, a window and a deadline. Failures of the endpoint are returned, never raised."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from hermes.llm.events import Completed, ModelFailed, Reply, TextPiece
from hermes.llm.tokens import estimate_tokens
from hermes.memory_server import times
from hermes.memory_server.model.answer import ModelAnswer, ModelFailure, Purpose
from hermes.memory_server.model.calls import OK, UNFINISHED, CallCounter
from hermes.memory_server.model.endpoint import ModelEndpoint
from hermes.memory_server.model.form import ChatMessages, ModelQuestion, find_room, make_request, read_reply
from hermes.memory_server.model.settings import ModelClass, ModelSettings
from hermes.memory_server.model.structured import VisibleText
from hermes.types import Json, ToolSpec

REPAIR = "That cannot be used: {}. Give the same answer again, as JSON that follows the schema, and nothing else."


class MemoryModel:
    """The model of one workspace, under its current settings."""

    def __init__(
        self,
        counter: CallCounter,
        workspace_id: int,
        settings: ModelSettings,
        endpoint: ModelEndpoint,
        on_answer: Callable[[ModelEndpoint], Awaitable[None]],
    ) -> None:
        """Call `on_answer` whenever the endpoint has answered."""
        self._counter = counter
        self._workspace_id = workspace_id
        self._settings = settings
        self.endpoint = endpoint
        self._on_answer = on_answer

    @property
    def name(self) -> str:
        """Name of the model at the endpoint; "" until the endpoint reports it."""
        return self.endpoint.model.name

    @property
    def window_tokens(self) -> int:
        return self.endpoint.model.context_length

    def room_tokens(
        self, messages: ChatMessages, *, tools: Sequence[ToolSpec] = (), schema: Json = None, max_tokens: int
    ) -> int:
        """Return the tokens that remain for a question, besides its tools, its form and the answer."""
        return find_room(ModelQuestion("choice", messages, tuple(tools), schema, max_tokens), self.endpoint)

    @property
    def model_class(self) -> ModelClass:
        """Class from the settings, else from the self-test; `point` until one is known."""
        return self._settings.model_class or self.endpoint.tested or "point"

    @property
    def is_untested(self) -> bool:
        return self._settings.model_class is None and self.endpoint.tested is None

    def report(self) -> dict[str, Json]:
        """Return the model's name, class and state."""
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
        """True if words of people other than the owner may be sent."""
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
        """Ask once, and once more if the answer does not follow the schema. With `tools` the answer may be tool calls.
        Texts that exceed the window are shortened."""
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
        """Yield pieces of the text as they arrive, then the whole answer, which may be tool calls. Use with
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
                    if piece := visible.end():
                        yield piece
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
        """Send a question, in another form if the first is refused. Return the answer and its text."""
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
        """Return True, once, if a model used up its answer tokens on thoughts."""
        thought = bool(reply.reasoning) or "<think" in reply.text
        if failure.kind != "truncated" or not thought or self.endpoint.thinks:
            return False
        self.endpoint.thinks = True
        return True

    def _adapt(self, failure: ModelFailure, question: ModelQuestion) -> bool:
        """Change the form in which this endpoint is asked. Return False if no other form is left."""
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
        """Count and send one request; yield pieces of text, then the reply or a failure."""
        if (refused := self.endpoint.refuse()) is not None:
            yield refused
            return
        call = self._counter.new_call(self._workspace_id, self._settings, question.purpose, self.name)
        request = make_request(question, self.endpoint, call.repeat)
        if not await call.open(request.tokens or 0, request.max_tokens or 0):
            assert call.refused is not None
            yield call.refused
            return
        outcome, usage, said = UNFINISHED, None, 0
        try:
            async with aclosing(self.endpoint.model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, TextPiece):
                        said += estimate_tokens(event.text)
                        yield event.text
                    elif isinstance(event, Completed):
                        outcome, usage = OK, event.reply.usage
                        await self._on_answer(self.endpoint)
                        yield event.reply
                    elif isinstance(event, ModelFailed):
                        outcome, usage = event.kind, event.partial.usage
                        yield call.refused or self.endpoint.failed(event)
        finally:  # also if the caller stops reading
            await call.close(outcome, usage, said)

    def _too_late(self, seconds: float) -> ModelAnswer:
        line = f"the model at {self.endpoint.place} did not answer within {seconds:g} s"
        failure = self.endpoint.failed(ModelFailed("timeout", line, retryable=True))
        return ModelAnswer(failure=failure)
