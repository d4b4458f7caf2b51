"""The single caller of a provider. A turn knows only this: before, after, before a compression, and the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from hermes.memory.isolation import Answer, Hook, HookResult, IsolatedProvider, Missed
from hermes.memory.provider import FinishedTurn, MemoryProvider, ProviderContext
from hermes.types import Json, Message, ToolSpec

T = TypeVar("T")
log = logging.getLogger("hermes.memory")


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
        self.failures = 0
        self._context = context
        self._deadlines = deadlines
        self._provider = IsolatedProvider(make) if make is not None else None
        self._starting: asyncio.Task[bool] | None = None
        self._behind: set[asyncio.Task[None]] = set()
        self._said: str | None = None
        self._notices: list[str] = []

    @property
    def state(self) -> Literal["off", "ok", "failing"]:
        """What a status line shows."""
        return "off" if self._provider is None else "failing" if self._said else "ok"

    def take_notices(self) -> list[str]:
        """What a person should hear now: said once when it starts to fail and once when it works again."""
        taken, self._notices = self._notices, []
        return taken

    def begin(self, *, first: bool) -> float:
        """A turn begins: the moment until which all its questions to the provider together may take."""
        return self._in(self._deadlines.first_turn if first else self._deadlines.turn)

    async def system_prompt_block(self, until: float) -> str:
        """The provider's static text for the system prompt."""
        found = await self._ask("system_prompt_block", lambda p: p.system_prompt_block(), str, until)
        return found.value if isinstance(found, Answer) else ""

    async def tools(self, until: float) -> tuple[ToolSpec, ...]:
        """The provider's tools; malformed ones are left out and reported."""
        found = await self._ask("tool_schemas", lambda p: p.tool_schemas(), (list, tuple), until)
        if not isinstance(found, Answer):
            return ()
        given: Sequence[object] = found.value
        good = tuple(spec for spec in given if isinstance(spec, ToolSpec))
        if len(good) < len(given):
            self._report(Missed("tool_schemas returned something that is no ToolSpec"))
        return good

    async def before_turn(self, session_id: str, text: str, until: float) -> Recall:
        """What to recall for this turn."""

        async def recall(provider: MemoryProvider) -> str:
            await provider.on_turn_start(session_id, text)
            return await provider.prefetch(text)

        found = await self._ask("prefetch", recall, str, until)
        if isinstance(found, Answer):
            return Recall(found.value)
        return Recall(missed=found.reason if self._provider is not None else None)

    def after_turn(self, turn: FinishedTurn) -> None:
        """Tell the provider of a finished turn, off the turn."""

        async def sync(provider: MemoryProvider) -> None:
            await provider.sync_turn(turn)
            await provider.queue_prefetch(turn.user.content or "")

        self._off_the_turn("sync_turn", sync)

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
        return await self._ask(name, lambda p: p.handle_tool_call(name, arguments), str, self._in(self._deadlines.tool))

    async def close(self) -> None:
        """Finish what is under way, within the deadline, and let the provider go."""
        if self._provider is None:
            return
        if self._behind:
            await asyncio.wait(self._behind, timeout=self._deadlines.close)
        if self._starting is not None:
            session_id = self._context.session_id
            for hook, run in (
                ("on_session_end", lambda p: p.on_session_end(session_id)),
                ("shutdown", lambda p: p.shutdown()),
            ):
                await self._ask(hook, run, type(None), self._in(self._deadlines.close))
        self._provider.close()

    async def _ask(self, hook: str, run: Hook[T], expect: type[T] | tuple[type, ...], until: float) -> HookResult[T]:
        if self._provider is None:
            return Missed("no provider")
        now = asyncio.get_running_loop().time
        if not await self._started(until - now()):
            return Missed(self._said or "it did not start", late=True)
        result = await self._provider.call(hook, run, expect=expect, deadline=max(0.01, until - now()))
        self._report(result)
        return result

    def _in(self, seconds: float) -> float:
        return asyncio.get_running_loop().time() + seconds

    async def _started(self, deadline: float) -> bool:
        """Start the provider once, whoever asks first; others wait for the same start."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        done, _ = await asyncio.wait({self._starting}, timeout=max(0.0, deadline))
        if not done:
            self._report(Missed("initialize has not come back", late=True))
        return bool(done) and self._starting.result()

    async def _start(self) -> bool:
        assert self._provider is not None, "only a provider is started"

        async def start(provider: MemoryProvider) -> bool:
            if not await provider.is_available():
                return False
            await provider.initialize(self._context)
            return True

        result = await self._provider.call("initialize", start, expect=bool, deadline=self._deadlines.tool)
        if isinstance(result, Answer) and not result.value:
            result = Missed("it is not configured")
        self._report(result)
        return isinstance(result, Answer)

    def _off_the_turn(self, hook: str, run: Hook[None]) -> None:
        if self._provider is None:
            return

        async def call() -> None:
            await self._ask(hook, run, type(None), self._in(self._deadlines.tool))

        task = asyncio.create_task(call())
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    def _report(self, result: HookResult[T]) -> None:
        """Loud once when it begins, once when it ends."""
        if isinstance(result, Missed):
            self.failures += 1
            if self._said is None:
                log.warning("memory provider %s: %s", self.name, result.reason)
                self._notices.append(f"memory provider {self.name}: {result.reason}; going on without it")
            self._said = result.reason
        elif self._said is not None:
            log.info("memory provider %s works again", self.name)
            self._notices.append(f"memory provider {self.name} works again")
            self._said = None
