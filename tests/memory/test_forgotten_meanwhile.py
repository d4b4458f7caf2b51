"""Forgetting during a turn, and its effect on the reply."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest

from hermes.db.engine import Tx
from hermes.memory.forgetting import FETCHED_TOO_EARLY, mark_forgotten, mark_replies
from hermes.memory.provider import Recalled
from hermes.store.injections import find_injection
from tests.memory.providers import CONVERSATION, Recorder
from tests.memory.remembering import active, begin, reply, say, turn


class Mark(Protocol):
    def __call__(self, tx: Tx, provider: str, *, now: float) -> None: ...


@pytest.mark.contract("7.12")
@pytest.mark.parametrize(
    ("mark", "told"),
    [(mark_replies, ["hello"]), (mark_forgotten, ["hello", "a reply"])],
    ids=["words, by the owner", "one fact, by anyone"],
)
async def test_only_the_owners_words_keep_replies_of_all_chats_out_of_memory(
    tmp_path: Path, mark: Mark, told: list[str]
) -> None:
    plugin = Recorder()
    async with active(tmp_path, plugin) as provider:
        memory, store = await begin(provider), provider.store
        await say(memory, "hello")
        await memory.prompt_block(memory.begin())
        await store.write(lambda tx: mark(tx, provider.name, now=store.clock.now()))
        answer = await reply(memory, "a reply")
        await memory.turn_over()
        await memory.flush(20)
        known = await store.read(lambda tx: store.incognito.remembered(tx, [answer]))
    assert plugin.told() == told
    assert [message.content for message in known] == told[1:]


@pytest.mark.contract("7.12")
async def test_forgetting_while_the_clock_was_ahead_does_not_block_later_recalls(tmp_path: Path) -> None:
    async with active(tmp_path, Recorder()) as provider:
        memory, store = await begin(provider), provider.store
        await store.write(lambda tx: mark_forgotten(tx, provider.name, now=store.clock.now() + 3600.0))
        assert await turn(memory) == "recalled for hello"


@pytest.mark.contract("7.12")
async def test_text_fetched_before_a_forgetting_is_not_recalled(tmp_path: Path) -> None:
    class Cached(Recorder):
        """Returns its first result again and again, whatever was forgotten since."""

        fetched: Recalled | None = None

        async def run(self, hook: str, result: Any, *arguments: Any) -> Any:
            ran = await super().run(hook, result, *arguments)
            if hook != "recall":
                return ran
            self.fetched = self.fetched or ran
            return self.fetched

    async with active(tmp_path, Cached()) as provider:
        memory, store = await begin(provider), provider.store
        assert await turn(memory, "the vault") == "recalled for the vault"
        assert await turn(memory, "again") == "recalled for the vault"
        await store.write(lambda tx: mark_forgotten(tx, provider.name, now=store.clock.now()))
        assert await turn(memory, "and now?") == ""
        found = await store.read(lambda tx: find_injection(tx, CONVERSATION.session_id, None))
    assert (found.parts, found.missed) == ((), {"all": FETCHED_TOO_EARLY})
