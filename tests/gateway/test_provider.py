"""A memory provider in a gateway, with a plugin from the home's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hermes.gateway.platform import Chat
from hermes.store.people import mark
from tests.gateway.asking import ask, in_session, reply
from tests.gateway.core import LONG_DEADLINES, message, running_core
from tests.gateway.people import Obedient, call
from tests.gateway.processes import GatewayProcess, LoopbackModel, api_settings, write_config

PLUGIN = """
import json, pathlib, time
from msgspec import to_builtins
from hermes.memory.provider import Address, Delivered, MemoryPlugin, MemorySession, Recalled

HERE = pathlib.Path(__file__).parent

class Session(MemorySession):
    def __init__(self, plugin):
        self.plugin = plugin

    async def recall(self, question):
        self.plugin._write("recall", [to_builtins(said) for said in question.said], question.turn)
        return Recalled()

    async def close(self, why, until):
        self.plugin._write("close", why)

class Tape(MemoryPlugin):
    name = "tape"

    def _write(self, *what):
        with (HERE / "tape.jsonl").open("a") as tape:
            tape.write(json.dumps(what, default=str) + "\\n")

    def is_available(self):
        return True

    def address(self, place):
        self._write("address", to_builtins(place, enc_hook=str))
        return Address(getattr(place, "session_id", "notes"))

    def open(self, conversation, address):
        self._write("open", to_builtins(conversation, enc_hook=str))
        return Session(self)

    async def deliver(self, entries, until):
        for entry in entries:
            self._write("deliver", entry.kind, entry.text, to_builtins(entry.speaker) if entry.speaker else None)
        return [Delivered()] * len(entries)

    async def shutdown(self, until):
        self._write("shutdown")

    def cache_busting_signature(self):
        self._write("signature")
        path = HERE / "peer.txt"
        while path.exists() and path.read_text() == "hang":
            time.sleep(0.05)
        return {"tape.peer": path.read_text() if path.exists() else ""}

create_plugin = Tape
"""
OTHER = PLUGIN.replace("tape", "other").replace("Tape", "Other")


def install(home: Path) -> Path:
    """Install two plugins, of which the settings name one."""
    for name, text in (("tape", PLUGIN), ("other", OTHER)):
        folder = home / "plugins" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(text, encoding="utf-8")
    return home / "plugins" / "tape"


def tape(folder: Path, kind: str) -> list[Any]:
    """The recorded calls of the plugin."""
    path = folder / "tape.jsonl"
    calls = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return [call[1:] for call in calls if call[0] == kind]


@pytest.mark.contract("4.7")
async def test_the_platforms_identifiers_reach_the_provider_unchanged(tmp_path: Path) -> None:
    folder = install(tmp_path)
    async with running_core(tmp_path, memory__provider="tape", **LONG_DEADLINES) as core:
        await core.platform.deliver(message("/title Stamps & co", "8439114563", author="8439114563", alt="@Ann:b"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        (folder / "peer.txt").write_text("changed", encoding="utf-8")
        await core.platform.deliver(message("hello", "8439114563", author="8439114563", alt="@Ann:b"))
        await core.platform.until(lambda: len(core.platform.sent) == 2)
        await core.platform.deliver(message("hello", "-100", kind="group", author="17", alt="@bob"))
        await core.platform.until(lambda: len(core.platform.sent) == 3)
    [[direct], [group]] = tape(folder, "open")
    assert direct["gateway_session_key"] == "agent:main:fake:dm:8439114563"
    ann = {"user_id": "8439114563", "user_id_alt": "@Ann:b", "name": None, "is_owner": False, "is_agent": False}
    assert (direct["person"], direct["reach"]) == (ann, "own")
    assert (direct["platform"], direct["chat_type"], direct["title"]) == ("fake", "dm", "Stamps & co")
    assert group["gateway_session_key"] == "agent:main:fake:group:-100"
    assert (group["person"], group["reach"]) == (None, "here"), "in a group the speaker belongs to the turn"
    said = [speaker for kind, _, speaker in tape(folder, "deliver") if kind == "said"]
    assert {speaker["user_id"] for speaker in said} == {"8439114563", "17"}, "lanes are delivered side by side"
    [[asked, first], [other, _]] = tape(folder, "recall")
    assert (asked[0]["text"], asked[0]["speaker"], first) == ("hello", ann, 1)
    assert other[0]["speaker"]["user_id"] == "17"
    assert (group["platform"], group["chat_type"]) == ("fake", "group")


@pytest.mark.contract("4.7", "1.9")
async def test_provider_gets_for_each_group_message_whether_the_owner_wrote_it(tmp_path: Path) -> None:
    folder = install(tmp_path)
    async with running_core(tmp_path, memory__provider="tape", **LONG_DEADLINES) as core:
        await core.store.write(lambda tx: mark(tx, "fake", "111", is_owner=True, now=1.0))
        await core.platform.deliver(message("hello", "111", author="111", alt="@me"))
        for author in ("111", "222"):
            await core.platform.deliver(message("hello", "-100", kind="group", author=author, alt=f"@{author}"))
        await core.platform.until(lambda: "[222] hello" in str(core.platform.texts("-100")))
        await core.platform.until(lambda: len(core.platform.texts("111")) == 1)
    opened = {context["chat_type"]: context for [context] in tape(folder, "open")}
    me = {"user_id": "111", "user_id_alt": "@me", "name": None, "is_owner": True, "is_agent": False}
    assert opened["dm"]["person"] == me
    assert (opened["dm"]["reach"], opened["group"]["reach"]) == ("everything", "here")
    asked = [said["speaker"] for question, _ in tape(folder, "recall") for said in question]
    told = [speaker for kind, _, speaker in tape(folder, "deliver") if kind == "said"]
    for speakers in (asked, told):
        in_group = [one for one in speakers if one["name"] is not None]
        assert {(one["user_id"], one["user_id_alt"], one["is_owner"]) for one in in_group} == {
            ("111", "@111", True),
            ("222", "@222", False),
        }


@pytest.mark.contract("4.10", "1.9")
async def test_notes_are_mirrored_under_their_person(tmp_path: Path) -> None:
    folder = install(tmp_path)
    said = {
        chat: message(call("memory", action="add", target="user", content=f"note of {chat}"), chat, author=author)
        for chat, author in (("111", "111"), ("222", "222"), ("-100", "222"))
    }
    said["-100"] = replace(said["-100"], chat=Chat("fake", "group", "-100"))
    async with running_core(tmp_path, Obedient(), memory__provider="tape", **LONG_DEADLINES) as core:
        await core.store.write(lambda tx: mark(tx, "fake", "111", is_owner=True, now=1.0))
        for one in said.values():
            await core.platform.deliver(one)
        await core.platform.until(lambda: all(core.platform.texts(chat) for chat in said))
    notes = {text: speaker for kind, text, speaker in tape(folder, "deliver") if kind == "note"}
    assert notes["note of 111"]["is_owner"]
    assert (notes["note of 222"]["user_id"], notes["note of 222"]["is_owner"]) == ("222", False)
    assert notes["note of -100"] is None
    books = [place for [place] in tape(folder, "address") if "session_id" not in place]
    assert {
        ((book["person"] or {}).get("user_id"), book["platform"], book["gateway_session_key"]) for book in books
    } == {
        (None, None, None),
        ("222", "fake", None),
        (None, "fake", "agent:main:fake:group:-100"),
    }


@pytest.mark.contract("4.4")
async def test_a_changed_signature_gives_the_next_message_a_fresh_agent(tmp_path: Path) -> None:
    folder = install(tmp_path)
    async with running_core(tmp_path, memory__provider="tape", **LONG_DEADLINES) as core:
        for number, peer in enumerate(("ann", "ann", "bob", "bob", "ann")):
            (folder / "peer.txt").write_text(peer, encoding="utf-8")
            await core.platform.deliver(message(f"hello {number}"))
            await core.platform.until(lambda number=number: len(core.platform.sent) == number + 1)  # type: ignore[misc]
            assert len(tape(folder, "signature")) == number + 1
        assert len(tape(folder, "open")) == 3
    assert tape(folder, "close") == [["settings"], ["settings"], ["shutdown"]], "each session was closed"
    assert len(tape(folder, "shutdown")) == 1
    assert [text for kind, text, _ in tape(folder, "deliver") if kind == "said"] == [f"hello {n}" for n in range(5)]
    assert not (tmp_path / "plugins" / "other" / "other.jsonl").exists(), "only the active provider is asked"


@pytest.mark.contract("4.4", "P4")
async def test_hanging_signature_delays_one_message_until_its_deadline(
    tmp_path: Path,
) -> None:
    folder = install(tmp_path)
    (folder / "peer.txt").write_text("hang", encoding="utf-8")
    async with running_core(tmp_path, memory__provider="tape", memory__deadline=0.3) as core:
        for number in range(3):
            await core.platform.deliver(message(f"hello {number}"))
            await core.platform.until(lambda number=number: len(core.platform.sent) == number + 1)  # type: ignore[misc]
        assert len(tape(folder, "signature")) == 1
        (folder / "peer.txt").write_text("", encoding="utf-8")
    assert core.platform.texts("7") == [f"echo: hello {number}" for number in range(3)]


@pytest.mark.contract("4.6", "4.7")
def test_request_without_a_session_sends_the_provider_nothing(model: LoopbackModel, empty_home: Path) -> None:
    folder = install(empty_home)
    write_config(empty_home, api_settings(model, memory__provider="tape", **LONG_DEADLINES))
    with GatewayProcess(empty_home) as gateway:
        assert reply(ask(gateway.url, "hello", model="hermes:off")) == "echo: hello"
        assert tape(folder, "open") == []
        assert reply(ask(gateway.url, "hello")).startswith("echo: hello")
        headers = {**in_session("chosen"), "X-Hermes-Session-Key": "agent:main:shop:dm:42"}
        assert reply(ask(gateway.url, "hello", headers=headers, user="customer 42")).startswith("echo: hello")
        gateway.stop()
    [[asked], [context]] = tape(folder, "open")
    assert (asked["platform"], asked["chat_type"], asked["person"]["is_owner"]) == ("api", "api", True)
    assert context["session_id"] == "chosen"
    assert context["gateway_session_key"] == "agent:main:shop:dm:42"
    assert (context["platform"], context["chat_type"], context["person"]["user_id"]) == ("api", "api", "customer 42")
    assert [kind for kind, *_ in tape(folder, "deliver")] == ["said", "reply"]
    assert len(tape(folder, "shutdown")) == 1
