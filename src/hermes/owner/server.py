"""The state of the memory server of a home."""

from __future__ import annotations

from hermes.config_file import load_shared_env
from hermes.embedded.asking import look
from hermes.embedded.connect import find_running, read_own
from hermes.embedded.place import find_place
from hermes.errors import HermesError
from hermes.home import Home
from hermes.types import Json


def read_server(home: Home) -> dict[str, Json]:
    """Return address, process and health of a home's memory server, or that none runs. Starts nothing."""
    place = find_place(home, load_shared_env(home))
    shown: dict[str, Json] = {"folder": str(place.folder), "running": False, "problem": None}
    try:
        found = find_running(place)
        stale = read_own(place) if found is None else None
    except HermesError as error:
        return {**shown, "problem": error.line()}
    if found is None:
        return {**shown, "gone": None if stale is None else stale.pid}
    _, health = look(found)
    facts = {"url": found.url, "pid": found.pid, "version": found.version, "kind": found.kind}
    return {**shown, **facts, "running": True, "started_at": found.started_at, "health": dict(health)}
