"""Access to a home's memory server and its people behind the page's back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from hermes.clock import SystemClock
from hermes.embedded.connect import connect
from hermes.store.people import mark, meet
from hermes.store.store import Store
from tests.embedded.clients import client_of, place_of
from tests.web.serving import WebProcess

WORKSPACE = "/v3/workspaces/hermes"
OWNER, AGENT = "ann", "hermes"
MAX_LISTED_FACTS = 100


@contextmanager
def server_of(web: WebProcess) -> Iterator[httpx.Client]:
    """Return a client of the home's memory server."""
    with client_of(connect(place_of(web.home))) as client:
        yield client


def hold(client: httpx.Client, facts: Sequence[str], about: str = OWNER) -> list[str]:
    """Store facts of the agent about somebody; return their ids."""
    for peer in (AGENT, about):
        assert client.post(f"{WORKSPACE}/peers", json={"id": peer}).is_success
    ids: list[str] = []
    for start in range(0, len(facts), MAX_LISTED_FACTS):
        part = [
            {"observer_id": AGENT, "observed_id": about, "content": text}
            for text in facts[start : start + MAX_LISTED_FACTS]
        ]
        made = client.post(f"{WORKSPACE}/conclusions", json={"conclusions": part})
        assert made.is_success, made.text
        ids += [one["id"] for one in made.json()]
    return ids


def held(client: httpx.Client, about: str = OWNER) -> list[str]:
    """Return all facts about somebody."""
    asked = {"filters": {"observed_id": about}}
    found = client.post(f"{WORKSPACE}/conclusions/list", params={"size": MAX_LISTED_FACTS}, json=asked)
    return [one["content"] for one in found.json()["items"]]


async def meet_people(home: Path) -> None:
    """Store three people who have written on Telegram, one of them the owner."""
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=5.0) as store:
        for user_id, name in (("17", "Bob"), ("18", "Rob"), ("19", "Ann")):
            await store.write(lambda tx, one=user_id, called=name: meet(tx, "telegram", one, called))  # type: ignore[misc]
        await store.write(lambda tx: mark(tx, "telegram", "19", is_owner=True, now=1.0))
