"""The server is killed repeatedly under load: no acknowledged message is lost or stored twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

import httpx
import pytest

from hermes.embedded.connect import connect
from hermes.embedded.rendezvous import Place, read_rendezvous
from tests.embedded.clients import client_of, read_all, wait_until, write
from tests.scale import scale

WRITERS = 4
LIVES = 1.0
"""Lifetime of a server after it became ready, in seconds."""


def keep_writing(place: Place, name: str, over: threading.Event, acknowledged: list[str]) -> None:
    """Store messages, each until it is acknowledged; after a refusal, connect again."""
    while not over.is_set():
        with client_of(connect(place)) as client, suppress(httpx.TransportError):
            while not over.is_set():
                text = f"I own book {len(acknowledged)} of {name}."
                write(client, text)
                acknowledged.append(text)


def kill_each(place: Place, seconds: float) -> None:
    """Kill every server one second after it became ready, for `seconds`, and at least two."""
    end, killed, last = time.monotonic() + seconds, 0, ""
    while time.monotonic() < end or killed < 2:
        found = read_rendezvous(place.rendezvous)
        if found is not None and found.start_id != last:
            last = found.start_id
            time.sleep(LIVES)  # not to wait for anything: it is the moment of the kill
            os.kill(found.pid, signal.SIGKILL)
            killed += 1
        time.sleep(0.02)


@pytest.mark.stress
@pytest.mark.contract("9.2", "P1", "P2")
@pytest.mark.timeout(600)
def test_repeatedly_killed_server_loses_nothing_and_stores_nothing_twice(place: Place) -> None:
    connect(place)
    over = threading.Event()
    acknowledged: list[list[str]] = [[] for _ in range(WRITERS)]
    threads = [
        threading.Thread(target=keep_writing, args=(place, f"shelf {n}", over, acknowledged[n])) for n in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    kill_each(place, scale(0, 120))
    wait_until(lambda: all(acknowledged))
    over.set()
    for thread in threads:
        thread.join()
    with client_of(connect(place)) as client:
        stored = read_all(client)
    assert len(stored) == len(set(stored)), "something was kept twice"
    for number, texts in enumerate(acknowledged):
        kept = [text for text in stored if text.endswith(f"of shelf {number}.")]
        assert kept[: len(texts)] == texts, "something was lost, or changed its place"
        assert len(kept) <= len(texts) + 1, "only what was on its way at the end may be there beyond it"
