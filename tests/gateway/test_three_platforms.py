"""One id on three platforms is three people: their notes, search results and prompts are separate."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.hosting import open_gateway
from hermes.store.people import mark
from tests.gateway.core import FakePlatform, load_app, message
from tests.gateway.people import SEARCH, SHOW_PROMPT, Obedient, call, notes_on_disk, seen
from tests.llm.scripted import ScriptedModel

NUMBER = "333"
SECRETS = {"telegram": "alderwood", "discord": "birchwood", "slack": "cedarwood"}
NOTED = {"telegram": "owns a heron", "discord": "keeps a lynx", "slack": "feeds a newt"}


async def hear(platform: FakePlatform, text: str) -> str:
    """Return the reply to a message of 333 on a platform."""
    before = len(platform.sent)
    await platform.deliver(message(text, NUMBER, author=NUMBER, platform=platform.name))
    await platform.until(lambda: len(platform.sent) > before)
    return platform.sent[before][1]


@pytest.mark.contract("1.9")
async def test_same_id_is_three_people_for_notes_search_and_prompt(tmp_path: Path) -> None:
    given = {"gateway__allow": "*", "memory__review_every": 0, "compression__idle": 0}
    app = load_app(tmp_path, SystemClock(), display__memory_notices=False, **given)
    async with await app.open_store() as store:
        gateway, stopping = open_gateway(app, store, ScriptedModel(Obedient())), asyncio.Event()
        platforms = {name: FakePlatform(name) for name in SECRETS}
        running = asyncio.create_task(gateway.run(list(platforms.values()), stopping))
        try:
            await store.write(lambda tx: mark(tx, "telegram", NUMBER, is_owner=True, now=1.0))
            for name, platform in platforms.items():
                await hear(platform, f"My secret word is {SECRETS[name]}.")
                await hear(platform, call("memory", action="add", target="user", content=NOTED[name]))
                await hear(platform, "/new")
            found = {name: seen(await hear(platform, SEARCH), SECRETS) for name, platform in platforms.items()}
            told = {name: seen(await hear(platform, SHOW_PROMPT), NOTED) for name, platform in platforms.items()}
        finally:
            stopping.set()
            await running
    assert found == {"telegram": {*SECRETS}, "discord": {"discord"}, "slack": {"slack"}}, "the owner sees everything"
    assert told == {name: {name} for name in SECRETS}
    kept = notes_on_disk(tmp_path)
    assert [seen(text, NOTED) for text in kept.values()].count(frozenset()) == 0
    assert len(kept) == len(SECRETS), "each has a file of their own"
