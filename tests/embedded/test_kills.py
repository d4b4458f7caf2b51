"""The server is killed again and again under load: nothing that it acknowledged is lost."""

from __future__ import annotations

import os
import signal
import threading
import time

import httpx
import pytest

from hermes.embedded.connect import connect
from hermes.embedded.place import Place
from hermes.embedded.rendezvous import read_rendezvous
from tests.embedded.clients import client_of, read_all, write
from tests.scale import scale

WRITERS = 4
LIVES = 1.0
"""Seconds that a server lives after it became ready."""


def keep_writing(place: Place, name: str, over: threading.Event, acknowledged: list[str]) -> None:
    """Say one thing after another, each once; whoever is refused asks for the server again."""
    number = 0
    while not over.is_set():
        with client_of(connect(place)) as client:
            while not over.is_set():
                number += 1
                text = f"I own book {number} of {name}."
                try:
                    write(client, text)
                except httpx.TransportError:
                    break
                acknowledged.append(text)


def kill_each(place: Place, seconds: float) -> int:
    """Kill every server one second after it became ready; how many there were."""
    end, killed, last = time.monotonic() + seconds, 0, ""
    while time.monotonic() < end:
        found = read_rendezvous(place.rendezvous)
        if found is not None and found.start_id != last:
            last = found.start_id
            time.sleep(LIVES)  # not to wait for anything: it is the moment of the kill
            os.kill(found.pid, signal.SIGKILL)
            killed += 1
        time.sleep(0.02)
    return killed


@pytest.mark.stress
@pytest.mark.contract("9.2", "P1")
@pytest.mark.timeout(600)
def test_server_killed_a_second_after_each_start_loses_nothing_that_it_acknowledged(place: Place) -> None:
    connect(place)
    over = threading.Event()
    acknowledged: list[list[str]] = [[] for _ in range(WRITERS)]
    threads = [
        threading.Thread(target=keep_writing, args=(place, f"shelf {n}", over, acknowledged[n])) for n in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    killed = kill_each(place, scale(6, 120))
    over.set()
    for thread in threads:
        thread.join()
    with client_of(connect(place)) as client:
        stored = read_all(client)
    assert killed >= 2
    assert len(stored) == len(set(stored)), "something was kept twice"
    for texts in acknowledged:
        assert texts, "everyone got through"
        positions = {text: position for position, text in enumerate(stored)}
        assert [positions[text] for text in texts] == sorted(positions[text] for text in texts)
