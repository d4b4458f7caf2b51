"""Whatever a hook does, the turn goes on within its deadline, and one line names provider and hook."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from hermes.memory.isolation import Answer, Missed

from hermes.memory.caller import BLOCK, RECALL, RESULT, Deadlines, Memory
from hermes.memory.provider import FinishedTurn, MemoryProvider
from hermes.types import Message, ToolSpec
from tests.memory.providers import CONTEXT, LOOKUP, PATIENT, SHORT, TROUBLES, Recorder, Troubled

USER = Message(id=1, session_id="s1", role="user", content="hello", timestamp=0.0)
TURN = FinishedTurn("s1", (USER,), None)
HOOKS = [
    *("is_available", "initialize", "system_prompt_block", "tool_schemas", "on_turn_start", "prefetch", "sync_turn"),
    *("queue_prefetch", "on_memory_write", "on_delegation", "on_pre_compress", "handle_tool_call"),
    *("on_session_end", "shutdown"),
]
UNCALLED = {"on_session_switch", "cache_busting_signature", "status", "backup_paths", "name"}
"""Hooks that no turn calls yet."""


async def live(memory: Memory, *, first: bool = False) -> None:
    """Everything that a turn asks of its memory."""
    until = memory.begin(first=first)
    await memory.system_prompt_block(until)
    await memory.tools(until)
    await memory.before_turn("s1", "hello", until)
    memory.after_turn(TURN)
    memory.note_written("user", "add", "likes figs")
    memory.delegated("task", "result")
    await memory.settle()
    await memory.before_compress([USER])
    await memory.call_tool("lookup", {"what": "figs"})


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged, and that none of it carries a traceback."""
    assert not any(record.exc_info for record in caplog.records)
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


def test_every_hook_is_either_tried_here_or_called_by_nobody() -> None:
    public = {name for name in vars(MemoryProvider) if not name.startswith("_")} | set(MemoryProvider.__annotations__)
    assert public == {*HOOKS, *UNCALLED}


@pytest.mark.contract("4.3", "4.8")
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_in_trouble_costs_its_deadline_and_one_line(
    hook: str, trouble: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    provider = Troubled(hook, TROUBLES[trouble])
    memory = Memory("troubled", lambda: provider, CONTEXT, SHORT)
    begun = time.monotonic()
    await live(memory, first=True)
    assert time.monotonic() - begun < 0.3 * 8, "a turn waits for each occasion's deadline at most"
    begun = time.monotonic()
    await memory.close()
    assert time.monotonic() - begun < 0.6 + 0.5
    said = memory.take_notices()
    assert len(said) == 1, said
    assert said[0].startswith(f"memory provider troubled: {hook} ")
    assert "\n" not in said[0]
    assert lines(caplog) == [said[0].removesuffix("; going on without it").split(" (so did")[0]]
    assert memory.failures >= 1
    assert memory.state == "failing"
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.contract("4.8")
@pytest.mark.parametrize("trouble", ["raise_error", "hang"])
@pytest.mark.parametrize(
    "hook", [h for h in HOOKS if h not in ("is_available", "initialize", "on_session_end", "shutdown")]
)
async def test_trouble_is_said_once_when_it_starts_and_once_when_it_ends(
    hook: str, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    provider = Troubled(hook, TROUBLES[trouble])
    memory = Memory("troubled", lambda: provider, CONTEXT, SHORT)
    said: list[str] = []
    for _ in range(3):
        await live(memory)
        said += memory.take_notices()
    assert len(said) == 1
    assert memory.failures >= 3
    states = [str(memory.state)]
    provider.troubled = False
    for _ in range(2):
        await live(memory)
        said += memory.take_notices()
    assert said[1:] == [f"memory provider troubled works again ({hook})"]
    assert len(lines(caplog)) == 2
    assert [*states, memory.state] == ["failing", "ok"]
    await memory.close()
    assert memory.take_notices() == []


@pytest.mark.contract("4.8")
async def test_a_provider_whose_every_hook_fails_is_said_in_one_line_per_turn_at_most() -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("broken")

    class Broken(MemoryProvider):
        name = "broken"

        async def is_available(self) -> bool:
            return True

        async def initialize(self, context: object) -> None:
            for hook in HOOKS[2:]:
                setattr(self, hook, fail)

    memory = Memory("broken", Broken, CONTEXT, SHORT)
    await live(memory)
    [line] = memory.take_notices()
    assert line.startswith("memory provider broken: system_prompt_block failed: RuntimeError: broken (so did ")
    assert "(so did tool_schemas, on_turn_start, prefetch, sync_turn" in line
    await live(memory)
    assert memory.take_notices() == []
    await memory.close()


NONSENSE: list[Any] = [None, 7, "text", b"bytes", [1, None], {"a": 1}, object(), lambda: "x", float("nan")]
GOOD: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(HOOKS, (type(None),)),
    **dict.fromkeys(("system_prompt_block", "prefetch", "handle_tool_call"), (str,)),
    "tool_schemas": (),
    "is_available": (),
}


@pytest.mark.contract("4.8")
@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_that_returns_nonsense_is_said_and_does_no_harm(hook: str) -> None:
    for value in NONSENSE:

        async def answer(value: Any = value) -> Any:
            return value

        memory = Memory("odd", partial(Troubled, hook, answer), CONTEXT, SHORT)
        until = memory.begin(first=True)
        assert isinstance(await memory.system_prompt_block(until), str)
        assert all(isinstance(spec, ToolSpec) for spec in await memory.tools(until))
        assert isinstance((await memory.before_turn("s1", "x", until)).text, str)
        await live(memory)
        await memory.close()
        said = memory.take_notices()
        assert (said == []) == isinstance(value, GOOD[hook]), (value, said)
        assert all(hook in line and "\n" not in line for line in said)


@pytest.mark.parametrize(
    ("given", "left", "said"),
    [
        ([LOOKUP, 3], ["lookup"], "a int, which is no ToolSpec"),
        ([LOOKUP, LOOKUP], ["lookup"], "two tools 'lookup'"),
        ([ToolSpec("memory", "x", {}), LOOKUP], ["lookup"], "a tool 'memory', which is a built-in one"),
        ([ToolSpec("no good", "x", {})], [], "a tool whose name"),
        ([ToolSpec("", "x", {})], [], "a tool whose name"),
        ([ToolSpec(None, "x", {})], [], "a tool whose name"),  # type: ignore[arg-type]
        ([ToolSpec("a", None, {})], [], "'a' without a description"),  # type: ignore[arg-type]
        ([ToolSpec("a", "x", None)], [], "'a' whose parameters are no JSON schema"),
        ([ToolSpec("a", "x", {"b": object()})], [], "'a' whose parameters are no JSON schema"),
        ([ToolSpec(f"t{n}", "x", {}) for n in range(1000)], [f"t{n}" for n in range(64)], "more tools than"),
    ],
)
async def test_tools_that_no_endpoint_would_take_are_left_out_and_said(given: Any, left: list[str], said: str) -> None:
    async def answer() -> Any:
        return given

    memory = Memory("odd", lambda: Troubled("tool_schemas", answer), CONTEXT, PATIENT)
    for turn in range(2):
        offered = await memory.tools(memory.begin(first=True), taken={"memory"})
        assert [spec.name for spec in offered] == left
        notices = memory.take_notices()
        assert len(notices) == (1 if turn == 0 else 0)
        assert turn or said in notices[0]
    await memory.close()


@pytest.mark.contract("4.8")
@pytest.mark.parametrize(
    ("hook", "longest", "ask"),
    [
        ("prefetch", RECALL, lambda m: m.before_turn("s1", "x", m.begin(first=True))),
        ("system_prompt_block", BLOCK, lambda m: m.system_prompt_block(m.begin(first=True))),
        ("handle_tool_call", RESULT, lambda m: m.call_tool("lookup", {})),
    ],
)
async def test_text_without_end_is_cut_and_said_once(
    hook: str, longest: int, ask: Callable[[Memory], Awaitable[Any]]
) -> None:
    async def answer() -> str:
        return "x" * 5_000_000

    memory = Memory("endless", lambda: Troubled(hook, answer), CONTEXT, PATIENT)
    for turn in range(2):
        found = await ask(memory)
        text = found if isinstance(found, str) else found.value if isinstance(found, Answer) else found.text
        assert len(text) == longest
        assert len(memory.take_notices()) == (1 if turn == 0 else 0)
    await memory.close()


async def test_what_a_blocked_thread_holds_up_is_put_down_to_the_hook_that_blocks_it() -> None:
    memory = Memory("blocked", lambda: Troubled("sync_turn", TROUBLES["block_thread"]), CONTEXT, SHORT)
    await memory.tools(memory.begin(first=True))
    memory.after_turn(TURN)
    await asyncio.sleep(0)
    assert (await memory.before_turn("s1", "x", memory.begin(first=False))).text == ""
    [line] = memory.take_notices()
    assert "sync_turn" in line
    recall = await memory.before_turn("s1", "x", memory.begin(first=False))
    assert "skipped" in (recall.missed or "")
    await memory.close()


async def test_what_happened_is_told_in_order_one_thing_at_a_time() -> None:
    running, most, told = 0, 0, []

    class Slow(Recorder):
        async def on_memory_write(self, target: str, action: str, text: str) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            told.append(text)
            running -= 1

    memory = Memory("slow", Slow, CONTEXT, PATIENT)
    for number in range(20):
        memory.note_written("user", "add", str(number))
    await memory.close()
    assert told == [str(number) for number in range(20)]
    assert most == 1


async def test_a_closed_memory_is_silent_and_its_thread_is_gone() -> None:
    before = threading.active_count()
    provider = Recorder()
    memory = Memory("recorder", lambda: provider, CONTEXT, PATIENT)
    await live(memory)
    await memory.close()
    assert provider.hooks()[-2:] == ["on_session_end", "shutdown"]
    assert threading.active_count() == before
    memory.note_written("user", "add", "too late")
    assert isinstance(await memory.call_tool("lookup", {}), Missed)
    assert provider.hooks()[-1] == "shutdown"


async def test_a_memory_that_was_never_asked_starts_no_provider() -> None:
    provider = Recorder()
    memory = Memory("recorder", lambda: provider, CONTEXT, PATIENT)
    await memory.close()
    assert provider.calls == []


@pytest.mark.contract("4.3")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: 1 / 0, "is_available failed: ZeroDivisionError: division by zero"),
        (lambda: None, "is_available failed: what was made is a NoneType, not a MemoryProvider"),
        (lambda: sys.exit(2), "is_available failed: SystemExit: 2"),
        (lambda: time.sleep(1), "is_available has not come back"),
    ],
)
async def test_a_provider_that_cannot_be_made_is_said_once_and_the_host_goes_on(make: Any, said: str) -> None:
    memory = Memory("odd", make, CONTEXT, SHORT)
    notices: list[str] = []
    for _ in range(2):
        await live(memory)
        notices += memory.take_notices()
    assert notices == [f"memory provider odd: {said}; going on without it"]
    await memory.close()


async def test_a_provider_that_is_not_configured_is_said_once() -> None:
    async def no() -> bool:
        return False

    provider = Troubled("is_available", no)
    memory = Memory("bare", lambda: provider, CONTEXT, SHORT)
    for _ in range(2):
        await live(memory)
    assert memory.take_notices() == [
        "memory provider bare: is_available says that it is not configured; going on without it"
    ]
    await memory.close()
    assert set(provider.hooks()) == {"is_available"}


async def test_a_slow_start_misses_the_first_turn_and_serves_the_next() -> None:
    gate = threading.Event()

    async def start_late() -> None:
        await asyncio.to_thread(gate.wait)

    deadlines = Deadlines(first_turn=0.1, turn=10, tool=10)
    memory = Memory("slow", lambda: Troubled("initialize", start_late), CONTEXT, deadlines)
    assert (await memory.before_turn("s1", "x", memory.begin(first=True))).text == ""
    assert memory.take_notices() == ["memory provider slow: initialize has not come back; going on without it"]
    gate.set()
    assert (await memory.before_turn("s1", "x", memory.begin(first=False))).text == "recalled for x"
    assert memory.take_notices() == ["memory provider slow works again (initialize)"]
    await memory.close()


@pytest.mark.processes
def test_a_process_ends_though_a_provider_hangs_in_every_way_at_once() -> None:
    program = """
        import asyncio, time
        from tests.memory.providers import CONTEXT, SHORT, Recorder
        from hermes.memory.caller import Memory

        class Hanging(Recorder):
            async def prefetch(self, query):
                await asyncio.to_thread(time.sleep, 60)
            async def sync_turn(self, turn):
                await asyncio.Event().wait()
            async def shutdown(self):
                time.sleep(60)

        async def main():
            memory = Memory("hanging", Hanging, CONTEXT, SHORT)
            await memory.before_turn("s1", "x", memory.begin(first=True))
            from tests.memory.test_isolation import TURN
            memory.after_turn(TURN)
            await memory.close()
            print(memory.failures > 0)

        asyncio.run(main())
    """
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("True\n", 0)
    assert "Traceback" not in done.stderr
    assert time.monotonic() - begun < 20
