"""Notices after a reply, in one line: recorded with it, sent once, and only to those who may read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes.llm.events import Completed, ModelFailed, Reply, Retrying
from hermes.llm.model import ModelRequest
from hermes.store.people import mark
from tests.gateway.core import LONG_DEADLINES, message, running_core
from tests.gateway.people import GROUP, GUEST, OWNER, Obedient, call
from tests.gateway.processes import rows
from tests.llm.scripted import ScriptedAnswer

NOTE = call("memory", action="add", target="user", content="likes figs")
SAVED, RETRY = "💾 Memory updated", "the endpoint is busy; trying again in 1.0 s (attempt 2)"
PLUGIN = """
from hermes.memory.provider import Address, Delivered, MemoryPlugin, MemorySession

class Broken(MemorySession):
    async def recall(self, question):
        raise OSError("the server is away")

class Plugin(MemoryPlugin):
    name = "broken"
    def is_available(self):
        return True
    def address(self, place):
        return Address("a")
    def open(self, conversation, address):
        return Broken()
    async def deliver(self, entries, until):
        return [Delivered()] * len(entries)

create_plugin = Plugin
"""


class Retried(Obedient):
    """A model whose endpoint is busy at first, for each answer."""

    def __call__(self, asked: ModelRequest) -> ScriptedAnswer:
        reply = super().__call__(asked)
        if not isinstance(reply, Reply) or reply.tool_calls:
            return reply
        return [Retrying(1, 1.0, "the endpoint is busy"), Completed(reply)]


async def hear_all(home: Path, person: str, *, group: bool = False, **settings: Any) -> list[str]:
    """Return everything that a chat gets after a note was made."""
    chat = GROUP if group else person
    async with running_core(home, Retried(), **settings) as core:
        await core.store.write(lambda tx: mark(tx, "fake", OWNER, is_owner=True, now=1.0))
        await core.platform.deliver(message(NOTE, chat, kind="group" if group else "dm", author=person))
        await core.platform.until(lambda: bool(core.platform.texts(chat)))
        await core.platform.deliver(message("bye", chat, kind="group" if group else "dm", author=person))
        await core.platform.until(lambda: "fine" in core.platform.texts(chat))
        await core.end()
        return core.platform.texts(chat)


@pytest.mark.contract("4.10", "1.9")
@pytest.mark.parametrize(
    ("person", "group", "first", "second"),
    [
        (OWNER, False, f"{SAVED} · {RETRY}", [RETRY]),
        (GUEST, False, SAVED, []),
        (OWNER, True, None, []),
        (GUEST, True, None, []),
    ],
    ids=["owner", "guest", "owner in a group", "guest in a group"],
)
async def test_notes_go_to_their_person_outages_to_the_owner_nothing_to_groups(
    tmp_path: Path, person: str, group: bool, first: str | None, second: list[str]
) -> None:
    texts = await hear_all(tmp_path, person, group=group)
    assert texts[0].startswith("result: "), "the reply comes first"
    assert texts[1:] == [*([first] if first else []), "fine", *second]


@pytest.mark.contract("4.10")
async def test_notices_are_recorded_with_the_reply_and_sent_once(tmp_path: Path) -> None:
    await hear_all(tmp_path, OWNER)
    keys = [str(key) for (key,) in rows(tmp_path, "SELECT key FROM hermes_queue WHERE queue = 'outbound' ORDER BY id")]
    kinds = [key.split(":")[0] for key in keys]
    assert kinds == ["reply", "remark", "reply", "remark"]
    replies = [key.split(":")[1] for key in keys]
    assert replies[0] == replies[1], "under the id of their reply"


@pytest.mark.contract("4.10")
@pytest.mark.parametrize(
    ("setting", "left"), [("gateway__notices", []), ("display__memory_notices", [RETRY])], ids=["all", "notes"]
)
async def test_notices_can_be_switched_off(tmp_path: Path, setting: str, left: list[str]) -> None:
    texts = await hear_all(tmp_path, OWNER, **{setting: False})
    assert texts[1:] == [*left, "fine", *left]


@pytest.mark.contract("1.9", "P5")
@pytest.mark.parametrize(("person", "told"), [(OWNER, 1), (GUEST, 0)])
async def test_provider_outage_is_announced_to_the_owner_only(tmp_path: Path, person: str, told: int) -> None:
    folder = tmp_path / "plugins" / "broken"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PLUGIN, encoding="utf-8")
    async with running_core(tmp_path, Obedient(), memory__provider="broken", **LONG_DEADLINES) as core:
        await core.store.write(lambda tx: mark(tx, "fake", OWNER, is_owner=True, now=1.0))
        for number in range(3):
            await core.platform.deliver(message("hello", person, author=person))
            await core.platform.until(lambda n=number: core.platform.texts(person).count("fine") > n)  # type: ignore[misc]
        await core.platform.deliver(message("/status", person, author=person))
        await core.platform.until(lambda: "session" in core.platform.texts(person)[-1])
        await core.end()
    texts = core.platform.texts(person)
    assert len([text for text in texts if "memory provider broken" in text]) == told, "once"
    assert ("broken" in texts[-1]) == bool(told)


@pytest.mark.contract("1.9")
@pytest.mark.parametrize(
    ("person", "group", "told"),
    [
        (OWNER, False, "I could not answer: http://127.0.0.1:9/v1 refused the key of ann. Your message is kept."),
        (GUEST, False, "I could not answer. Your message is kept."),
        (OWNER, True, "I could not answer. Your message is kept."),
    ],
)
async def test_reason_of_a_failed_turn_goes_to_the_owner_only(
    tmp_path: Path, person: str, group: bool, told: str
) -> None:
    def fail(_: ModelRequest) -> ScriptedAnswer:
        return [ModelFailed("refused", "http://127.0.0.1:9/v1 refused the key of ann", retryable=False)]

    chat = GROUP if group else person
    async with running_core(tmp_path, fail) as core:
        await core.store.write(lambda tx: mark(tx, "fake", OWNER, is_owner=True, now=1.0))
        await core.platform.deliver(message("hello", chat, kind="group" if group else "dm", author=person))
        await core.platform.until(lambda: bool(core.platform.texts(chat)))
        assert core.platform.texts(chat) == [told]
