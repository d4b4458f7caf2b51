"""Names on a Honcho server: what may stand in one, where its API has what they name, and the name of the session that a
conversation is kept in. Pure.

A session's name is the first of these that has one:

    gateway session key · session id (`per-session`) · manual map of the directory · title
    · repository (`per-repo`) · directory · workspace (`global`)

Keys and ids, which never change, come before labels: a title never moves a conversation that has a key or an id.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from msgspec import Struct

LONGEST = 100
"""Characters of any name that we make."""
HASH = 8
OTHERS = re.compile(r"[^A-Za-z0-9_-]+")

Strategy = Literal["per-directory", "per-session", "per-repo", "global"]
NameSource = Literal["gateway key", "session id", "map", "title", "repository", "directory", "workspace"]
UNPREFIXED: frozenset[NameSource] = frozenset({"map", "workspace"})
"""Kinds of names that are complete: the peer's name is not put before them."""


class Naming(Struct, frozen=True):
    strategy: Strategy
    workspace: str
    manual: Mapping[str, str]
    """Directories and the names that were given to them."""
    peer_prefix: bool = False
    rotate: bool = False
    """Whether `/new` begins another Honcho session on a gateway."""


class Whereabouts(Struct, frozen=True):
    """What is known of where a conversation takes place."""

    session_id: str | None = None
    gateway_key: str | None = None
    directory: Path | None = None
    repository: Path | None = None
    """The root of the git repository around the directory."""
    title: str | None = None


class SessionName(Struct, frozen=True):
    """A name, and what it was made of."""

    name: str
    source: NameSource


def clean(text: str) -> str:
    """`text` with every run of characters that no name may have as one `-`, and none at its ends; it may be empty."""
    return OTHERS.sub("-", text).strip("-")


def digest(text: str, length: int = HASH) -> str:
    """So many hex digits of the text's SHA-256. A lone surrogate, which UTF-8 cannot hold, is hashed as it is."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def in_path(name: str) -> str:
    """A name or id as a part of a URL."""
    return quote(name, safe="")


def workspace_path(workspace: str) -> str:
    return f"/v3/workspaces/{in_path(workspace)}"


def session_path(session: str, what: str) -> str:
    """Below the workspace, as the following."""
    return f"sessions/{in_path(session)}/{what}"


def peer_path(peer: str, what: str) -> str:
    return f"peers/{in_path(peer)}/{what}"


def card_path(observer: str, observed: str) -> str:
    """The card that one peer holds about another, or about itself."""
    return peer_path(observer, "card" if observer == observed else f"card?target={in_path(observed)}")


def fit(raw: str) -> str:
    """`raw` as a name; one that is too long is cut and gets a hash, so that two long ones never become one."""
    name = clean(raw)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - HASH - 1]}-{digest(raw)}"


def name_session(naming: Naming, place: Whereabouts, peer: str) -> SessionName:
    """The name of a conversation's session; `peer` is whose it is, for the prefix. It always has one."""
    for source, raw in _candidates(naming, place):
        if not clean(raw):
            continue
        prefixed = naming.peer_prefix and source not in UNPREFIXED
        return SessionName(fit(f"{peer}-{raw}" if prefixed else raw), source)
    raise AssertionError("a workspace always has a name")


def find_manual(naming: Naming, directory: Path | None) -> str | None:
    """The name that was given to a directory by hand."""
    if directory is None:
        return None
    # Not Path.expanduser, which raises for the folder of someone unknown.
    named = {Path(os.path.expanduser(given)): name for given, name in naming.manual.items()}  # noqa: PTH111
    return named.get(directory)


def find_repository(directory: Path) -> Path | None:
    """The root of the git repository that a directory is in. It looks at the disk."""
    return next((folder for folder in (directory, *directory.parents) if (folder / ".git").exists()), None)


def _candidates(naming: Naming, place: Whereabouts) -> Iterator[tuple[NameSource, str]]:
    if place.gateway_key:
        rotated = f"-{digest(place.session_id or '')}" if naming.rotate else ""
        yield "gateway key", f"{place.gateway_key}{rotated}" if clean(place.gateway_key) else ""
    if place.session_id and (naming.strategy == "per-session" or (place.directory is None and not place.gateway_key)):
        yield "session id", place.session_id
    yield "map", find_manual(naming, place.directory) or ""
    yield "title", place.title or ""
    if naming.strategy == "per-repo" and place.repository is not None:
        yield "repository", place.repository.name
    if naming.strategy != "global" and place.directory is not None:
        yield "directory", _name_directory(place.directory)
    yield "workspace", naming.workspace


def _name_directory(directory: Path) -> str:
    """The last part of the path; a hash for `/` and for a folder without any character that a name may have."""
    return directory.name if clean(directory.name) else f"directory-{digest(str(directory))}"
