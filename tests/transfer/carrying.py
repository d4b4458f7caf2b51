"""Exports and imports as a person starts them, in this process, over a connection that can be cut."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from hermes.transfer.importing import ImportTarget, Progress, export_workspace, import_file
from hermes.transfer.lines import (
    END,
    FORMAT_VERSION,
    HEAD,
    MARK,
    SECTIONS,
    LineProgress,
    Source,
    check_file,
    write_line,
)
from hermes.transfer.own_server import OwnSource, OwnTarget
from hermes.transfer.public_source import PublicSource
from hermes.transfer.public_target import PublicTarget
from hermes.transfer.remote import Remote
from tests.memory_server.serving import Served
from tests.plain_http import PLAIN


class Cut(BaseException):
    """Raised to simulate the end of the process."""


class CutTransport(httpx.BaseTransport):
    """Passes this many requests. The next one does not reach the server, or its response is lost."""

    def __init__(self, requests: int, *, after_reply: bool = False) -> None:
        self._inner = httpx.HTTPTransport(verify=PLAIN)
        self._left = requests
        self._after_reply = after_reply

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._left -= 1
        if self._left < 0 and not self._after_reply:
            raise Cut
        response = self._inner.handle_request(request)
        if self._left < 0:
            response.read()
            raise Cut
        return response

    def close(self) -> None:
        self._inner.close()


ALL = 1_000_000


def export(served: Served, workspace: str, path: Path, *, public: bool = False, requests: int = ALL) -> dict[str, Any]:
    """Export, or be interrupted after this many requests."""
    remote = Remote(served.url, None, workspace, transport=CutTransport(requests))
    try:
        source: Source = PublicSource(remote) if public else OwnSource(remote)
        return export_workspace(source, workspace, path, lambda _section, _count: None)
    finally:
        remote.close()


def bring(
    served: Served, path: Path, *, public: bool = False, requests: int = ALL, after_reply: bool = False
) -> dict[str, Any]:
    """Import, or be interrupted after this many requests."""
    checked = check_file(path)
    transport = CutTransport(requests, after_reply=after_reply)
    remote = Remote(served.url, None, checked.workspace, transport=transport)
    try:
        progress = Progress.take_up(
            path.with_name(path.name + ".progress"), checked.sha256, served.url, checked.workspace
        )
        target: ImportTarget = PublicTarget(remote) if public else OwnTarget(remote)
        return import_file(target, checked, path, progress, lambda _section, _count: None)
    finally:
        remote.close()


def items(path: Path) -> dict[str, list[Any]]:
    """Return the items of an export by section, in order."""
    found: dict[str, list[Any]] = {section: [] for section in SECTIONS}
    for line in path.read_text(encoding="utf-8").split("\n"):
        for section, item in (json.loads(line) if line else {}).items():
            if section in found and isinstance(item, dict):
                found[section].append(item)
    return found


def write_file(path: Path, workspace: str, given: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Write an export of these items, with one mark at its end."""
    so_far = LineProgress()
    with path.open("wb") as file:
        write_line(file, so_far, {HEAD: FORMAT_VERSION, "workspace": workspace, "source": "hermes"})
        for section, item in given:
            write_line(file, so_far, {section: item})
            so_far.counts[section] += 1
        write_line(file, so_far, {MARK: {"section": given[-1][0], "after": None, "sha256": so_far.sha256()}})
        write_line(file, so_far, {END: {"counts": dict(so_far.counts), "lacking": {}, "sha256": so_far.sha256()}})


def tear(path: Path, chance: random.Random) -> None:
    """Truncate a file as a killed process leaves it: its end is missing, from the middle of a line."""
    if path.exists():
        with path.open("rb+") as file:
            size = file.seek(0, 2)
            file.truncate(max(0, size - chance.randrange(0, 400)))
