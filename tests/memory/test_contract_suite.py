"""The contract test: good plugins pass, each kind of bad one fails, and the page about providers is true."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hermes.memory import provider
from hermes.memory.active import ActiveProvider, Surroundings
from hermes.memory.contract import check_plugin
from hermes.memory.forgetting import mark_forgotten
from hermes.memory.provider import (
    Address,
    Conversation,
    Delivered,
    Entry,
    Fact,
    FactQuery,
    Facts,
    MemoryPlugin,
    MemorySession,
    Notebook,
    Outcome,
    Part,
    Question,
    Recalled,
    Speaker,
    ToolUse,
)
from hermes.memory.registry import find_provider
from hermes.store.store import Store
from hermes.types import Json, ToolSpec
from tests.memory.page import PAGE, example, install
from tests.memory.providers import PATIENT, Recorder
from tests.memory.remembering import active, begin, turn


async def test_a_recording_plugin_holds_the_contract(tmp_path: Path) -> None:
    assert await check_plugin(Recorder(), tmp_path) == []


@pytest.mark.contract("4.1")
async def test_the_example_of_the_page_holds_the_contract(tmp_path: Path) -> None:
    install(tmp_path)
    assert await check_plugin(find_provider("diary", tmp_path / "plugins"), tmp_path) == []
    assert len([line for line in example().splitlines() if line.strip()]) < 50


@pytest.mark.contract("4.1")
async def test_the_example_keeps_an_entry_once_however_often_it_is_delivered(tmp_path: Path, store: Store) -> None:
    install(tmp_path)
    make = find_provider("diary", tmp_path / "plugins")
    provider = ActiveProvider("diary", make, store, Surroundings(tmp_path))
    entry = Entry("k1", "said", "owner", "I like figs", 0.0, None, "s1")
    for _ in range(2):
        until = provider.within(10)
        await provider.call("deliver", lambda plugin: plugin.deliver([entry], 0.0), (list,), until)
    await provider.close()
    assert (tmp_path / "diary" / "owner.txt").read_text(encoding="utf-8") == "k1 I like figs\n"


@pytest.mark.contract("4.1")
async def test_the_example_recalls_also_after_something_was_taken_back(tmp_path: Path) -> None:
    install(tmp_path)
    async with active(tmp_path, find_provider("diary", tmp_path / "plugins"), PATIENT) as provider:
        memory, store = await begin(provider), provider.store
        await turn(memory, "I collect figs")
        await memory.flush(10)
        await store.write(lambda tx: mark_forgotten(tx, provider.name, now=store.clock.now()))
        assert await turn(memory, "What about figs?") == "I collect figs"


class Plain(MemorySession):
    async def recall(self, question: Question) -> Recalled:
        return Recalled()


class Bad(MemoryPlugin):
    name = "bad"
    session: type[MemorySession] = Plain

    def is_available(self) -> bool:
        return True

    def address(self, place: Conversation | Notebook) -> Address:
        return Address(place.session_id if isinstance(place, Conversation) else "notes")

    def open(self, conversation: Conversation, address: Address) -> MemorySession:
        return self.session()

    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        return [Delivered()] * len(entries)


async def test_the_least_that_a_plugin_must_have_is_enough(tmp_path: Path) -> None:
    assert await check_plugin(Bad, tmp_path) == []


class NumberSession(Plain):
    async def recall(self, question: Question) -> Recalled:
        return 3  # type: ignore[return-value]


class OddParts(Plain):
    async def recall(self, question: Question) -> Recalled:
        return Recalled(("text",))  # type: ignore[arg-type]


class Toolish(Plain):
    tools = (ToolSpec("a b", "", {}),)


class Agreeable(Plain):
    async def call_tool(self, use: ToolUse, speaker: Speaker) -> str:
        return "sure"


class Gossip(Plain):
    def __init__(self, heard: list[str]) -> None:
        self._heard = heard

    async def recall(self, question: Question) -> Recalled:
        return Recalled(tuple(Part("all", text, 0.0, 1) for text in self._heard if len(text) < 100))


class Waiting(Bad):
    def deliver(self, entries: Sequence[Entry], until: float) -> Any:
        pass


class Wordy(Bad):
    def address(self, place: Conversation | Notebook, more: str) -> Address:  # type: ignore[override]
        raise NotImplementedError(place, more)


class Moody(Bad):
    count = 0

    def address(self, place: Conversation | Notebook) -> Address:
        Moody.count += 1
        return Address(str(Moody.count))


class Speechless(Bad):
    def address(self, place: Conversation | Notebook) -> Address:
        return Address("lane", object())


class Fragile(Bad):
    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        assert all(entry.tried_at is None for entry in entries)
        return await super().deliver(entries, until)


class Generous(Bad):
    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        return [*await super().deliver(entries, until), Delivered()]


class Vague(Bad):
    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        return ["fine"]  # type: ignore[list-item]


class Deep(Bad):
    def cache_busting_signature(self) -> dict[str, Json] | None:
        return {"bad.key": {"nested": 1}}


class Foreign(Bad):
    def cache_busting_signature(self) -> dict[str, Json] | None:
        return {"other.key": 1}


class Unsayable(Bad):
    async def status(self, until: float) -> Mapping[str, Json]:
        return {"at": object()}


class Pathless(Bad):
    def backup_paths(self) -> Sequence[Path]:
        return ["diary.txt"]  # type: ignore[list-item]


class OneEar(Bad):
    """A bad plugin that keeps everyone's words in one place, and shows them to everyone."""

    heard: ClassVar[list[str]] = []

    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        self.heard.extend(entry.text for entry in entries)
        return await super().deliver(entries, until)

    def open(self, conversation: Conversation, address: Address) -> MemorySession:
        return Gossip(self.heard)


class OpenBook(OneEar):
    """A bad plugin that shows anybody's words to everyone as facts."""

    heard: ClassVar[list[str]] = []

    def open(self, conversation: Conversation, address: Address) -> MemorySession:
        return Gossip([])

    async def facts(self, whose: Notebook, query: FactQuery) -> Facts:
        return Facts(tuple(Fact(str(number), text) for number, text in enumerate(self.heard, start=1)))


class Nameless(Bad):
    async def facts(self, whose: Notebook, query: FactQuery) -> Facts:
        return Facts((Fact("", "likes figs"),))


def opening(session: type[MemorySession]) -> type[Bad]:
    """Return a plugin with sessions of this class."""
    return type("Bad", (Bad,), {"session": session, "__module__": __name__})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (opening(NumberSession), "recall returned int"),
        (opening(OddParts), "recall returned something that is no Part"),
        (opening(Toolish), "tools has a tool whose name"),
        (opening(Agreeable), "call_tool answers for a tool that it does not have"),
        (opening(object), "open should return a MemorySession"),  # type: ignore[arg-type]
        (Waiting, "deliver is not `async def`"),
        (Wordy, "address needs more arguments than the host gives"),
        (Moody, "address is not the same twice"),
        (Speechless, "address returned an address with data that cannot be used"),
        (Fragile, "deliver failed: AssertionError"),
        (Generous, "deliver returned more outcomes"),
        (Vague, "deliver returned str, which is no outcome"),
        (Deep, "cache_busting_signature should return"),
        (Foreign, "cache_busting_signature should return"),
        (Unsayable, "status should return"),
        (Pathless, "backup_paths should return"),
        (OneEar, "recall of s-ann shows what was said in s-owner"),
        (OpenBook, "facts of s-ann show what was said in s-owner"),
        (Nameless, "facts returned something that is no Fact with an id"),
    ],
)
async def test_each_kind_of_bad_plugin_is_caught(tmp_path: Path, make: type[Bad], said: str) -> None:
    found = await check_plugin(make, tmp_path)
    assert any(line.startswith(said) for line in found), found


@pytest.mark.contract("4.1")
def test_the_page_names_every_hook_and_no_other() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    public = {name for kind in (MemoryPlugin, MemorySession) for name in vars(kind) if not name.startswith("_")}
    assert named == {*public, "name"}


@pytest.mark.contract("4.1")
def test_the_page_shows_every_hook_as_it_is_written() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    source = ast.parse(Path(provider.__file__).read_text(encoding="utf-8"))
    kinds = [node for node in source.body if getattr(node, "name", "") in ("MemoryPlugin", "MemorySession")]
    hooks = [hook for kind in kinds for hook in ast.iter_child_nodes(kind) if not is_private(hook)]
    for hook in hooks:
        assert isinstance(hook, ast.FunctionDef | ast.AsyncFunctionDef)
        assert hook.returns is not None
        word = "async def" if isinstance(hook, ast.AsyncFunctionDef) else "def"
        written = f"    {word} {hook.name}({ast.unparse(hook.args)}) -> {ast.unparse(hook.returns)}: ..."
        assert lines.count(written) == 1, written
    assert len(hooks) == 34


def is_private(node: ast.AST) -> bool:
    return not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_")


@pytest.mark.contract("4.1")
def test_the_check_that_the_page_shows_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    *_, shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(shown, names)  # noqa: S102 - it is our own page
    names["test_diary_holds_to_the_contract"](tmp_path)
    monkeypatch.delitem(sys.modules, "diary")


@pytest.mark.contract("4.1")
def test_every_hook_but_the_first_few_has_a_default() -> None:
    assert MemoryPlugin.__abstractmethods__ == {"is_available", "address", "open", "deliver"}
    assert MemorySession.__abstractmethods__ == {"recall"}
