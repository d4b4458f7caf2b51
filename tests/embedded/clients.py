"""A client of the memory server: finds or starts it, writes and reads. Also a program: `HOME NUMBER`."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from hermes.embedded.connect import ServerConnection, connect
from hermes.embedded.rendezvous import Place
from tests.plain_http import PLAIN

MESSAGES = "/v3/workspaces/w/sessions/s/messages"


HANG = 120.0


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until the condition holds; the timeout only guards against a hanging test."""
    end = time.monotonic() + HANG
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def place_of(home: Path) -> Place:
    return Place(home / "memory", home)


def client_of(connection: ServerConnection) -> httpx.Client:
    """Return a plain client with the key."""
    headers = {"Authorization": f"Bearer {connection.api_key}"}
    return httpx.Client(base_url=connection.base_url, headers=headers, timeout=30, verify=PLAIN)


def write(client: httpx.Client, text: str) -> None:
    """Store a new message. It is acknowledged when this returns, and stored once however often it is sent."""
    said = {"messages": [{"content": text, "peer_id": "ann"}]}
    key = hashlib.sha256(text.encode()).hexdigest()
    client.post(MESSAGES, json=said, headers={"Idempotency-Key": key}).raise_for_status()


def read_all(client: httpx.Client) -> list[str]:
    """Return all messages, in order."""
    texts: list[str] = []
    page: dict[str, Any] = {"pages": 1}
    number = 0
    while number < page["pages"]:
        number += 1
        answer = client.post(f"{MESSAGES}/list", params={"page": number, "size": 100}, json={})
        page = answer.raise_for_status().json()
        texts += [item["content"] for item in page["items"]]
    return texts


def main(home: Path, number: str) -> None:
    connection = connect(place_of(home))
    with client_of(connection) as client:
        write(client, f"I am number {number}.")
        texts = read_all(client)
    print(json.dumps({"url": connection.base_url, "texts": texts}))  # noqa: T201 - this is the output


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
