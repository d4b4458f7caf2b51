"""What any provider must hold to: run it in the provider's own tests.

    assert await check_provider(MyProvider, context) == []

It takes the provider through a session as the host would, in isolation and with deadlines, and then starts a second one
on the same home. It writes to what the provider writes to: give it a home of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from hermes.memory.isolation import Answer, Hook, HookResult, IsolatedProvider
from hermes.memory.offered import usable_tools
from hermes.memory.provider import FinishedTurn, MemoryProvider, ProviderContext
from hermes.types import Message, ToolSpec

T = TypeVar("T")
DEADLINE = 10.0
NOTHING = type(None)
AWKWARD = ["", "hello", "Grüße, 会话 👋\u0000", "<memory-context>x</memory-context>", "x" * 100_000]


async def check_provider(make: Callable[[], MemoryProvider], context: ProviderContext) -> list[str]:
    """Every violation, one line each; none when the provider holds the contract."""
    found = _check_shape(make)
    for session in (context, replace(context, session_id=f"{context.session_id}-again")):
        found += await _Session(make, session).run()
    return list(dict.fromkeys(found))


def _check_shape(make: Callable[[], MemoryProvider]) -> list[str]:
    made: object = make()
    if not isinstance(made, MemoryProvider):
        return [f"what was made is a {type(made).__name__}, not a MemoryProvider"]
    found = [] if isinstance(getattr(made, "name", None), str) else ["name is not set"]
    for hook, default in inspect.getmembers(MemoryProvider, inspect.iscoroutinefunction):
        if not inspect.iscoroutinefunction(getattr(made, hook)):
            found.append(f"{hook} is not `async def`")
        elif _needs(getattr(made, hook)) > _needs(default) - 1:
            found.append(f"{hook} needs more arguments than the host gives")
    return found


def _needs(function: Callable[..., object]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(parameter.kind in kinds and parameter.default is inspect.Parameter.empty for parameter in parameters)


class _Session:
    """One session, with every hook called as a host does."""

    def __init__(self, make: Callable[[], MemoryProvider], context: ProviderContext) -> None:
        self._provider = IsolatedProvider(make)
        self._context = context
        self._found: list[str] = []

    async def run(self) -> list[str]:
        try:
            if await self._ask("is_available", lambda p: p.is_available(), bool):
                await self._ask("initialize", lambda p: p.initialize(self._context), NOTHING)
                await self._live()
        finally:
            self._provider.close()
        return self._found

    async def _live(self) -> None:
        context = self._context
        blocks = [await self._ask("system_prompt_block", lambda p: p.system_prompt_block(), str) for _ in range(2)]
        if blocks[0] != blocks[1]:
            self._found.append("system_prompt_block changes within a session")
        for number, text in enumerate(AWKWARD):
            await self._turn(number, text)
        await self._ask("on_pre_compress", lambda p: p.on_pre_compress([_message(context, 1, "hello")]), NOTHING)
        await self._ask("on_pre_compress", lambda p: p.on_pre_compress([]), NOTHING)
        await self._tools()
        await self._values()
        await self._ask("on_session_switch", lambda p: p.on_session_switch(replace(context, session_id="s-2")), NOTHING)
        await self._ask("on_session_end", lambda p: p.on_session_end(context.session_id), NOTHING)
        await self._ask("shutdown", lambda p: p.shutdown(), NOTHING)

    async def _turn(self, number: int, text: str) -> None:
        user, assistant = (
            _message(self._context, 2 * number + 1, text),
            _message(self._context, 2 * number + 2, "reply"),
        )
        turn = FinishedTurn(self._context.session_id, (user,), assistant if number % 2 else None)
        await self._ask("on_turn_start", lambda p: p.on_turn_start(self._context.session_id, text), NOTHING)
        await self._ask("prefetch", lambda p: p.prefetch(text), str)
        await self._ask("sync_turn", lambda p: p.sync_turn(turn), NOTHING)
        await self._ask("queue_prefetch", lambda p: p.queue_prefetch(text), NOTHING)
        await self._ask("on_memory_write", lambda p: p.on_memory_write("user", "add", text), NOTHING)
        await self._ask("on_delegation", lambda p: p.on_delegation(text, "result"), NOTHING)

    async def _tools(self) -> None:
        given = await self._ask("tool_schemas", lambda p: p.tool_schemas(), (list, tuple))
        good, problem = usable_tools(given or (), ())
        if problem:
            self._found.append(f"tool_schemas returned {problem}")
        for spec in good:
            await self._call(spec)
        unknown = await self._provider.call(
            "handle_tool_call", lambda p: p.handle_tool_call("no_such_tool", {}), expect=str, deadline=DEADLINE
        )
        if isinstance(unknown, Answer):
            self._found.append("handle_tool_call answers for a tool that it does not have; it should raise")

    async def _call(self, spec: ToolSpec) -> None:
        """A tool may refuse arguments by raising; it may not hang or answer with something that is no text."""
        for arguments in ({}, dict.fromkeys(spec.parameters.get("properties", {}), "x")):

            async def call(provider: MemoryProvider, arguments: dict[str, str] = arguments) -> str:
                return await provider.handle_tool_call(spec.name, arguments)

            result = await self._provider.call(spec.name, call, expect=str, deadline=DEADLINE)
            if not isinstance(result, Answer) and " failed: " not in result.reason:
                self._found.append(result.reason)

    async def _values(self) -> None:
        async def flat(provider: MemoryProvider) -> bool:
            signature = provider.cache_busting_signature()
            return signature is None or _is_flat(signature, provider.name)

        async def paths(provider: MemoryProvider) -> bool:
            return all(isinstance(path, Path) for path in provider.backup_paths())

        async def status(provider: MemoryProvider) -> bool:
            return _is_json(await provider.status())

        for hook, ask, wanted in (
            ("cache_busting_signature", flat, "None or a flat dict of `name.key` and plain values"),
            ("backup_paths", paths, "paths"),
            ("status", status, "something that JSON can say"),
        ):
            if await self._ask(hook, ask, bool) is False:
                self._found.append(f"{hook} should return {wanted}")

    async def _ask(self, hook: str, run: Hook[T], expect: type[T] | tuple[type, ...]) -> T | None:
        result: HookResult[T] = await self._provider.call(hook, run, expect=expect, deadline=DEADLINE)
        await asyncio.sleep(0)
        if isinstance(result, Answer):
            return result.value
        self._found.append(result.reason)
        return None


def _message(context: ProviderContext, number: int, text: str) -> Message:
    role = "user" if number % 2 else "assistant"
    return Message(id=number, session_id=context.session_id, role=role, content=text, timestamp=float(number))


def _is_flat(value: Mapping[Any, Any], name: str) -> bool:
    plain = all(item is None or isinstance(item, str | int | float | bool) for item in value.values())
    return plain and all(str(key).startswith(f"{name}.") for key in value)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return isinstance(value, Mapping)
