"""Model ↔ tools, until the model has nothing more to call: one straight path, since a failure is an event too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import count

from msgspec import Struct, field
from msgspec.structs import replace

from hermes.agent.stopping import heeding, unless_done, unless_stopped
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

STOPPED_TOOL = "[The person stopped the turn before this call had a result.]"
MOST_PROGRESS = 100
"""Lines of progress that wait to be seen."""
EMPTY_REPLY = "the model answered with nothing; try again, or try another model"
CALL_FOR_REPLY = "the model answered with a tool call, and is offered no tools; try again, or try another model"
NO_TOOLS = "[There are no tools here. Answer in plain words.]"
"""What a model is told that called a tool and is offered none."""


class Responder(Struct, frozen=True):
    """What answers in a conversation: a model and the tools it may call, for at most `max_steps` rounds of `max_calls`
    calls each."""

    model: Model
    toolbox: Toolbox
    max_steps: int
    max_calls: int = 32


class _Heard(Struct):
    """What came of one request: how it ended, or None when the person stopped it."""

    names: frozenset[str]
    """The tools that a written call may name."""
    calls: CallStrainer
    end: Completed | model_events.ModelFailed | None = None
    said: list[str] = field(default_factory=list)
    """What may be shown of the text."""
    strainer: FenceStrainer = field(default_factory=FenceStrainer)


async def converse(
    speaker: Responder, transcript: Transcript, session_id: str, stop: asyncio.Event
) -> AsyncGenerator[TurnEvent, None]:
    """Go on until there is a reply. The last event is Replied, Stopped or Failed."""
    shrunk = asked_again = False
    for step in count():
        tools = speaker.toolbox.specs if step < speaker.max_steps else ()
        heard = _Heard(speaker.toolbox.names, CallStrainer(speaker.toolbox.names))
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
                yield Notice("The model found the conversation too long; it was compressed and is asked again.")
                continue
        if step >= speaker.max_steps:
            heard.end = _insist_on_reply(heard.end, step)
        if not isinstance(heard.end, Completed):
            yield await _break_off(transcript, session_id, heard)
            return
        reply = heard.end.reply
        if reply.tool_calls and not tools:
            if asked_again:
                yield Failed(session_id, "model", CALL_FOR_REPLY)
                return
            asked_again = True
            if "".join(heard.said).strip():
                yield TextDelta("\n\n")
            continue
        if not reply.tool_calls:
            if cut := _cut_of(reply):
                yield Notice(cut)
            yield await _finish(transcript, session_id, reply)
            return
        calls, remark = _as_many_as_allowed(reply.tool_calls, speaker.max_calls)
        if remark:
            yield Notice(remark)
        await transcript.add(_draft(replace(reply, tool_calls=calls)))
        async with aclosing(_run_tools(speaker.toolbox, transcript, calls, stop, remark)) as events:
            async for event in events:
                yield event
        if stop.is_set():
            yield Stopped(session_id, strip_fences(reply.text))
            return


def _insist_on_reply(
    end: Completed | model_events.ModelFailed | None, steps: int
) -> Completed | model_events.ModelFailed | None:
    """The last round offers no tools, so that the model has to answer. Calls that it makes all the same are not run."""
    if isinstance(end, Completed) and end.reply.tool_calls:
        line = f"no reply after {steps} rounds of tool calls; `agent.max_steps` allows more"
        return model_events.ModelFailed("bad_reply", line, retryable=False)
    return end


async def _listen(
    model: Model, request: ModelRequest, stop: asyncio.Event, heard: _Heard
) -> AsyncGenerator[TurnEvent, None]:
    """One request. Leaves what it heard in `heard`; stops listening as soon as the person says so."""
    async with heeding(stop) as stopped:
        async with aclosing(model.stream(request)) as stream:
            while not stop.is_set():
                event = await unless_done(stopped, anext(stream, None))
                if event is None:
                    break
                if shown := _show(event, heard):
                    yield shown
        if rest := _hear_end(heard):
            yield TextDelta(rest)


def _hear_end(heard: _Heard) -> str:
    """Take calls that were written as text for calls; what else was held back can be shown."""
    if isinstance(heard.end, Completed):
        heard.end = Completed(with_written_calls(heard.end.reply, heard.names))
        is_call = bool(heard.end.reply.tool_calls)
    else:
        is_call = heard.calls.holds_call
    rest = heard.calls.end(is_call=is_call)
    heard.said.append(rest)
    return heard.strainer.feed(rest) + heard.strainer.end()


def _without_tools(messages: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """The messages, with the person's last one saying that there are no tools."""
    place = max((place for place, message in enumerate(messages) if message["role"] == "user"), default=None)
    if place is None:
        return messages
    plain = {**messages[place], "content": f"{messages[place]['content']}\n\n{NO_TOOLS}"}
    return [*messages[:place], plain, *messages[place + 1 :]]


def _was_too_long(heard: _Heard) -> bool:
    return (
        isinstance(heard.end, model_events.ModelFailed) and heard.end.kind == "context_too_long" and not any(heard.said)
    )


def _show(event: ModelEvent, heard: _Heard) -> TurnEvent | None:
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


def _as_many_as_allowed(calls: tuple[ToolCall, ...], most: int) -> tuple[tuple[ToolCall, ...], str]:
    """The calls that are run, and what to say of the others."""
    if len(calls) <= most:
        return calls, ""
    left = f"The model asked for {len(calls):,} tool calls at once; the first {most:,} are run"
    return calls[:most], f"{left}, the others are not (`agent.max_calls`)."


async def _run_tools(
    toolbox: Toolbox, transcript: Transcript, calls: tuple[ToolCall, ...], stop: asyncio.Event, remark: str
) -> AsyncGenerator[TurnEvent, None]:
    """Run the calls in order, each result recorded before the next begins; `remark` goes with the last one."""
    for call in calls:
        yield ToolStarted(call.id, call.name, call.arguments)
        running = _Running(toolbox, call, stop)
        async with aclosing(running.progress()) as told:
            async for text in told:
                yield ToolProgress(call.id, call.name, text)
        result = running.result
        if remark and call is calls[-1]:
            result = replace(result, text=f"{result.text}\n[{remark}]")
        await transcript.add(Draft("tool", result.text, tool_call_id=call.id, tool_name=call.name))
        for event in result.events:
            yield event
        yield ToolFinished(call.id, call.name, result.text, result.ok)


class _Running(Struct):
    """A tool at work. Go through `progress`, then `result` is there: also when the person stopped it."""

    toolbox: Toolbox
    call: ToolCall
    stop: asyncio.Event
    result: ToolResult = ToolResult(STOPPED_TOOL, ok=False)

    async def progress(self) -> AsyncGenerator[str, None]:
        """What it does, as it tells."""
        if self.stop.is_set():
            return
        told: asyncio.Queue[str] = asyncio.Queue(MOST_PROGRESS)
        running = asyncio.ensure_future(self._call_with(told))
        stopped = asyncio.ensure_future(self.stop.wait())
        telling = asyncio.ensure_future(told.get())
        try:
            while True:
                await asyncio.wait({running, stopped, telling}, return_when=asyncio.FIRST_COMPLETED)
                if telling.done():
                    yield telling.result()
                    telling = asyncio.ensure_future(told.get())
                elif running.done():
                    self.result = running.result()
                    return
                else:
                    return
        finally:
            for task in (running, stopped, telling):
                task.cancel()

    async def _call_with(self, told: asyncio.Queue[str]) -> ToolResult:
        def tell(text: str) -> None:
            if not told.full():  # nobody needs to see every step of something that fast
                told.put_nowait(text)

        PROGRESS.set(tell)
        return await self.toolbox.call(self.call)


def _cut_of(reply: Reply) -> str:
    """What a person should know of a reply that is not whole; "" for one that is."""
    if reply.cut_at is not None:
        return f"The reply was cut off after {reply.cut_at:,} characters; `model.longest_reply` allows more."
    return (
        "The reply is not whole: the model came to its own limit." if reply.finish_reason == FINISHED_BY_LENGTH else ""
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


async def _break_off(transcript: Transcript, session_id: str, heard: _Heard) -> TurnEvent:
    """Keep what was said, and say why there is no more."""
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
