"""Helpers for set-up tests: files with keys in each layer, the output of `status`, and a gateway with known people."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.honcho.configuration import HOST, ROOT
from tests.conftest import Ran

Hermes = Callable[..., Ran]
NOBODY = "http://127.0.0.1:9"
USE = ("",)
"""The answer that keeps how memory is used."""


LAYERS = pytest.mark.parametrize("layer", [HOST, ROOT])


def placed(layer: str, values: dict[str, Any]) -> dict[str, Any]:
    """Write a file with these keys in the host block or at the root."""
    return values if layer == ROOT else {"hosts": {"hermes": values}}


def status(hermes: Hermes) -> dict[str, Any]:
    ran = hermes("honcho", "status", "--json")
    assert ran.code == 0, ran.out
    found: dict[str, Any] = json.loads(ran.out)
    return found


def document(home: Path) -> dict[str, Any]:
    path = home / "honcho.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write(home: Path, value: dict[str, Any]) -> None:
    home.mkdir(exist_ok=True)
    (home / "honcho.json").write_text(json.dumps(value), encoding="utf-8")


def block(home: Path, host: str = "hermes") -> dict[str, Any]:
    found: dict[str, Any] = document(home).get("hosts", {}).get(host, {})
    return found


def provider(hermes: Hermes) -> str:
    return hermes("config", "get", "memory.provider").out.strip()


def add_gateway(hermes: Hermes) -> None:
    """Configure a platform on which two unmarked people may talk."""
    assert hermes("config", "set", "telegram.token", "1:x").code == 0
    assert hermes("config", "set", "gateway.allow", "telegram:17,telegram:18").code == 0


def roles(hermes: Hermes) -> dict[str, str]:
    people = json.loads(hermes("gateway", "people", "--json").out)
    return {one["who"]: one["role"] for one in people if one["marked_at"] is not None}


def meet(hermes: Hermes, *who: str) -> None:
    """Record these people as known."""
    assert hermes("config", "set", "gateway.allow", ",".join(who)).code == 0
