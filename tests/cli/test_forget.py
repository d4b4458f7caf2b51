"""`hermes memory forget` in a fresh home: it reports exactly what it did."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.db.engine import Tx
from hermes.db.lanes import release_lane
from hermes.db.leases import new_owner
from hermes.db.queue import claim
from hermes.db.queue_items import stats
from hermes.memory.outbox import Destination, Outbox
from hermes.memory.values import Address, Conversation, Speaker
from hermes.store.store import Store
from hermes.types import Draft, Session
from tests.cli.chatting import chat, environment
from tests.cli.filling import write_into
from tests.cli.screen import ENTER, Screen, plain_env
from tests.conftest import Ran

Hermes = Callable[..., Ran]


@pytest.mark.contract("7.12")
@pytest.mark.processes
def test_what_was_said_right_after_an_empty_incognito_range_is_forgotten_too(home: Path, hermes: Hermes) -> None:
    env = environment(home)
    chat(env, said="Hello there.\n/memory off\n/memory on\nMy cat is called Miso.\n")
    assert "Miso" in chat(env, "-q", "What is my cat called?").out
    assert hermes("memory", "forget", "Miso", "--yes").code == 0
    assert "Miso" not in chat(env, "-q", "What is my cat called?").out


def leave_entries(store: Store, tx: Tx) -> None:
    """Queue a reply, a conclusion and a deletion for a provider that is not chosen."""
    now, owner = store.clock.now(), Speaker(is_owner=True)
    store.sessions.create(tx, Session("one", "cli", now))
    (reply,) = store.messages.append(tx, "one", [Draft("assistant", "Plums it is.")], now=now)
    outbox = Outbox("honcho")
    destination = Destination(
        "one", Conversation("one", "cli", "everything", owner), Address("lane", {"session": "one"})
    )
    outbox.take_in(tx, destination, [(reply, owner)], now=now)
    outbox.put(
        tx, destination, "own", "k", "", {"act": "conclude", "content": "Likes figs.", "about": "user"}, owner, now=now
    )
    outbox.forget(tx, "one", now=now)


def waiting(home: Path) -> int:
    return write_into(home, lambda store, tx: stats(tx, "memory:honcho", now=store.clock.now()).waiting)


@pytest.mark.contract("7.12")
@pytest.mark.parametrize("word", ["null", "conclude", "user", "content", "one", "session_id", "lane"])
def test_a_word_that_stands_only_in_marks_ids_and_names_of_fields_drops_no_entry(
    home: Path, hermes: Hermes, word: str
) -> None:
    write_into(home, leave_entries)
    assert json.loads(hermes("memory", "forget", word, "--yes", "--json").out)["deleted"] is False
    assert waiting(home) == 3


@pytest.mark.contract("7.12")
@pytest.mark.parametrize(("word", "text"), [("figs", "Likes figs."), ("plums", "Plums it is.")])
def test_what_entries_that_wait_would_tell_is_shown_before_they_are_dropped(
    home: Path, hermes: Hermes, word: str, text: str
) -> None:
    write_into(home, leave_entries)
    assert text in hermes("memory", "forget", word).out
    assert waiting(home) == 3
    hermes("memory", "forget", word, "--yes")
    assert waiting(home) == 2


@pytest.mark.contract("7.12")
@pytest.mark.parametrize("word", ["figs", "unheard"])
def test_a_former_provider_is_named_and_nothing_is_called_forgotten(home: Path, hermes: Hermes, word: str) -> None:
    write_into(home, leave_entries)
    done = hermes("memory", "forget", word, "--yes")
    assert done.code == 1
    assert "honcho may hold more and was not asked: `HERMES_MEMORY_PROVIDER=honcho hermes memory forget" in done.out
    assert "Forgotten" not in done.err
    assert "Memory holds nothing" not in done.err
    again = hermes("memory", "forget", word, "--yes", "--json")
    assert again.code == 1
    assert "was not asked" in json.loads(again.out)["stays"][0]


@pytest.mark.contract("7.12")
@pytest.mark.parametrize("ends", [True, False])
def test_forgetting_waits_for_an_entry_in_delivery_and_says_so_when_that_is_slow(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    write_into(home, leave_entries)
    owner = new_owner()
    claimed = write_into(
        home, lambda store, tx: claim(tx, "memory:honcho", owner, ttl=60.0, limit=9, now=store.clock.now())
    )
    assert claimed is not None

    def sleep(_: float) -> None:
        if ends:
            write_into(home, lambda _, tx: release_lane(tx, "memory:honcho", claimed.lane, claimed.lease))

    monkeypatch.setattr("hermes.owner.forgetting.MAX_DELIVERY_CHECKS", 2)
    monkeypatch.setattr("hermes.owner.forgetting.sleep", sleep)
    done = hermes("memory", "forget", "figs", "--yes")
    assert "being delivered right now" in done.err
    assert ("may still arrive" in done.out) is not ends
    assert done.code == 1, "honcho was not asked"


@pytest.mark.contract("7.12")
def test_notes_that_hold_it_are_named_and_nothing_is_called_forgotten(home: Path, hermes: Hermes) -> None:
    write_into(home, leave_entries)
    guests = home / "memories" / "people" / "telegram-17"
    guests.mkdir(parents=True)
    for path, text in {
        home / "memories" / "USER.md": "Likes Plums.",
        home / "memories" / "MEMORY.md": "Works in Rome.",
        home / "SOUL.md": "You speak of plums.",
        guests / "USER.md": "Sells plums.",
        guests / "MEMORY.md": "Nothing.",
    }.items():
        path.write_text(text, encoding="utf-8")
    done = hermes("memory", "forget", "plums", "--yes")
    assert done.code == 1
    assert "Forgotten" not in done.err
    for path in (home / "memories" / "USER.md", home / "SOUL.md"):
        assert f"{path} holds it" in done.out
    assert "MEMORY.md" not in done.out
    assert "1 note of guests and groups" in done.out


def test_a_note_that_cannot_be_read_is_named(home: Path, hermes: Hermes) -> None:
    (home / "memories" / "USER.md").mkdir(parents=True)
    done = hermes("memory", "forget", "plums", "--json")
    assert "USER.md may hold it and cannot be read" in json.loads(done.out)["stays"][0]


@pytest.mark.contract("7.12")
def test_what_nobody_could_confirm_ends_with_an_error_code(home: Path, hermes: Hermes) -> None:
    (home / "memories").mkdir(parents=True)
    note = home / "memories" / "USER.md"
    note.write_text("Has a cat called Miso\n", encoding="utf-8")
    [entry] = json.loads(hermes("memory", "search", "miso", "--json").out)["entries"]
    ran = hermes("memory", "forget", "--id", entry["id"])
    assert (ran.code, "Nothing was deleted." in ran.err) == (1, True)
    assert note.read_text() == "Has a cat called Miso\n"
    assert hermes("memory", "forget", "--id", entry["id"], "--json").code == 0, "a look at what would go"
    assert "sessions search" in hermes("memory", "search", "eel").err


@pytest.mark.processes
@pytest.mark.contract("7.12")
def test_who_forgets_an_entry_may_correct_it_instead(home: Path) -> None:
    (home / "memories").mkdir(parents=True)
    note = home / "memories" / "USER.md"
    note.write_text("Has a cat called Miso\n", encoding="utf-8")
    with Screen("memory", "forget", "--id", "user-", env=plain_env(home)) as screen:
        screen.wait_for("Number or word [no]:").type(f"edit{ENTER}")
        screen.wait_for("Correct text").type(f"Has a cat called Max{ENTER}")
        assert screen.ended() == 0
    assert note.read_text() == "Has a cat called Max\n"
