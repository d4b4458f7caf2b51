"""Text said, queued, recorded or recalled while `hermes memory forget` runs is forgotten too, or reported as
staying."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hermes.assembly import earlier_conversation
from hermes.db.engine import Tx
from hermes.db.queue_items import items, stats
from hermes.memory.backfill import Backfill
from hermes.memory.caller import Memory
from hermes.memory.outbox import Destination, Outbox
from hermes.memory.values import Address, Conversation, Speaker
from hermes.scope import OWNER as MINE
from hermes.store.people import People
from hermes.store.store import Store
from hermes.types import Draft, Session
from tests.cli.filling import write_into
from tests.conftest import Ran
from tests.honcho.between import Asked
from tests.honcho.recalling import ANN, HERE, Recalling, Talk
from tests.memory.remembering import reply

Hermes = Callable[..., Ran]
SECRET = "My safe opens with Zanzibar."
QUESTION = "How does my safe open?"
OWNER = Speaker(is_owner=True)


@pytest.fixture(autouse=True)
def home(recalling: Recalling, commanded: Path) -> Path:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, SECRET), (ANN, "I like figs."))
    return commanded


def is_said(store: Store, tx: Tx) -> None:
    """Queue a message, as another process does in a turn."""
    now, name = store.clock.now(), HERE.session_id
    if not store.sessions.exists(tx, name):
        store.sessions.create(tx, Session(name, "cli", now))
    (message,) = store.messages.append(tx, name, [Draft("user", SECRET)], now=now)
    destination = Destination(name, Conversation(name, "cli", "everything", OWNER), Address("lane", {"session": name}))
    Outbox("honcho").said(tx, destination, [(message, OWNER)], now=now)


async def recall_and_forget(talk: Talk, hermes: Hermes) -> Memory:
    """Recall the secret in a turn, and forget it before the turn ends."""
    memory, said = await talk.memory(), await talk.say(QUESTION)
    until = memory.begin()
    await memory.prompt_block(until)
    assert "Zanzibar" in (await memory.recall([said], until)).text
    assert (await asyncio.to_thread(hermes, "memory", "forget", "zanzibar", "--yes")).code == 0
    return memory


def waiting(home: Path) -> int:
    return write_into(home, lambda store, tx: stats(tx, "memory:honcho", now=store.clock.now()).waiting)


@pytest.mark.contract("7.12")
def test_message_said_during_the_confirmation_is_forgotten_too(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(*_: object) -> str:
        write_into(home, is_said)
        return "yes"

    monkeypatch.setattr("hermes.cli.dialog.TerminalDialog.can_ask", True)
    monkeypatch.setattr("hermes.cli.dialog.TerminalDialog.choose", choose)
    done = hermes("memory", "forget", "Zanzibar")
    assert (done.code, waiting(home)) == (0, 0), done.out
    assert "Forgotten." in done.err
    assert "Memory holds nothing" in hermes("memory", "forget", "Zanzibar").err


@pytest.mark.contract("7.12")
def test_message_said_during_the_deletion_is_forgotten_too(home: Path, recalling: Recalling, hermes: Hermes) -> None:
    def rule(asked: Asked) -> None:
        if asked.method == "DELETE":
            write_into(home, is_said)

    recalling.between.rule = rule
    done = hermes("memory", "forget", "Zanzibar", "--yes")
    assert (done.code, waiting(home)) == (0, 0), done.out


@pytest.mark.contract("7.12")
def test_message_said_again_in_every_round_is_not_called_forgotten(
    home: Path, recalling: Recalling, hermes: Hermes
) -> None:
    def rule(asked: Asked) -> None:
        if asked.what == "messages" and asked.method == "GET":
            write_into(home, is_said)

    recalling.between.rule = rule
    done = hermes("memory", "forget", "Zanzibar", "--yes")
    assert done.code == 1
    assert "is being said again all the time" in done.out
    assert "Forgotten" not in done.err


@pytest.mark.contract("7.12")
async def test_a_turn_that_recalled_before_and_ends_afterwards_leaves_no_record(
    recalling: Recalling, hermes: Hermes
) -> None:
    async with recalling.host() as talk:
        memory = await recall_and_forget(talk, hermes)
        await memory.turn_over()
        shown = await asyncio.to_thread(hermes, "memory", "explain")
        assert "anzibar" not in shown.out


@pytest.mark.contract("7.12")
async def test_reply_of_a_turn_that_recalled_forgotten_text_is_not_sent(recalling: Recalling, hermes: Hermes) -> None:
    async with recalling.host() as talk:
        memory = await recall_and_forget(talk, hermes)
        store = talk.provider.store
        await reply(memory, SECRET, HERE.session_id)
        await memory.turn_over()
        assert await told(store) == [QUESTION]
        await store.index()
        assert not await store.read(
            lambda tx: store.search.related(tx, "Zanzibar", MINE, limit=5, roles=("assistant",))
        )
        assert "Memory holds nothing" in (await asyncio.to_thread(hermes, "memory", "forget", "Zanzibar")).err
        await talk.say("And my bike?")
        await reply(memory, "With a key.", HERE.session_id)
        assert await told(store) == [QUESTION, "And my bike?", "With a key."], "the next turn is told as ever"


async def told(store: Store) -> list[str | None]:
    """Return the messages in the provider's queue, in order."""

    def look(tx: Tx) -> list[str | None]:
        found = [store.messages.get(tx, item.payload["message"]) for item in items(tx, "memory:honcho", "waiting")]
        return [message.content for message in found if message is not None]

    return await store.read(look)


@pytest.mark.contract("7.12")
async def test_a_backfill_that_read_it_before_queues_none_of_it_afterwards(
    home: Path, recalling: Recalling, hermes: Hermes
) -> None:
    def before(store: Store, tx: Tx) -> None:
        now = store.clock.now()
        store.sessions.create(tx, Session("old", "cli", now))
        store.messages.append(tx, "old", [Draft("user", SECRET), Draft("assistant", "Noted.")], now=now)

    await asyncio.to_thread(write_into, home, before)
    async with recalling.host() as talk:
        people = People()
        work = Backfill(talk.provider, people, partial(earlier_conversation, people, talk.provider.store))

        async def room() -> bool:
            return (await asyncio.to_thread(hermes, "memory", "forget", "Zanzibar", "--yes")).code == 0

        taken, is_whole = await work.take_in(await work.find(), room, lambda _: None)
        assert (taken.messages, is_whole) == (1, True)
    assert await asyncio.to_thread(waiting, home) == 1
