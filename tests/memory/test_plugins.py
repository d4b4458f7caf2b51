"""External providers: found and run end to end by the real command, and named nowhere in the host."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from hermes.errors import ProviderError
from hermes.fence import fence
from hermes.memory.provider import Host, MemoryPlugin
from hermes.memory.registry import Factory, find_provider, provider_names
from tests.llm.loopback import LoopbackServer, says
from tests.memory.chatting import chat
from tests.memory.page import example
from tests.memory.page import install as choose
from tests.source_imports import imports, parsed

SOURCE = Path(__file__).resolve().parents[2] / "src" / "hermes"
RECORDER = """
import json
from dataclasses import asdict
from tests.memory.providers import Recorder

class OnFile(Recorder):
    name = "tape"

    async def run(self, hook, answer, *args):
        with (self.host.home / "tape.jsonl").open("a") as tape:
            tape.write(json.dumps([hook, *args], default=str) + "\\n")
        return await super().run(hook, answer, *args)

create_plugin = OnFile()
"""


PATIENT = "  first_deadline: 60\n  deadline: 60\n"
"""Longer than a busy machine delays a healthy plugin."""


def install(home: Path, name: str = "diary", source: str | None = None) -> None:
    """Install a plugin in a home and choose it; turns wait for it."""
    choose(home, name, source)
    with (home / "config.yaml").open("a", encoding="utf-8") as config:
        config.write(PATIENT)


def diary(home: Path) -> list[str]:
    """Return the text of the owner's diary."""
    path = home / "diary" / "owner.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line.partition(" ")[2] for line in lines]


async def until(true: Callable[[], bool]) -> None:
    """Wait for calls that the process, or one that it left behind, makes to the plugin."""
    async with asyncio.timeout(100):
        while not true():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.02)


def tape(home: Path) -> list[list[Any]]:
    """Return the calls of the recording plugin."""
    path = home / "tape.jsonl"
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("]")]
        if path.exists()
        else []
    )


def last_user_message(server: LoopbackServer, place: int = -1) -> str:
    return str([m["content"] for m in server.requests[place].body["messages"] if m["role"] == "user"][-1])


@pytest.mark.processes
@pytest.mark.contract("4.1", "4.2", "4.10")
async def test_a_plugin_folder_gets_recalls_tool_calls_and_deliveries(tmp_path: Path) -> None:
    install(tmp_path)
    async with LoopbackServer([says("Noted."), says("You like figs.")]) as server:
        first = await chat(tmp_path, server, "chat", "-q", "I like figs")
        assert (first.code, first.out, first.err) == (0, "Noted.\n", "")
        assert last_user_message(server) == "I like figs"
        await until(lambda: bool(diary(tmp_path)))
        second = await chat(tmp_path, server, "chat", "-q", "what do I like?")
        assert (second.code, second.out, second.err) == (0, "You like figs.\n", "")
        assert last_user_message(server, 1) == f"{fence('I like figs')}\n\nwhat do I like?"
    await until(lambda: len(diary(tmp_path)) > 1)
    assert diary(tmp_path) == ["I like figs", "what do I like?"]


@pytest.mark.processes
@pytest.mark.contract("4.2")
async def test_a_provider_of_another_distribution_is_found_by_its_entry_point(tmp_path: Path) -> None:
    site, home = tmp_path / "site", tmp_path / "home"
    info = site / "far_diary-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: far-diary\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[hermes.memory_providers]\nfar = far_diary:Diary\n", encoding="utf-8")
    (site / "far_diary.py").write_text(example(), encoding="utf-8")
    home.mkdir()
    (home / "config.yaml").write_text(f"memory:\n  provider: far\n{PATIENT}", encoding="utf-8")
    async with LoopbackServer([says("one"), says("two")]) as server:
        for question in ("I like figs", "like what"):
            done = await chat(home, server, "chat", "-q", question, path=site)
            assert (done.code, done.err) == (0, "")
            await until(lambda: question in diary(home))  # noqa: B023 - it is waited for here
        assert fence("I like figs") in last_user_message(server)


@pytest.mark.processes
@pytest.mark.contract("4.2")
async def test_the_diary_does_not_recall_what_is_being_asked(tmp_path: Path) -> None:
    install(tmp_path)
    diary = tmp_path / "diary" / "owner.txt"
    diary.parent.mkdir()
    diary.write_text("k1 I like figs\nk2 what do I like?\n", encoding="utf-8")  # another process was that quick
    async with LoopbackServer([says("Figs.")]) as server:
        done = await chat(tmp_path, server, "chat", "-q", "what  do I like?")
        assert (done.code, done.err) == (0, "")
        assert last_user_message(server) == f"{fence('I like figs')}\n\nwhat  do I like?"


@pytest.mark.processes
@pytest.mark.contract("4.3", "4.8")
@pytest.mark.parametrize(
    ("source", "said"),
    [
        (None, "there is no memory provider 'odd'"),
        ("import no_such_module", "cannot be loaded: ModuleNotFoundError"),
        ("raise SystemExit(9)", "cannot be loaded: SystemExit: 9"),
        ("x = 1", "has no attribute 'create_plugin'"),
        ("create_plugin = lambda host: 7", "what was made is a int, not a MemoryPlugin"),
        (
            "create_provider = lambda: 7",
            "is written for an older hermes; docs/memory-providers.md describes what changed",
        ),
        ("from hermes.memory.provider import MemoryProvider", "docs/memory-providers.md describes what changed"),
        ("def broken(:", "cannot be loaded: SyntaxError"),
        ("import time; time.sleep(3600)", "is_available has not come back"),
    ],
)
async def test_a_plugin_that_cannot_be_loaded_costs_one_line_and_the_person_is_answered(
    tmp_path: Path, source: str | None, said: str
) -> None:
    if source is not None:
        choose(tmp_path, "odd", source)
    deadlines = PATIENT.replace("60", "0.5") if "has not come back" in said else PATIENT
    config = f"memory:\n  provider: odd\n{deadlines}"
    (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
    async with LoopbackServer([says("one"), says("two")]) as server:
        done = await chat(tmp_path, server, "chat", lines="hello\nagain\n")
    assert (done.code, done.out) == (0, "one\ntwo\n")
    assert done.err.count("\n") == 1
    assert done.err.startswith("memory provider odd: ")
    assert said in done.err


@pytest.mark.processes
@pytest.mark.contract("4.8")
async def test_a_failure_after_the_last_turn_is_reported_before_the_process_ends(tmp_path: Path) -> None:
    full = example().replace('with file.open("a"', 'raise OSError("disk full")\n        with file.open("a"')
    async with LoopbackServer(then=says("one")) as server:
        for home in (tmp_path / str(number) for number in range(5)):
            install(home, "diary", full)
            done = await chat(home, server, "chat", "-q", "hello")
            if done.err:  # a busy machine may not come to it in the seconds that memory has at the end
                break
    assert (done.code, done.out) == (0, "one\n")
    assert done.err == "memory provider diary: deliver failed: OSError: disk full; going on without it\n"


@pytest.mark.processes
@pytest.mark.contract("4.8")
async def test_what_a_plugin_prints_is_logged_and_not_part_of_the_reply(tmp_path: Path) -> None:
    install(tmp_path, "diary", f"print('loaded')\n{example()}")
    async with LoopbackServer([says("one")]) as server:
        done = await chat(tmp_path, server, "chat", "-q", "hello")
    assert (done.code, done.out, done.err) == (0, "one\n", "")
    [log] = (tmp_path / "logs").glob("*.log")
    assert "the memory provider printed: loaded" in log.read_text(encoding="utf-8")


@pytest.mark.processes
@pytest.mark.contract("4.10")
@pytest.mark.parametrize("shown", [True, False])
async def test_a_noted_fact_is_reported_once_unless_notices_are_off(tmp_path: Path, shown: bool) -> None:
    install(tmp_path, "tape", RECORDER)
    with (tmp_path / "config.yaml").open("a", encoding="utf-8") as config:
        config.write(f"display:\n  memory_notices: {str(shown).lower()}\n")
    note = json.dumps({"action": "add", "target": "user", "content": "likes figs"})
    async with LoopbackServer([says(calls=[("memory", note)]), says("Noted.")]) as server:
        done = await chat(tmp_path, server, "chat", "-q", "I like figs")
    assert (done.code, done.out) == (0, "Noted.\n")
    assert done.err == ("💾 Memory updated: likes figs\n" if shown else "")
    await until(lambda: bool(noted(tmp_path)))
    assert noted(tmp_path) == [["note", "likes figs"]]


def noted(home: Path) -> list[Any]:
    """Return the notes that the recording plugin received."""
    return [entry for call in tape(home) if call[0] == "deliver" for entry in call[1:] if entry[0] == "note"]


@pytest.mark.processes
@pytest.mark.contract("4.11")
async def test_a_piped_conversation_goes_incognito_and_back_also_over_a_restart(tmp_path: Path) -> None:
    install(tmp_path, "tape", RECORDER)
    async with LoopbackServer(then=says("fine")) as server:
        lines = "open figs\n/memory off\nsecret dates\n"
        first = await chat(tmp_path, server, "chat", lines=lines)
        second = await chat(tmp_path, server, "chat", "-c", lines="secret olives\n/memory on\nopen plums\n")
        assert (first.code, second.code) == (0, 0)
        assert first.out + second.out == "fine\n" * 4
        assert "Incognito" in first.err
        assert "Memory is on again" in second.err
        assert "secret" not in str(tape(tmp_path))
        heard = [call[1] for call in tape(tmp_path) if call[0] == "recall"]
        assert heard == ["open figs", "open plums"]
        tools = [{tool["function"]["name"] for tool in r.body["tools"]} for r in server.requests]
        assert tools == [{"memory", "session_search", "delegate", "lookup"}, {"delegate"}, {"delegate"}, tools[0]]
    for word in ("dates", "olives", "plums"):
        found = await chat(tmp_path, None, "sessions", "search", word)
        assert (found.code, word in found.out) == (0, True), "the person still finds it"
    floor = await chat(tmp_path, None, "chat", "-q", "what about figs or dates?")
    assert "open figs" in floor.out
    assert "secret" not in floor.out


def made(factory: Factory) -> MemoryPlugin:
    """Create a plugin of which only the name is used."""
    return factory(cast(Host, None))


def test_two_homes_may_have_different_plugins_of_one_name(tmp_path: Path) -> None:
    homes = [tmp_path / "a", tmp_path / "b"]
    for home in homes:
        install(home, "diary", example().replace('name = "diary"', f'name = "{home.name}"'))
    factories = [find_provider("diary", home / "plugins") for home in homes]
    assert [made(factory).name for factory in factories] == ["a", "b"]


def test_a_name_with_a_dash_is_found_and_one_with_a_path_is_not(tmp_path: Path) -> None:
    install(tmp_path, "my-diary")
    assert made(find_provider("my-diary", tmp_path / "plugins")).name == "diary"
    assert {"my-diary", "none"} <= set(provider_names(tmp_path / "plugins"))
    for name in ("../plugins/my-diary", "", ".", "my-diary/../my-diary"):
        with pytest.raises(ProviderError, match=r"there is no memory provider .*Known|there is no memory provider"):
            find_provider(name, tmp_path / "plugins")


def test_a_plugin_of_several_files_can_import_its_own(tmp_path: Path) -> None:
    install(
        tmp_path,
        "split",
        "from .words import GREETING\n" + example().replace('name = "diary"', "name = GREETING"),
    )
    (tmp_path / "plugins" / "split" / "words.py").write_text("GREETING = 'split'\n", encoding="utf-8")
    assert made(find_provider("split", tmp_path / "plugins")).name == "split"


@pytest.mark.contract("4.2")
def test_only_assembly_and_commands_find_providers_and_nothing_imports_one() -> None:
    trees = {
        str(path.relative_to(SOURCE)): tree
        for path, tree in parsed(SOURCE, "registry", "honcho", "importlib", "MemoryPlugin")
        if "honcho" not in path.relative_to(SOURCE).parts
    }
    users = {name: imports(tree) for name, tree in trees.items()}
    registry = {name: {module for module in used if "memory.registry" in module} for name, used in users.items()}
    told = {"hermes.memory.registry", "hermes.memory.registry.NONE", "hermes.memory.registry.NONE_CHOSEN"}
    told |= {"hermes.memory.registry.Factory"}
    assert {name: used - told for name, used in registry.items() if used - told} == {
        "assembly.py": {"hermes.memory.registry.find_provider"},
        "cli/config.py": {"hermes.memory.registry.provider_names"},
        "cli/memory_status.py": {"hermes.memory.registry.provider_names"},
        "cli/provider_group.py": {"hermes.memory.registry.provider_names"},
        "doctor.py": {"hermes.memory.registry.provider_names"},
        "memory/plugin_host.py": {"hermes.memory.registry.find_provider"},
        "web/settings_pages.py": {"hermes.memory.registry.provider_names"},
    }
    for name, used in users.items():
        assert not any("honcho" in module for module in used), f"{name} names a provider"
    loaders = {name for name, used in users.items() if "importlib.util" in used or "importlib.metadata" in used}
    assert "memory/registry.py" in loaders
    classes = {
        f"{name}:{node.name}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "MemoryPlugin" for base in node.bases)
    }
    assert classes == set()
