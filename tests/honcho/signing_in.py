"""Helpers for sign-in tests: a sign-in in a file, short renewal timings, and a browser."""

from __future__ import annotations

import time
from typing import Any

import httpx

from hermes.honcho.renewal import Renewal, RenewalTimings
from tests.honcho.configuring import Machine
from tests.honcho.issuer import Issuer
from tests.plain_http import PLAIN

QUICK = RenewalTimings(request=1.0, retry_after=0.05, total=3.0, pause=1.0, refused_pause=30.0, lock=20.0)
FOREIGN_KEYS: dict[str, Any] = {"telemetry": {"id": 7}, "hosts": {"cursor": {"theme": "dark"}}}


def sign_in(machine: Machine, issuer: Issuer, valid_seconds: float = -1.0, **more: Any) -> str:
    """Write a sign-in with this expiry into the host block, and return its token."""
    grant = issuer.grant(valid_seconds=valid_seconds)
    block = {"baseUrl": issuer.url, "peerName": "ann", **grant, **more}
    path = machine.write({**FOREIGN_KEYS, "hosts": {**FOREIGN_KEYS["hosts"], "hermes": block}})
    path.chmod(0o644)
    token: str = grant["apiKey"]
    return token


def renewal(machine: Machine, now: Any = time.time) -> Renewal:
    return Renewal(machine.places(), machine.load, now, QUICK)


def stored(machine: Machine) -> dict[str, Any]:
    block: dict[str, Any] = machine.read()["hosts"]["hermes"]
    return block


def visiting(url: str) -> httpx.Response:
    return httpx.get(url, follow_redirects=True, verify=PLAIN, timeout=20, trust_env=False)
