"""What the owner's page does not show: guests, groups and other profiles."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.db.queue import enqueue
from hermes.memory.outbox import queue_name
from hermes.store.store import Store
from hermes.types import Draft, Json, Session
from tests.web.holding import hold, server_of
from tests.web.serving import SaidNext, WebProcess, serving

pytestmark = pytest.mark.contract("10.65")

SECRET = "xylophone"
NOW = 1_795_000_000.0
HIDDEN = {
    "guest": Session("guest", "telegram", NOW, "17", "agent:main:telegram:dm:17", "17", "dm"),
    "group": Session("group", "telegram", NOW, None, "agent:main:telegram:group:-9", "-9", "group"),
    "caller": Session("caller", "api", NOW, "bob", "agent:main:api:api:bob", "bob", "api"),
}
OWN = Session("own", "cli", NOW)


async def fill(home: Path, *sessions: Session) -> None:
    """Put sessions into a home in each of which somebody speaks of the secret."""
    home.mkdir(parents=True, exist_ok=True)
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=5.0) as store:
        for session in sessions:
            await store.write(lambda tx, one=session: store.sessions.create(tx, one))  # type: ignore[misc]
            said = Draft("user", f"The {SECRET} of {session.id} is out of tune.")
            [message, _] = await store.append(session.id, said, Draft("assistant", "I see."))
            payload = {"kind": "said", "message": message.id, "speaker": None}
            await store.write(partial(wait_for_ever, session=session.id, payload=payload))


def wait_for_ever(tx: Tx, session: str, payload: Json) -> None:
    """Queue what was said for a memory that never takes it."""
    enqueue(tx, queue_name("elsewhere"), session, f"said:{session}", payload, now=NOW, session_id=session)


@pytest.fixture(scope="module")
def signed(model: SaidNext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebProcess, httpx.Client]]:
    """The page of a home with guests, where users of the API are guests too, and with another profile."""
    home = tmp_path_factory.mktemp("reach") / "home"
    asyncio.run(fill(home, *HIDDEN.values(), OWN))
    asyncio.run(fill(home / "profiles" / "work", Session("elsewhere", "cli", NOW)))
    (home / "config.yaml").write_text("api:\n  users: guests\n", encoding="utf-8")
    with serving(home, model) as web, web.sign_in() as client:
        yield web, client


def test_sessions_of_guests_groups_and_profiles_are_not_listed_or_found(
    signed: tuple[WebProcess, httpx.Client],
) -> None:
    _, client = signed
    for path in ("/", "/sessions", f"/search?q={SECRET}", "/sessions/own"):
        text = client.get(path).text
        assert [name for name in (*HIDDEN, "elsewhere") if f"of {name} is" in text] == []
    assert f"of {OWN.id} is" in client.get("/sessions/own").text
    assert SECRET in client.get(f"/search?q={SECRET}").text


@pytest.mark.parametrize("session", [*HIDDEN, "elsewhere", "../work/state", "nobody"])
@pytest.mark.parametrize("rest", ["", "/stream", "/export?form=jsonl", "/delete", "/turns/1/memory"])
def test_session_that_is_not_the_owners_is_not_there(
    signed: tuple[WebProcess, httpx.Client], session: str, rest: str
) -> None:
    answer = signed[1].get(f"/sessions/{session}{rest}")
    assert answer.status_code == 404
    assert "out of tune" not in answer.text


@pytest.mark.parametrize("act", ["say", "title", "incognito", "delete"])
def test_session_that_is_not_the_owners_cannot_be_changed(signed: tuple[WebProcess, httpx.Client], act: str) -> None:
    web, client = signed
    token = client.get("/sessions").text.partition('name="csrf" value="')[2].partition('"')[0]
    form = {"csrf": token, "text": "hello", "title": "mine", "everywhere": "1"}
    for session in HIDDEN:
        answer = client.post(f"/sessions/{session}/{act}", data=form, headers={"Origin": web.url})
        assert answer.status_code == 404


def test_words_of_others_that_wait_for_memory_are_not_shown(signed: tuple[WebProcess, httpx.Client]) -> None:
    text = signed[1].get("/memory/waiting").text
    assert f"of {OWN.id} is" in text
    assert [name for name in HIDDEN if f"of {name} is" in text] == []
    assert text.count("not shown") == len(HIDDEN)


def test_what_memory_holds_of_others_is_not_shown(signed: tuple[WebProcess, httpx.Client]) -> None:
    web, client = signed
    with server_of(web) as server:
        [theirs] = hold(server, ["I own a zither."], about="17")
        hold(server, ["I own a drum."])
    assert "I own a drum." in client.get("/memory").text
    for path in ("/memory", "/memory?q=own", "/memory/forget?q=own", "/memory/people", "/memory/export", "/news"):
        assert "zither" not in client.get(path).text
    found = client.get("/memory/forget?q=own").text
    assert "I own a drum." in found
    assert "1 entry of replies or of other people" in found
    assert client.get(f"/memory/facts/{theirs}").status_code == 404
