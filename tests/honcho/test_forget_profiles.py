"""`hermes memory forget` covers profiles with the same memory, and names those that it cannot cover."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.db.engine import Tx
from hermes.db.queue_items import stats
from hermes.memory.outbox import Destination, Outbox
from hermes.memory.values import Address, Conversation, Speaker
from hermes.store.store import Store
from hermes.types import Draft, Session
from tests.cli.filling import write_into
from tests.conftest import Ran
from tests.honcho.recalling import ANN, Recalling

Hermes = Callable[..., Ran]
SECRET = "My safe opens with Zanzibar."
OWNER = Speaker(is_owner=True)
pytestmark = pytest.mark.contract("7.12")


@pytest.fixture(autouse=True)
def home(recalling: Recalling, commanded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    recalling.configure()
    monkeypatch.setenv("HOME", str(recalling.machine.folder))
    recalling.tell("elsewhere", (ANN, SECRET))
    return commanded


def profile(home: Path, name: str) -> Path:
    """Another profile with Honcho chosen and the secret in its queue."""
    folder = home / "profiles" / name
    write_into(folder, _leave_entry)
    (folder / "config.yaml").write_text("memory:\n  provider: honcho\n")
    return folder


def _leave_entry(store: Store, tx: Tx) -> None:
    now = store.clock.now()
    store.sessions.create(tx, Session("one", "cli", now))
    (message,) = store.messages.append(tx, "one", [Draft("user", SECRET)], now=now)
    destination = Destination(
        "one", Conversation("one", "cli", "everything", OWNER), Address("lane", {"session": "one"})
    )
    Outbox("honcho").said(tx, destination, [(message, OWNER)], now=now)


def waiting(folder: Path) -> int:
    return write_into(folder, lambda store, tx: stats(tx, "memory:honcho", now=store.clock.now()).waiting)


def test_forgetting_clears_profiles_of_the_same_workspace_alone(home: Path, hermes: Hermes) -> None:
    coder, own = profile(home, "coder"), profile(home, "own")
    (own / "honcho.json").write_text(json.dumps({**json.loads((home / "honcho.json").read_text()), "workspace": "own"}))
    shown = hermes("memory", "forget", "Zanzibar")
    assert "messages of profile coder that memory may know: 1" in shown.out
    assert "profile own" not in shown.out
    done = hermes("memory", "forget", "Zanzibar", "--yes")
    assert done.code == 0, done.out
    assert (waiting(coder), waiting(own)) == (0, 1)


@pytest.mark.parametrize("broken", ["state.db", "config.yaml", "honcho.json", ".env"])
def test_a_profile_that_cannot_be_looked_at_is_named_and_nothing_is_called_forgotten(
    home: Path, hermes: Hermes, broken: str
) -> None:
    (profile(home, "coder") / broken).write_text("{ this is nothing")
    done = hermes("memory", "forget", "Zanzibar", "--yes")
    assert done.code == 1
    assert "profile coder may tell it again" in done.out
    assert "Forgotten" not in done.err
