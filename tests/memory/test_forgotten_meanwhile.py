"""What is forgotten while a turn is under way, and what becomes of its reply."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from hermes.db.engine import Tx
from hermes.memory.forgetting import mark_forgotten, mark_replies
from tests.memory.providers import Recorder
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
        known = await store.read(lambda tx: store.incognito.remembered(tx, answer.session_id, [answer]))
    assert plugin.told() == told
    assert [message.content for message in known] == told[1:]


@pytest.mark.contract("7.12")
async def test_what_was_forgotten_while_the_clock_was_ahead_keeps_nothing_that_is_fetched_now_from_being_recalled(
    tmp_path: Path,
) -> None:
    async with active(tmp_path, Recorder()) as provider:
        memory, store = await begin(provider), provider.store
        await store.write(lambda tx: mark_forgotten(tx, provider.name, now=store.clock.now() + 3600.0))
        assert await turn(memory) == "recalled for hello"
