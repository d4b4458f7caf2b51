"""Misbehaving hooks: the turn continues within its deadline, and one line names provider and hook."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hermes.errors import ProviderError
from hermes.memory.active import Deadlines
from hermes.memory.caller import MAX_BLOCK_CHARS, MAX_RESULT_CHARS, Memory
from hermes.memory.health import LATE_NOTICE, ProviderHealth, Told
from hermes.memory.offered import MAX_RECALL_CHARS
from hermes.memory.plugin_thread import Returned
from hermes.memory.provider import STILL_IN_FORCE, MemoryPlugin, MemorySession, Part, Recalled
from hermes.types import ToolSpec
from tests.memory.providers import (
    CONVERSATION,
    HANGING,
    LOOKUP,
    PATIENT,
    RELEASE_HANGS,
    TROUBLES,
    Recorder,
    Troubled,
    hang,
    hang_in_pool,
    raise_error,
    swallow_cancel,
)
from tests.memory.remembering import active, begin, begin_well, live, turn

HOOKS = ["recall", "prepare", "call_tool", "before_compress", "retitled", "close", "deliver", "shutdown"]
"""Asynchronous hooks, which can hang."""
OTHERS = {
    *(
        "name",
        "summary",
        "is_available",
        "start",
        "address",
        "merge",
        "peers",
        "portraits",
        "preview_merge",
        "open",
        "cache_busting_signature",
        "status",
        "backup_paths",
        "remarks",
    ),
    *("find_remembered", "forget", "facts", "fact_sources", "fact_changes", "warm_up"),
    *("prompt_block", "block_without_tools", "tools", "settings", "save_config", "setup", "commands", "connect"),
    *("settings_in_force", "identify", "preview_mapping", "map_account"),
}
ENDED_BY: dict[str, tuple[str, ...]] = {
    "recall": ("first_turn", "turn"),
    "prepare": ("prepare",),
    "call_tool": ("tool",),
    "before_compress": ("compress",),
    "retitled": ("turn",),
    "close": ("close",),
    "deliver": ("deliver", "compress"),
    "shutdown": ("close",),
}
"""The deadline of each hook, or of a wait for it."""
HANG_TIMEOUT_SECONDS = 200.0


def hasty(*hooks: str) -> Deadlines:
    """Return deadlines that are short only for these hooks."""
    return replace(PATIENT, **{name: 0.5 for hook in hooks for name in ENDED_BY[hook]})


class ReleasingHandler(logging.Handler):
    """A log handler that releases hanging hooks once something is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        RELEASE_HANGS.set()


@pytest.fixture(autouse=True)
def _nothing_hangs_afterwards() -> Iterator[None]:
    RELEASE_HANGS.clear()
    yield
    RELEASE_HANGS.set()


@pytest.fixture
def release_hangs_on_report() -> Iterator[None]:
    """Release hanging hooks at the first report."""
    handler, log = ReleasingHandler(logging.INFO), logging.getLogger("hermes.memory")
    log.addHandler(handler)
    yield
    log.removeHandler(handler)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged lines; check that none has a traceback."""
    assert not any(record.exc_info for record in caplog.records)
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


def test_every_hook_is_either_tried_here_or_in_a_test_of_its_own() -> None:
    public = {name for kind in (MemoryPlugin, MemorySession) for name in vars(kind) if not name.startswith("_")}
    assert public | {"name"} == {*HOOKS, *OTHERS}


@pytest.mark.contract("4.3", "4.8", "P4")
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_in_trouble_costs_its_deadline_and_one_line(
    tmp_path: Path,
    hook: str,
    trouble: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    release_hangs_on_report: None,
) -> None:
    caplog.set_level(logging.INFO)
    plugin = Troubled(hook, TROUBLES[trouble])
    plugin.troubled = False
    async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
        async with active(tmp_path, plugin) as provider:
            memory = await begin_well(provider)
            is_waited_for = trouble in HANGING or hook == "deliver"  # which is tried again for as long as there is time
            plugin.troubled, provider.deadlines = True, hasty(hook) if is_waited_for else PATIENT
            await live(memory)
            await memory.close()
        said = [line for line in lines(caplog) if "memory provider" in line]
    assert plugin.hooks().count(hook) >= 1
    assert said, "it was said"
    assert said[0].startswith("memory provider troubled: ")
    assert f" {hook} " in said[0]
    assert len([line for line in said if f": {hook} " in line]) <= 1, "once"
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.contract("P5")
async def test_a_conversation_that_ends_during_trouble_reports_no_recovery(tmp_path: Path) -> None:
    plugin = Troubled("recall", raise_error)
    async with active(tmp_path, plugin) as provider:
        memory = await begin(provider)
        await live(memory)
        assert len(memory.take_notices()) == 1
        await memory.close()
        assert memory.take_notices() == []


@pytest.mark.contract("4.3", "4.8")
async def test_a_plugin_that_does_not_start_is_reported_and_not_called_again(tmp_path: Path) -> None:
    class Slow(Recorder):
        async def start(self) -> None:
            raise ProviderError("the record cannot be read", hint="")

    plugin = Slow()
    async with active(tmp_path, plugin) as provider:
        memory = await begin(provider)
        await live(memory)
        assert [line for line in memory.take_notices() if "the record cannot be read" in line]
        assert {call[0] for call in plugin.calls} == {"is_available"}
        await memory.close()


@pytest.mark.contract("4.8", "P5")
@pytest.mark.parametrize("trouble", ["raise_error", "hang"])
@pytest.mark.parametrize("hook", ["recall", "prepare", "call_tool", "before_compress", "retitled"])
async def test_trouble_is_reported_once_when_it_starts_and_once_when_it_ends(
    tmp_path: Path, hook: str, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    plugin = Troubled(hook, TROUBLES[trouble])
    plugin.troubled = False
    async with active(tmp_path, plugin) as provider:
        memory = await begin_well(provider)
        plugin.troubled, provider.deadlines = True, hasty(hook) if trouble in HANGING else PATIENT
        said: list[str] = []
        for _ in range(3):
            await live(memory)
            said += memory.take_notices()
        assert len(said) == 1
        assert said[0].startswith(f"memory provider troubled: {hook} ")
        assert said[0].endswith("; going on without it")
        assert "\n" not in said[0]
        states = [str(memory.state)]
        plugin.troubled, provider.deadlines = False, PATIENT
        for _ in range(2):
            await live(memory)
            said += memory.take_notices()
        assert said[1:] == ["memory provider troubled works again"]
        assert len(lines(caplog)) == 2
        assert [*states, memory.state] == ["failing", "ok"]
        await memory.close()
        assert memory.take_notices() == []


@pytest.mark.contract("P4", "4.8")
@pytest.mark.parametrize("blocked", [hang, hang_in_pool], ids=["hangs", "blocks a thread of the pool"])
async def test_a_conversation_whose_recall_hangs_delays_no_other_and_no_delivery(
    tmp_path: Path, blocked: Callable[[], Awaitable[None]]
) -> None:
    class Half(Recorder):
        async def run(self, hook: str, answer: Any, *args: Any) -> Any:
            if hook == "recall" and args == ("slow",):
                await blocked()
            return await super().run(hook, answer, *args)

    plugin = Half()
    async with active(tmp_path, plugin) as provider:
        slow, quick = await begin_well(provider), await begin_well(provider, replace(CONVERSATION, session_id="s2"))
        for _ in range(3):
            provider.deadlines = hasty("recall")
            assert await turn(slow, "slow") == ""
            provider.deadlines = PATIENT
            assert await turn(quick, "quick", "s2") == "recalled for quick"
        await slow.flush(60)
        await quick.flush(60)
        assert sorted(plugin.told("said")) == ["quick"] * 3 + ["slow"] * 3, "conversations wait for none but themselves"
        assert quick.take_notices() == []
        [line] = slow.take_notices()
        assert "recall took longer than 0." in line


@pytest.mark.contract("P4", "4.8")
async def test_a_tool_runs_while_recall_has_not_come_back(tmp_path: Path) -> None:
    plugin = Troubled("recall", swallow_cancel)
    plugin.troubled = False
    async with active(tmp_path, plugin) as provider:
        memory = await begin_well(provider)
        plugin.troubled, provider.deadlines = True, hasty("recall")
        assert await turn(memory) == ""
        provider.deadlines = PATIENT
        assert await memory.call_tool("lookup", {"what": "figs"}, "k") == Returned("lookup found figs")


@pytest.mark.contract("4.8")
def test_a_provider_with_earlier_values_is_not_reported_as_missing() -> None:
    line = f"its file is broken; {STILL_IN_FORCE}"
    assert Told("diary").news({"configuration": line}) == [f"memory provider diary: {line}"]


@pytest.mark.contract("4.8")
def test_an_outage_is_reported_once_whichever_hooks_fail() -> None:
    told = Told("diary")
    assert told.news({"recall": "it is down"}) == ["memory provider diary: it is down; going on without it"]
    assert told.news({"recall": "it is down", "delivery": "delivery is put off: it is down"}) == []
    assert told.news({"delivery": "delivery is put off: it is down"}) == []
    [flaw] = told.news({"delivery": "it is down", "tools": "tools has no name"})
    assert "tools has no name" in flaw
    assert told.news({"tools": "tools has no name"}) == ["memory provider diary works again, but not all of it"]


@pytest.mark.contract("4.8")
def test_each_new_reason_of_a_hook_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    health = ProviderHealth("diary")
    for reason in ("recall: down", "recall: refused", "recall: down"):
        health.missed("recall", reason)
    health.worked("recall")
    health.missed("recall", "recall: down")
    assert [record.message.partition(": recall: ")[2] for record in caplog.records] == ["down", "refused", "down"]


@pytest.mark.contract("P4")
async def test_a_hook_that_blocks_the_plugins_thread_is_named(tmp_path: Path) -> None:
    begun, free = threading.Event(), threading.Event()

    async def block() -> None:
        begun.set()
        free.wait(HANG_TIMEOUT_SECONDS)

    plugin = Troubled("prepare", block)
    async with active(tmp_path, plugin) as provider:
        memory = await begin(provider)
        await memory.tools(memory.begin())
        assert await asyncio.to_thread(begun.wait, HANG_TIMEOUT_SECONDS)
        provider.deadlines = hasty("recall")
        assert await turn(memory) == ""
        [line] = memory.take_notices()
        assert "prepare blocks its thread" in line or line.startswith("memory provider troubled: prepare")
        free.set()
        provider.deadlines = PATIENT


@pytest.mark.contract("4.8")
async def test_an_outage_is_reported_in_each_conversation_of_the_owner_and_no_other(tmp_path: Path) -> None:
    async with active(tmp_path, Troubled("recall", raise_error)) as provider:
        heard = {}
        for name, reach in (("a", "everything"), ("b", "everything"), ("c", "own"), ("d", "here")):
            memory = await begin(provider, replace(CONVERSATION, session_id=name, reach=reach))
            await turn(memory, session_id=name)
            heard[name] = len(memory.take_notices())
            await turn(memory, session_id=name)
            heard[name] += len(memory.take_notices())
        assert heard == {"a": 1, "b": 1, "c": 0, "d": 0}


NONSENSE: list[Any] = [None, 7, "text", b"bytes", [1, None], {"a": 1}, object(), lambda: "x", float("nan")]
GOOD: dict[str, tuple[type, ...]] = {**dict.fromkeys(HOOKS, (type(None),)), "recall": (), "call_tool": (str,)}


@pytest.mark.contract("4.8")
@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook not in ("deliver", "shutdown", "close")])
async def test_a_hook_that_returns_nonsense_is_reported_and_does_no_harm(tmp_path: Path, hook: str) -> None:
    for place, value in enumerate(NONSENSE):

        async def answer(value: Any = value) -> Any:
            return value

        home = tmp_path / str(place)
        home.mkdir()
        async with active(home, Troubled(hook, answer)) as provider:
            memory = await begin(provider)
            await live(memory)
            said = memory.take_notices()
            assert (said == []) == isinstance(value, GOOD[hook]), (value, said)
            assert all(hook in line and "\n" not in line for line in said)


@pytest.mark.contract("4.8")
async def test_invalid_parts_are_dropped_and_reported(tmp_path: Path) -> None:
    async def answer() -> Recalled:
        return Recalled(("text", Part("all", "figs", 0.0, 1), Part("all", 3, 0.0, 1)))  # type: ignore[arg-type]

    async with active(tmp_path, Troubled("recall", answer), PATIENT) as provider:
        memory = await begin(provider)
        assert await turn(memory) == "figs"
        assert "recall returned something that is no Part" in memory.take_notices()[0]


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
async def test_tools_that_endpoints_would_refuse_are_dropped_and_reported(
    tmp_path: Path, given: Any, left: list[str], said: str
) -> None:
    plugin = Recorder()
    plugin.tools = given
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        for number in range(2):
            offered = await memory.tools(memory.begin(), taken={"memory"})
            assert [spec.name for spec in offered] == left
            notices = memory.take_notices()
            assert len(notices) == (1 if number == 0 else 0)
            assert number or said in notices[0]


async def _recall(memory: Memory) -> str:
    return await turn(memory)


async def _block(memory: Memory) -> str:
    return await memory.prompt_block(memory.begin()) or ""


async def _tool(memory: Memory) -> str:
    found = await memory.call_tool("lookup", {}, "k")
    return found.value if isinstance(found, Returned) else ""


@pytest.mark.contract("4.8")
@pytest.mark.parametrize(
    ("hook", "longest", "ask"),
    [("recall", MAX_RECALL_CHARS, _recall), ("", MAX_BLOCK_CHARS, _block), ("call_tool", MAX_RESULT_CHARS, _tool)],
)
async def test_overlong_text_is_cut_and_reported_once(
    tmp_path: Path, hook: str, longest: int, ask: Callable[[Memory], Awaitable[str]]
) -> None:
    async def answer() -> Any:
        return Recalled((Part("all", "x" * 5_000_000, 0.0, 1),)) if hook == "recall" else "x" * 5_000_000

    plugin = Troubled(hook, answer)
    plugin.block = "x" * 5_000_000 if not hook else ""
    async with active(tmp_path, plugin, PATIENT) as provider:
        memory = await begin(provider)
        for number in range(2):
            assert len(await ask(memory)) == longest
            assert len(memory.take_notices()) == (1 if number == 0 else 0)


@pytest.mark.contract("4.3")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: 1 / 0, "is_available failed: ZeroDivisionError: division by zero"),
        (lambda _: None, "what was made is a NoneType, not a MemoryPlugin"),
        (lambda _: sys.exit(2), "is_available failed: SystemExit: 2"),
    ],
)
async def test_a_plugin_that_cannot_be_created_is_reported_once_and_the_host_continues(
    tmp_path: Path, make: Any, said: str
) -> None:
    await check_reported_once(tmp_path, make, said, PATIENT)


@pytest.mark.contract("4.3")
async def test_a_plugin_whose_creation_hangs_is_reported_once_and_the_host_continues(tmp_path: Path) -> None:
    free = threading.Event()
    said = "is_available has not come back"
    await check_reported_once(tmp_path, lambda _: free.wait(HANG_TIMEOUT_SECONDS), said, hasty("recall"))
    free.set()


async def check_reported_once(home: Path, make: Any, said: str, deadlines: Deadlines) -> None:
    """Run two turns with a plugin that cannot be created, and check the notices."""
    async with active(home, make, deadlines) as provider:
        memory = await begin(provider)
        notices: list[str] = []
        for _ in range(2):
            assert await turn(memory) == ""
            notices += memory.take_notices()
        assert notices == [f"memory provider troubled: {said}; going on without it"]


async def test_a_plugin_that_is_not_configured_is_reported_once_and_opens_nothing(tmp_path: Path) -> None:
    class Bare(Recorder):
        def is_available(self) -> bool:
            return False

    plugin = Bare()
    async with active(tmp_path, plugin) as provider:
        memory = await begin(provider)
        for _ in range(2):
            await turn(memory)
        line = "memory provider troubled: is_available reports that it is not configured; going on without it"
        assert memory.take_notices() == [line]
    assert plugin.calls == []


async def test_a_slow_start_misses_the_first_turn_and_serves_the_next(tmp_path: Path) -> None:
    gate = threading.Event()

    class Slow(Recorder):
        def is_available(self) -> bool:
            gate.wait()
            return super().is_available()

    plugin = Slow()
    async with active(tmp_path, plugin, replace(PATIENT, first_turn=0.1)) as provider:
        memory = await begin(provider)
        assert await turn(memory, "first") == ""
        assert memory.take_notices() == [
            "memory provider troubled: is_available has not come back; going on without it"
        ]
        gate.set()
        assert await turn(memory, "second") == "recalled for second"
        assert memory.take_notices() == ["memory provider troubled works again"]
        await memory.flush(60)
        assert plugin.told() == ["first", "reply to first", "second", "reply to second"]


async def test_late_recalls_in_a_row_are_reported_once(tmp_path: Path) -> None:
    late = {"base": "it was not there in time"}
    found = {
        "known": Recalled((Part("all", "figs", 1.0, 1),)),
        "refreshing": Recalled((Part("all", "figs", 1.0, 1),), late),
        "cold": Recalled(missed=late),
    }

    class Cold(Recorder):
        async def run(self, hook: str, answer: Any, *args: Any) -> Any:
            return found[args[0]] if hook == "recall" else await super().run(hook, answer, *args)

    async with active(tmp_path, Cold(), PATIENT) as provider:
        memory = await begin(provider)
        said = {}
        for number, text in enumerate(["cold", "cold", "cold", "refreshing", "known", "cold"]):
            await turn(memory, text)
            said[number] = memory.take_notices()
            await memory.flush(60)
    line = [LATE_NOTICE]
    assert said == {0: [], 1: line, 2: [], 3: [], 4: [], 5: line}, "at first it was told nothing it could bring"


@pytest.mark.contract("7.5", "P4")
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_warm_up_in_trouble_is_nobodys_trouble(
    tmp_path: Path, trouble: str, capfd: pytest.CaptureFixture[str]
) -> None:
    class Warming(Troubled):
        async def warm_up(self, until: float) -> None:
            begun.set()
            return await self.run("warm_up", None)  # type: ignore[no-any-return]

    begun, plugin = threading.Event(), Warming("warm_up", TROUBLES[trouble])
    async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
        async with active(tmp_path, plugin) as provider:
            provider.warm_up()
            provider.warm_up()
            assert await asyncio.to_thread(begun.wait, HANG_TIMEOUT_SECONDS)
            asyncio.get_running_loop().call_later(0.5, RELEASE_HANGS.set)  # a turn can wait for a blocked thread
            memory = await begin(provider)
            assert await turn(memory) == "recalled for hello"
            assert memory.take_notices() == []
            await memory.close()
    assert plugin.hooks().count("warm_up") == 1
    assert provider.health.failing() == {}
    assert "Traceback" not in capfd.readouterr().err


async def test_leaving_during_a_warm_up_waits_for_nothing(tmp_path: Path) -> None:
    class Warming(Recorder):
        async def warm_up(self, until: float) -> None:
            begun.set()
            try:
                await hang()
            finally:
                await self.run("let go", None)

    begun, plugin = threading.Event(), Warming()
    async with asyncio.timeout(HANG_TIMEOUT_SECONDS), active(tmp_path, plugin, PATIENT) as provider:
        provider.warm_up()
        assert await asyncio.to_thread(begun.wait, HANG_TIMEOUT_SECONDS)
    assert plugin.hooks() == ["is_available", "let go", "shutdown"]


async def test_a_plugins_own_error_text_is_reported_without_the_name_of_a_hook(tmp_path: Path) -> None:
    async def refuse() -> None:
        raise ProviderError("the server refuses the key", hint="")

    async with active(tmp_path, Troubled("prepare", refuse), PATIENT) as provider:
        memory = await begin(provider)
        await turn(memory)
        await memory.settle()
        [line] = memory.take_notices()
    assert line == "memory provider troubled: the server refuses the key; going on without it"


async def test_threads_are_as_many_however_many_conversations_there_are(tmp_path: Path) -> None:
    before = threading.active_count()
    plugin = Troubled("prepare", hang_in_pool)
    async with active(tmp_path, plugin, hasty("prepare")) as provider:
        memories = [await begin(provider, replace(CONVERSATION, session_id=f"s{n}")) for n in range(100)]
        for number, memory in enumerate(memories):
            await turn(memory, session_id=f"s{number}")
        used = threading.active_count() - before
    assert used <= 1 + 16 + 6, "the plugin's thread, its pool, and the store's"


@pytest.mark.processes
def test_a_process_ends_though_a_provider_hangs_in_every_way_at_once() -> None:
    program = """
        import asyncio, tempfile, time
        from hermes.memory.active import Deadlines
        from pathlib import Path
        from tests.memory.providers import Recorder
        from tests.memory.remembering import active, begin, live

        class Hanging(Recorder):
            async def run(self, hook, answer, *args):
                if hook == "recall":
                    await asyncio.to_thread(time.sleep, 3600)
                if hook == "prepare":
                    await asyncio.Event().wait()
                if hook in ("deliver", "close"):
                    time.sleep(3600)
                return answer

        async def main(home):
            async with active(home, Hanging(), Deadlines(2, 0.3, 0.3, 0.3, 0.6, 0.3, 0.3, 0.3)) as provider:
                memory = await begin(provider)
                await live(memory)
                await memory.close()
            print("went on")

        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(Path(folder)))
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT_SECONDS,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("went on\n", 0), done.stderr
    assert "Traceback" not in done.stderr


def test_deadlines_leave_a_person_waiting_for_seconds_only() -> None:
    assert (Deadlines().turn, Deadlines().first_turn) == (2.0, 3.0)
