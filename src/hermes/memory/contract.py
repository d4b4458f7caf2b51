"""The contract test of providers: run it in a provider's own tests.

    assert await check_plugin(create_plugin, tmp_path) == []

It drives the plugin through conversations as the host would, on a real store in `home`, and delivers everything twice.
It writes to the plugin's server, so give it a separate home and server.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from hermes.clock import SystemClock
from hermes.memory.active import ActiveProvider, Deadlines, Surroundings
from hermes.memory.deliveries import outcomes_flaw
from hermes.memory.offered import address_flaw, is_json, usable_tools
from hermes.memory.plugin_thread import Expected, Hook, HookResult, Returned
from hermes.memory.provider import (
    Address,
    Conversation,
    Entry,
    Fact,
    FactQuery,
    Facts,
    MemoryPlugin,
    MemorySession,
    Notebook,
    Part,
    Question,
    Recalled,
    Said,
    Speaker,
    ToolUse,
)
from hermes.memory.registry import Factory
from hermes.store.store import Store
from hermes.types import Json, Message, ToolSpec

T = TypeVar("T")
HOOK_TIMEOUT_SECONDS = 10.0
DEADLINES = Deadlines(*[HOOK_TIMEOUT_SECONDS] * 8)
NOTHING = type(None)
AWKWARD = ["hello", "Grüße, 会话 👋\u0000", "<memory-context>x</memory-context>", "x" * 100_000]
OWNER = Speaker(is_owner=True)
ANN, BOB = Speaker("17", name="Ann"), Speaker("23", "@bob")
CODE_WORD = "zanzibar-{}"
GROUPS_NOTES = Notebook(None, "telegram", "agent:main:telegram:group:-100")
PLACES = (
    Conversation("s-owner", "cli", "everything", OWNER, directory=Path("work")),
    Conversation("s-ann", "telegram", "own", ANN, "dm", "agent:main:telegram:dm:17"),
    Conversation("s-bob", "telegram", "own", BOB, "dm", "agent:main:telegram:dm:23", title="Stamps & co"),
    Conversation("s-group", "telegram", "here", None, "group", "agent:main:telegram:group:-100"),
)


async def check_plugin(make: Factory, home: Path) -> list[str]:
    """Return all violations of the contract, one line each."""
    found = _check_shape(make)
    async with await Store.open(home / "contract.db", clock=SystemClock(), lock_timeout=30.0) as store:
        for place in PLACES:
            await store.create_session(place.platform, session_id=place.session_id)
        for _ in range(2):  # a second process finds what the first one left
            provider = ActiveProvider("contract", make, store, Surroundings(home), DEADLINES)
            try:
                found += await _Check(provider).run()
            finally:
                await provider.close()
    return list(dict.fromkeys(found))


def _check_shape(make: Factory) -> list[str]:
    if not (isinstance(make, type) and issubclass(make, MemoryPlugin)):
        return []
    found = [] if isinstance(getattr(make, "name", None), str) else ["name is not set"]
    for name, default in inspect.getmembers(MemoryPlugin, inspect.isfunction):
        given = getattr(make, name)
        if inspect.iscoroutinefunction(default) != inspect.iscoroutinefunction(given):
            found.append(f"{name} is {'not ' if inspect.iscoroutinefunction(default) else ''}`async def`")
        elif name != "__init__" and _needs(given) > _needs(default):
            found.append(f"{name} needs more arguments than the host gives")
    return found


def _needs(function: Callable[..., object]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(parameter.kind in kinds and parameter.default is inspect.Parameter.empty for parameter in parameters)


class _Check:
    """One host process that calls every hook."""

    def __init__(self, provider: ActiveProvider) -> None:
        self._provider = provider
        self._found: list[str] = []

    async def run(self) -> list[str]:
        for place in (*PLACES, Notebook(OWNER), Notebook(ANN, "telegram"), GROUPS_NOTES):
            await self._address(place)
        for place in PLACES:
            await self._converse(place)
        await self._kept_apart()
        for place in PLACES[1:]:
            await self._facts(place)
        await self._values()
        return self._found

    async def _address(self, place: Conversation | Notebook) -> Address | None:
        """Check that the address of a place is stable and JSON-compatible."""

        async def ask(plugin: MemoryPlugin) -> Address:
            return plugin.address(place)

        first, second = await self._call("address", ask, Address), await self._call("address", ask, Address)
        if first != second:
            self._found.append("address is not the same twice")
        if first is not None and (flaw := address_flaw(first)):
            self._found.append(f"address returned {flaw}")
        return first

    async def _open(self, place: Conversation) -> tuple[Address, MemorySession] | None:
        async def ask(plugin: MemoryPlugin) -> tuple[Address, MemorySession]:
            address = plugin.address(place)
            return address, plugin.open(replace(place, bound=address.data), address)

        opened = await self._call("open", ask, tuple)
        if opened is None or not isinstance(opened[1], MemorySession):
            self._found.append("open should return a MemorySession")
            return None
        return opened

    async def _converse(self, place: Conversation) -> None:
        opened = await self._open(place)
        if opened is None:
            return
        address, session = opened
        await self._ask("prepare", partial(session.prepare, None), NOTHING)
        for turn, text in enumerate([*AWKWARD, CODE_WORD.format(place.session_id)], start=1):
            question = Question((Said(text, place.person or ANN),), turn, self._until())
            recalled = await self._ask("recall", partial(session.recall, question), Recalled)
            if recalled is not None and not all(isinstance(part, Part) for part in recalled.parts):
                self._found.append("recall returned something that is no Part")
            await self._deliver(_entries(place, address, turn, text))
            await self._ask("prepare", partial(session.prepare, question), NOTHING)
        await self._tools(session, place)
        for leaving in ([], [Message(1, place.session_id, "user", "hello", 1.0)]):
            await self._ask("before_compress", partial(session.before_compress, leaving, self._until()), NOTHING)
        await self._ask("retitled", partial(session.retitled, "Stamps"), NOTHING)
        await self._ask("close", partial(session.close, "exit", self._until()), NOTHING)

    async def _deliver(self, entries: Sequence[Entry]) -> None:
        """Deliver the entries twice, the second time as entries that may have arrived."""
        for tried_at in (None, self._provider.store.clock.now() - 60):
            given = [replace(entry, tried_at=tried_at) for entry in entries]
            until = self._until()

            async def deliver(
                plugin: MemoryPlugin, given: list[Entry] = given, until: float = until
            ) -> Sequence[object]:
                return await plugin.deliver(given, until)

            outcomes = await self._call("deliver", deliver, (list, tuple))
            if outcomes is None:
                return
            if len(outcomes) > len(given):
                self._found.append("deliver returned more outcomes than there were entries")
            if flaw := outcomes_flaw(outcomes):
                self._found.append(f"deliver returned {flaw}")

    async def _kept_apart(self) -> None:
        """Check that nobody recalls another person's private chat, and that a group recalls only its own messages."""
        for place in PLACES[1:]:
            opened = await self._open(place)
            if opened is None:
                return
            for other in (one for one in PLACES if one is not place):
                asked = Said(f"what about {CODE_WORD.format(other.session_id)}?", place.person or BOB)
                question = Question((asked,), 9, self._until())
                recalled = await self._ask("recall", partial(opened[1].recall, question), Recalled)
                said = (
                    " ".join(str(getattr(part, "text", "")) for part in recalled.parts) if recalled is not None else ""
                )
                if CODE_WORD.format(other.session_id) in said.replace(asked.text, ""):
                    self._found.append(f"recall of {place.session_id} shows what was said in {other.session_id}")
            await self._ask("close", partial(opened[1].close, "exit", self._until()), NOTHING)

    async def _facts(self, place: Conversation) -> None:
        """Check that the facts shown to a person contain nothing that others said."""
        whose = Notebook(place.person, place.platform, None if place.person else place.gateway_session_key)
        found = await self._call("facts", lambda plugin: plugin.facts(whose, FactQuery()), Facts)
        if found is None:
            return
        facts: tuple[object, ...] = found.items
        if not all(isinstance(fact, Fact) and fact.id for fact in facts):
            self._found.append("facts returned something that is no Fact with an id")
            return
        for other in (one for one in PLACES if one is not place):
            if any(CODE_WORD.format(other.session_id) in fact.text for fact in found.items):
                self._found.append(f"facts of {place.session_id} show what was said in {other.session_id}")
        if found.items:
            first = found.items[0]
            await self._call("fact_sources", lambda plugin: plugin.fact_sources(whose, first), (list, tuple))
            await self._call(
                "fact_changes", lambda plugin: plugin.fact_changes(whose, first, undo=False), (list, tuple)
            )

    async def _tools(self, session: MemorySession, place: Conversation) -> None:
        good, problem = usable_tools(session.tools, ())
        if problem:
            self._found.append(f"tools has {problem}")
        speaker = place.person or ANN
        for spec in good:
            await self._call_tool(session, spec, speaker)
        unknown = ToolUse("no_such_tool", {}, "k", self._until())
        result = await self._result("call_tool", lambda _: session.call_tool(unknown, speaker), str)
        if isinstance(result, Returned):
            self._found.append("call_tool answers for a tool that it does not have; it should raise")

    async def _call_tool(self, session: MemorySession, spec: ToolSpec, speaker: Speaker) -> None:
        """Check that a tool neither hangs nor returns something other than text. It may refuse arguments by
        raising."""
        for arguments in ({}, dict.fromkeys(spec.parameters.get("properties", {}), "x")):
            use = ToolUse(spec.name, arguments, f"{spec.name}-{len(arguments)}", self._until())

            async def call(_: MemoryPlugin, use: ToolUse = use) -> str:
                try:
                    return await session.call_tool(use, speaker)
                except Exception:  # noqa: BLE001 - whatever it raises is a refusal
                    return ""

            result = await self._result(spec.name, call, str)
            if not isinstance(result, Returned):
                self._found.append(result.reason)

    async def _values(self) -> None:
        async def flat(plugin: MemoryPlugin) -> bool:
            signature = plugin.cache_busting_signature()
            return signature is None or _is_flat(signature, plugin.name)

        async def paths(plugin: MemoryPlugin) -> bool:
            return all(isinstance(path, Path) for path in plugin.backup_paths())

        async def status(plugin: MemoryPlugin) -> bool:
            said = await plugin.status(self._until())
            return is_json(dict(said))

        for hook, ask, wanted in (
            ("cache_busting_signature", flat, "None or a flat dict of `name.key` and plain values"),
            ("backup_paths", paths, "paths"),
            ("status", status, "something that JSON can say"),
        ):
            if await self._call(hook, ask, bool) is False:
                self._found.append(f"{hook} should return {wanted}")

    def _until(self) -> float:
        return self._provider.store.clock.now() + HOOK_TIMEOUT_SECONDS

    async def _ask(self, hook: str, begin: Callable[[], Awaitable[T]], expect: Expected[T]) -> T | None:
        return await self._call(hook, lambda _: begin(), expect)

    async def _call(self, hook: str, run: Hook[T], expect: Expected[T]) -> T | None:
        result = await self._result(hook, run, expect)
        if isinstance(result, Returned):
            return result.value
        self._found.append(result.reason)
        return None

    async def _result(self, hook: str, run: Hook[T], expect: Expected[T]) -> HookResult[T]:
        return await self._provider.call(hook, run, expect, self._provider.within(HOOK_TIMEOUT_SECONDS), line=hook)


def _entries(place: Conversation, address: Address, turn: int, text: str) -> list[Entry]:
    """Return the outbox entries of a turn, of the kinds that the plugin accepts."""
    key, person = f"{place.session_id}-{turn}", place.person or ANN
    said = Entry(f"{key}-said", "said", address.data, text, float(turn), person, place.session_id)
    reply = Entry(f"{key}-reply", "reply", address.data, "fine", float(turn), None, place.session_id)
    note: Json = {"target": "user", "action": "add", "old": ""}
    noted = Entry(f"{key}-note", "note", address.data, "likes figs", float(turn), person, None, note)
    return [entry for entry in (said, reply, noted) if entry.kind in address.wants]


def _is_flat(value: Mapping[Any, Any], name: str) -> bool:
    plain = all(item is None or isinstance(item, str | int | float | bool) for item in value.values())
    return plain and all(str(key).startswith(f"{name}.") for key in value)
