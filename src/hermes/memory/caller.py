"""The single caller of a provider. A turn knows only this: before, after, before a compression, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from hermes.memory.health import Health
from hermes.memory.isolation import Answer, Hook, HookResult, IsolatedProvider, Missed
from hermes.memory.offered import usable_tools
from hermes.memory.provider import FinishedTurn, MemoryProvider, ProviderContext
from hermes.types import Json, Message, ToolSpec

T = TypeVar("T")

BLOCK, RECALL, RESULT = 16_000, 32_000, 64_000
"""Characters that a provider may bring; more would crowd the conversation out of the model's window."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a person may be kept waiting, by occasion."""

    first_turn: float = 3.0
    turn: float = 2.0
    tool: float = 30.0
    compress: float = 5.0
    close: float = 5.0


@dataclass(frozen=True, slots=True)
class Recall:
    """What memory brought for one turn; `missed` says why it brought nothing, when it should have."""

    text: str = ""
    missed: str | None = None


class Memory:
    """The memory of one agent: a provider in isolation, or none. Made once per session, closed once."""

    def __init__(
        self, name: str, make: Callable[[], MemoryProvider] | None, context: ProviderContext, deadlines: Deadlines
    ) -> None:
        self.name = name
        self.health = Health(name)
        self._context = context
        self._deadlines = deadlines
        self._provider = IsolatedProvider(make) if make is not None else None
        self._starting: asyncio.Task[bool] | None = None
        self._start_is_at = "is_available"
        self._behind: set[asyncio.Task[None]] = set()
        self._one_by_one = asyncio.Lock()
        self._closed = False

    @classmethod
    def none(cls, context: ProviderContext) -> Memory:
        """The memory of an agent that has none."""
        return cls("none", None, context, Deadlines())

    def without_provider(self) -> Memory:
        """The same for an incognito turn: there is nobody to ask and nobody to tell."""
        return Memory.none(self._context)

    @property
    def state(self) -> Literal["off", "ok", "failing"]:
        """What a status line shows."""
        return "off" if self._provider is None else "failing" if self.health.failing else "ok"

    @property
    def failures(self) -> int:
        """How often the provider gave nothing that could be used."""
        return self.health.failures

    def take_notices(self) -> list[str]:
        """What a person should hear now: said once when it starts to fail and once when it works again."""
        return self.health.take_notices()

    def begin(self, *, first: bool) -> float:
        """A turn begins: the moment until which all its questions to the provider together may take."""
        return self._in(self._deadlines.first_turn if first else self._deadlines.turn)

    async def system_prompt_block(self, until: float) -> str:
        """The provider's static text for the system prompt."""
        found = await self._ask("system_prompt_block", lambda p: p.system_prompt_block(), str, until, _longer(BLOCK))
        return found.value[:BLOCK] if isinstance(found, Answer) else ""

    async def tools(self, until: float, taken: Collection[str] = ()) -> tuple[ToolSpec, ...]:
        """The provider's tools; those that are malformed or named like one of `taken` are left out and reported."""
        found = await self._ask(
            "tool_schemas",
            lambda p: p.tool_schemas(),
            (list, tuple),
            until,
            lambda given: usable_tools(given, taken)[1],
        )
        return usable_tools(found.value, taken)[0] if isinstance(found, Answer) else ()

    async def before_turn(self, session_id: str, text: str, until: float) -> Recall:
        """What to recall for this turn."""
        if self._provider is None:
            return Recall()
        await self._ask("on_turn_start", lambda p: p.on_turn_start(session_id, text), type(None), until)
        found = await self._ask("prefetch", lambda p: p.prefetch(text), str, until, _longer(RECALL))
        return Recall(found.value[:RECALL]) if isinstance(found, Answer) else Recall(missed=found.reason)

    def after_turn(self, turn: FinishedTurn) -> None:
        """Tell the provider of a finished turn, off the turn."""
        self._off_the_turn("sync_turn", lambda p: p.sync_turn(turn))
        self._off_the_turn("queue_prefetch", lambda p: p.queue_prefetch(turn.text))

    def note_written(self, target: str, action: Literal["add", "replace", "remove"], text: str) -> None:
        """Mirror a change of the built-in notes, off the turn."""
        self._off_the_turn("on_memory_write", lambda p: p.on_memory_write(target, action, text))

    def delegated(self, task: str, result: str) -> None:
        """Tell of a sub-agent's work, off the turn."""
        self._off_the_turn("on_delegation", lambda p: p.on_delegation(task, result))

    async def before_compress(self, messages: Sequence[Message]) -> None:
        """Give the provider a last look at what leaves the window, within the deadline."""
        await self._ask(
            "on_pre_compress", lambda p: p.on_pre_compress(messages), type(None), self._in(self._deadlines.compress)
        )

    async def call_tool(self, name: str, arguments: Mapping[str, Json]) -> HookResult[str]:
        """Run one of the provider's tools. Missed says what failed."""
        until = self._in(self._deadlines.tool)
        found = await self._ask(
            "handle_tool_call", lambda p: p.handle_tool_call(name, arguments), str, until, _longer(RESULT)
        )
        return Answer(found.value[:RESULT]) if isinstance(found, Answer) else found

    async def settle(self) -> None:
        """Return when all that happened so far has been told, or its deadline has passed."""
        while self._behind:
            await asyncio.wait(self._behind)

    async def close(self) -> None:
        """Finish what is under way and let the provider go, all within one deadline."""
        if self._provider is None:
            return
        begun, patience = self._in(0), self._deadlines.close
        if self._behind:
            await asyncio.wait(self._behind, timeout=patience / 3)
        if self._starting is not None and self._starting.done():  # one that is still starting has nothing to finish
            session_id = self._context.session_id
            await self._ask("on_session_end", lambda p: p.on_session_end(session_id), type(None), begun + patience / 2)
            await self._ask("shutdown", lambda p: p.shutdown(), type(None), begun + patience)
        for task in [*self._behind, *([self._starting] if self._starting else [])]:
            task.cancel()
        self._closed = True
        self._provider.close()

    async def _ask(
        self,
        hook: str,
        run: Hook[T],
        expect: type[T] | tuple[type, ...],
        until: float,
        flaw: Callable[[T], str] = lambda _: "",
    ) -> HookResult[T]:
        """Call one hook until then. An answer that has a `flaw` is reported, and given all the same."""
        result = await self._ask_in_time(hook, run, expect, until)
        flawed = flaw(result.value) if isinstance(result, Answer) else ""
        self._report(hook, Missed(f"{hook} returned {flawed}") if flawed else result)
        return result

    async def _ask_in_time(
        self, hook: str, run: Hook[T], expect: type[T] | tuple[type, ...], until: float
    ) -> HookResult[T]:
        if self._provider is None or self._closed:
            return Missed(f"{hook} was skipped, there is no provider", skipped=True)
        now = asyncio.get_running_loop().time
        if not await self._started(until - now()):
            return Missed(f"{hook} was skipped, the provider has not started", skipped=True)
        if until <= now():
            return Missed(f"{hook} was skipped, the time for memory was used up", skipped=True)
        return await self._provider.call(hook, run, expect=expect, deadline=until - now())

    def _in(self, seconds: float) -> float:
        return asyncio.get_running_loop().time() + seconds

    async def _started(self, deadline: float) -> bool:
        """Start the provider once, whoever asks first; others wait for the same start."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        done, _ = await asyncio.wait({self._starting}, timeout=max(0.0, deadline))
        if not done:
            self._report(self._start_is_at, Missed(f"{self._start_is_at} has not come back"))
        return bool(done) and self._starting.result()

    async def _start(self) -> bool:
        assert self._provider is not None, "only a provider is started"
        until, now = self._in(self._deadlines.tool), asyncio.get_running_loop().time
        available = await self._provider.call(
            "is_available", lambda p: p.is_available(), expect=bool, deadline=self._deadlines.tool
        )
        if isinstance(available, Answer) and not available.value:
            available = Missed("is_available says that it is not configured")
        self._report("is_available", available)
        if not isinstance(available, Answer):
            return False
        self._start_is_at = "initialize"
        ready = await self._provider.call(
            "initialize", lambda p: p.initialize(self._context), expect=type(None), deadline=max(0.01, until - now())
        )
        self._report("initialize", ready)
        return isinstance(ready, Answer)

    def _off_the_turn(self, hook: str, run: Hook[None]) -> None:
        """Tell the provider something later, in the order in which it happened."""
        if self._provider is None or self._closed:
            return

        async def call() -> None:
            async with self._one_by_one:
                await self._ask(hook, run, type(None), self._in(self._deadlines.tool))

        task = asyncio.create_task(call())
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    def _report(self, hook: str, result: HookResult[T]) -> None:
        if isinstance(result, Answer):
            self.health.worked(hook)
        elif result.skipped:
            self.health.skipped()
        else:
            self.health.missed(hook, result.reason)


def _longer(longest: int) -> Callable[[str], str]:
    return lambda text: f"{len(text)} characters, the first {longest} are used" if len(text) > longest else ""
