"""The loop of model requests and tool calls, until the model replies. Failures are events, not exceptions.

Work that a person may stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from hermes.agent.tools import PROGRESS, Toolbox, ToolResult
from hermes.agent.transcript import Transcript
from hermes.events import (
    Failed,
    Notice,
    ReasoningDelta,
    Replied,
    Stopped,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
)
from hermes.fence import FenceStrainer, strip_fences
from hermes.llm import events as model_events
from hermes.llm.assemble import FINISHED_BY_LENGTH
from hermes.llm.events import Completed, ModelEvent, Reply
from hermes.llm.model import Model, ModelRequest
from hermes.llm.written_calls import CallStrainer, with_written_calls
from hermes.types import Draft, Json, ToolCall

T = TypeVar("T")


@asynccontextmanager
async def watch_stop(stop: asyncio.Event) -> AsyncIterator[asyncio.Future[Any]]:
    """Yield a future that completes when `stop` is set; one task serves many calls of `unless_done`."""
    stopped = asyncio.ensure_future(stop.wait())
    try:
        yield stopped
    finally:
        stopped.cancel()


async def unless_done(stopped: asyncio.Future[Any], work: Awaitable[T]) -> T | None:
    """Return the result of `work`, or None if `stopped` completes first; then `work` was cancelled and has ended."""
    over = False
    limit = asyncio.timeout(None)

    def interrupt(_: asyncio.Future[Any]) -> None:
        if not over:
            limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with limit:
            stopped.add_done_callback(interrupt)
            try:
                return await work
            finally:
                over = True
                stopped.remove_done_callback(interrupt)
    except TimeoutError:
        if not limit.expired():
            raise
        return None


async def unless_stopped(work: Awaitable[T], stop: asyncio.Event) -> T | None:
    """Return the result of `work`, or None if the person stops it; then `work` was cancelled and has ended."""
    async with watch_stop(stop) as stopped:
        return await unless_done(stopped, work)


STOPPED_RESULT = "[The person stopped the turn before this call had a result.]"
MAX_QUEUED_PROGRESS_LINES = 100
"""Further progress lines are dropped until the queue is read."""
COMPRESSED = "The model found the conversation too long; it was compressed, and the request is sent again."
EMPTY_REPLY = "the model answered with nothing; try again, or try another model"
CALL_WITHOUT_TOOLS = "the model answered with a tool call, and is offered no tools; try again, or try another model"
NO_TOOLS = "[There are no tools here. Answer in plain words.]"
"""Added to the person's message when a model calls a tool although it is offered none."""


class Responder(Struct, frozen=True):
    """A model and the tools it may call, for at most `max_steps` rounds of `max_calls` calls each."""

    model: Model
    toolbox: Toolbox
    max_steps: int
    max_calls: int = 32


class _Response(Struct):
    """The outcome of one request; without `end`, the person stopped it."""

    names: frozenset[str]
    """The tools that calls written as text may name."""
    calls: CallStrainer
    end: Completed | model_events.ModelFailed | None = None
    said: list[str] = field(default_factory=list)
    """Pieces of the text that may be shown."""
    strainer: FenceStrainer = field(default_factory=FenceStrainer)


async def converse(
    speaker: Responder, transcript: Transcript, session_id: str, stop: asyncio.Event
) -> AsyncGenerator[TurnEvent, None]:
    """Run requests and tools until there is a reply. The last event is Replied, Stopped or Failed."""
    shrunk = asked_again = False
    for step in count():
        tools = speaker.toolbox.specs if step < speaker.max_steps else ()
        heard = _Response(speaker.toolbox.names, CallStrainer(speaker.toolbox.names))
        prepared = await unless_stopped(transcript.request(tools), stop)
        if prepared is None:
            yield Stopped(session_id, "")
            return
        if prepared.notice:
            yield Notice(prepared.notice)
        messages = _without_tools(prepared.messages) if asked_again else prepared.messages
        request = ModelRequest(messages, tools, tokens=prepared.tokens)
        async with aclosing(_listen(speaker.model, request, stop, heard)) as events:
            async for event in events:
                yield event
        if _was_too_long(heard) and not shrunk:
            shrunk = await unless_stopped(transcript.shrink(), stop) or False
            if shrunk:
                yield Notice(COMPRESSED)
                continue
        if step >= speaker.max_steps:
            heard.end = _require_reply(heard.end, step)
        if not isinstance(heard.end, Completed):
            yield await _break_off(transcript, session_id, heard)
            return
        reply = heard.end.reply
        if reply.tool_calls and not tools:
            if asked_again:
                yield Failed(session_id, "model", CALL_WITHOUT_TOOLS)
                return
            asked_again = True
            if "".join(heard.said).strip():
                yield TextDelta("\n\n")
            continue
        if not reply.tool_calls:
            if cut := _cut_notice(reply):
                yield Notice(cut)
            yield await _finish(transcript, session_id, reply)
            return
        calls, remark = _limit_calls(reply.tool_calls, speaker.max_calls)
        if remark:
            yield Notice(remark)
        await transcript.add(_draft(replace(reply, tool_calls=calls)))
        async with aclosing(_run_tools(speaker.toolbox, transcript, calls, stop, remark)) as events:
            async for event in events:
                yield event
        if stop.is_set():
            yield Stopped(session_id, strip_fences(reply.text))
            return


def _require_reply(
    end: Completed | model_events.ModelFailed | None, steps: int
) -> Completed | model_events.ModelFailed | None:
    """Fail if the model calls a tool in the last round, which offers none to force a reply."""
    if isinstance(end, Completed) and end.reply.tool_calls:
        line = f"no reply after {steps} rounds of tool calls; `agent.max_steps` allows more"
        return model_events.ModelFailed("bad_reply", line, retryable=False)
    return end


async def _listen(
    model: Model, request: ModelRequest, stop: asyncio.Event, heard: _Response
) -> AsyncGenerator[TurnEvent, None]:
    """Stream one request, recording it in `heard`. Stops reading as soon as the person stops the turn."""
    async with watch_stop(stop) as stopped:
        async with aclosing(model.stream(request)) as stream:
            while not stop.is_set():
                event = await unless_done(stopped, anext(stream, None))
                if event is None:
                    break
                if shown := _show(event, heard):
                    yield shown
        if rest := _end_response(heard):
            yield TextDelta(rest)


def _end_response(heard: _Response) -> str:
    """Turn calls written as text into tool calls, and return the held-back text that can be shown."""
    if isinstance(heard.end, Completed):
        heard.end = Completed(with_written_calls(heard.end.reply, heard.names))
        is_call = bool(heard.end.reply.tool_calls)
    else:
        is_call = heard.calls.holds_call
    rest = heard.calls.end(is_call=is_call)
    heard.said.append(rest)
    return heard.strainer.feed(rest) + heard.strainer.end()


def _without_tools(messages: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return the messages with a hint that tools are missing, in the last user message."""
    place = max((place for place, message in enumerate(messages) if message["role"] == "user"), default=None)
    if place is None:
        return messages
    plain = {**messages[place], "content": f"{messages[place]['content']}\n\n{NO_TOOLS}"}
    return [*messages[:place], plain, *messages[place + 1 :]]


def _was_too_long(heard: _Response) -> bool:
    return (
        isinstance(heard.end, model_events.ModelFailed) and heard.end.kind == "context_too_long" and not any(heard.said)
    )


def _show(event: ModelEvent, heard: _Response) -> TurnEvent | None:
    match event:
        case model_events.TextPiece(text):
            heard.said.append(shown := heard.calls.feed(text))
            strained = heard.strainer.feed(shown)
            return TextDelta(strained) if strained else None
        case model_events.ReasoningPiece(text):
            return ReasoningDelta(text)
        case model_events.Retrying(attempt, wait, reason):
            line = f"{reason}; trying again in {wait:.1f} s (attempt {attempt + 1})"
            return Notice(line, is_outage=True, passes=True)
        case Completed() | model_events.ModelFailed():
            heard.end = event
            return None


def _limit_calls(calls: tuple[ToolCall, ...], max_calls: int) -> tuple[tuple[ToolCall, ...], str]:
    """Return the calls to run, and a notice about the others."""
    if len(calls) <= max_calls:
        return calls, ""
    left = f"The model asked for {len(calls):,} tool calls at once; the first {max_calls:,} are run"
    return calls[:max_calls], f"{left}, the others are not (`agent.max_calls`)."


async def _run_tools(
    toolbox: Toolbox, transcript: Transcript, calls: tuple[ToolCall, ...], stop: asyncio.Event, remark: str
) -> AsyncGenerator[TurnEvent, None]:
    """Run the calls in order; each result is recorded before the next call. `remark` is added to the last result."""
    for call in calls:
        yield ToolStarted(call.id, call.name, call.arguments)
        running = _Running(toolbox, call, stop)
        async with aclosing(running.progress()) as lines:
            async for text in lines:
                yield ToolProgress(call.id, call.name, text)
        result = running.result
        if remark and call is calls[-1]:
            result = replace(result, text=f"{result.text}\n[{remark}]")
        await transcript.add(Draft("tool", result.text, tool_call_id=call.id, tool_name=call.name))
        for event in result.events:
            yield event
        yield ToolFinished(call.id, call.name, result.text, result.ok)


class _Running(Struct):
    """A running tool. After `progress` is exhausted, `result` is set, even if the person stopped it."""

    toolbox: Toolbox
    call: ToolCall
    stop: asyncio.Event
    result: ToolResult = ToolResult(STOPPED_RESULT, ok=False)

    async def progress(self) -> AsyncGenerator[str, None]:
        """Yield the tool's progress lines as they come."""
        if self.stop.is_set():
            return
        lines: asyncio.Queue[str] = asyncio.Queue(MAX_QUEUED_PROGRESS_LINES)
        running = asyncio.ensure_future(self._call_with(lines))
        stopped = asyncio.ensure_future(self.stop.wait())
        next_line = asyncio.ensure_future(lines.get())
        try:
            while True:
                await asyncio.wait({running, stopped, next_line}, return_when=asyncio.FIRST_COMPLETED)
                if next_line.done():
                    yield next_line.result()
                    next_line = asyncio.ensure_future(lines.get())
                elif running.done():
                    self.result = running.result()
                    return
                else:
                    return
        finally:
            for task in (running, stopped, next_line):
                task.cancel()

    async def _call_with(self, lines: asyncio.Queue[str]) -> ToolResult:
        def report(text: str) -> None:
            if not lines.full():  # a tool this fast need not show every step
                lines.put_nowait(text)

        PROGRESS.set(report)
        return await self.toolbox.call(self.call)


def _cut_notice(reply: Reply) -> str:
    """Return a notice for a reply that was cut, else ""."""
    if reply.cut_at is not None:
        return f"The reply was cut off after {reply.cut_at:,} characters; `model.longest_reply` allows more."
    return (
        "The reply is incomplete: the model reached its own length limit."
        if reply.finish_reason == FINISHED_BY_LENGTH
        else ""
    )


async def _finish(transcript: Transcript, session_id: str, reply: Reply) -> TurnEvent:
    if not strip_fences(reply.text).strip():
        return Failed(session_id, "model", EMPTY_REPLY)
    stored = await transcript.conclude(_draft(reply))
    usage = reply.usage
    return Replied(
        session_id,
        stored.id,
        stored.content or "",
        usage.prompt_tokens if usage else None,
        usage.completion_tokens if usage else None,
        cut=reply.finish_reason == FINISHED_BY_LENGTH,
    )


async def _break_off(transcript: Transcript, session_id: str, heard: _Response) -> TurnEvent:
    """Record the partial reply, and return the event that says why it ended."""
    said = strip_fences("".join(heard.said))
    failed = heard.end if isinstance(heard.end, model_events.ModelFailed) else None
    if said.strip():
        await transcript.add(Draft("assistant", said, finish_reason="error" if failed else "stopped"))
    if failed is None:
        return Stopped(session_id, said)
    too_long = failed.kind == "context_too_long"
    return Failed(session_id, "context_too_long" if too_long else "model", failed.message, said)


def _draft(reply: Reply) -> Draft:
    return Draft(
        "assistant",
        strip_fences(reply.text) or None,
        tool_calls=reply.tool_calls,
        reasoning=strip_fences(reply.reasoning) or None,
        finish_reason=reply.finish_reason,
        token_count=reply.usage.completion_tokens if reply.usage else None,
    )
