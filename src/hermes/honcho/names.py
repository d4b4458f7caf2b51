"""Names on a Honcho server: valid characters, paths in its API, and the name of a conversation's session. Pure.

A session's name comes from the first of these that is set:

    gateway session key · session id (`per-session`) · manual map of the directory · title
    · repository (`per-repo`) · directory · workspace (`global`)

Keys and ids, which never change, come before labels: a title never moves a conversation that has a key or an id.

Two people never share a name. Keys made by a platform, and the owner's titles, directories and maps, keep the plain
name that a stock Hermes gives them; names chosen by a client end with a hash if they could equal another name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from msgspec import Struct

MAX_NAME_CHARS = 100
"""Length of every name that we make."""
HASH_CHARS = 8
"""Hex digits at the end of a shortened name."""
CLIENT_HASH_CHARS = 16
"""Hex digits at the end of a name chosen by a client: more, since the client may search for a collision."""
OTHERS = re.compile(r"[^A-Za-z0-9_-]+")
HASHED_CLIENT = re.compile(rf"-[0-9a-f]{{{CLIENT_HASH_CHARS}}}$")
KEY_START = "agent-"
"""Prefix of the plain names of gateway keys."""
PREFIXED_KEY = re.compile(r"-agent-.+-(?:dm|group|supergroup|channel|forum|thread|api)-")
"""Matches a plain gateway key after a peer's name."""
MIN_KEY_PARTS = 5
"""The least number of fields in a gateway key: `agent:<agent>:<platform>:<chat type>:<chat id>`."""
CLIENT_PLATFORMS = frozenset({"api", "api_server"})
"""Platforms on which a client chooses the ids of its conversations."""

Strategy = Literal["per-directory", "per-session", "per-repo", "global"]
NameSource = Literal["gateway key", "session id", "map", "title", "repository", "directory", "workspace"]
UNPREFIXED: frozenset[NameSource] = frozenset({"map", "workspace"})
"""Sources of names that never get the peer's name as a prefix."""


class Naming(Struct, frozen=True):
    strategy: Strategy
    workspace: str
    manual: Mapping[str, str]
    """Session names by directory."""
    peer_prefix: bool = False
    ai_prefix: str = ""
    """The agent's peer as a prefix of names; "" for no prefix."""
    rotate: bool = False
    """Whether `/new` begins another Honcho session on a gateway."""


class Client(Struct, frozen=True):
    """The program behind a conversation over HTTP. `guest` is the user that it names; None for the owner."""

    platform: str
    guest: str | None = None


class Whereabouts(Struct, frozen=True):
    """The known facts about where a conversation takes place."""

    session_id: str | None = None
    gateway_key: str | None = None
    directory: Path | None = None
    repository: Path | None = None
    """The root of the git repository around the directory."""
    title: str | None = None
    client: Client | None = None
    """Set if a client, not a platform, chose the key."""


class SessionName(Struct, frozen=True):
    """A session's name and its source."""

    name: str
    source: NameSource


def clean(text: str) -> str:
    """Return `text` with each run of invalid characters as one `-`, and none at the ends; it may be empty."""
    return OTHERS.sub("-", text).strip("-")


def digest(text: str, length: int = HASH_CHARS) -> str:
    """Return the first hex digits of the text's SHA-256. Lone surrogates, which UTF-8 cannot encode, are accepted."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def in_path(name: str) -> str:
    """Return a name or id as a segment of a URL path."""
    return quote(name, safe="")


def workspace_path(workspace: str) -> str:
    return f"/v3/workspaces/{in_path(workspace)}"


def session_path(session: str, what: str) -> str:
    """Return a path of a session, relative to the workspace."""
    return f"sessions/{in_path(session)}/{what}"


def peer_path(peer: str, what: str) -> str:
    return f"peers/{in_path(peer)}/{what}"


def card_path(observer: str, observed: str) -> str:
    """Return the path of the card that one peer holds about another, or about itself."""
    return peer_path(observer, "card" if observer == observed else f"card?target={in_path(observed)}")


def fit(raw: str) -> str:
    """Return `raw` as a valid name; a long one is shortened and gets a hash, so that two long names stay distinct."""
    name = clean(raw)
    return name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - HASH_CHARS - 1]}-{digest(raw)}"


def name_session(naming: Naming, place: Whereabouts, peer: str) -> SessionName:
    """Return the name of a conversation's session. `peer` is its person, for the prefix."""
    for source, raw in _candidates(naming, place):
        client = place.client if source == "gateway key" else None
        if client is None and not clean(raw):
            continue
        prefix = "" if source in UNPREFIXED else _prefix(naming, peer)
        if client is not None:
            name = _client_name(prefix, raw, client)
        elif source == "session id":
            name = hash_name(f"{prefix}{raw}", raw) if _is_lossy(raw, f"{prefix}{raw}") else f"{prefix}{raw}"
        elif source in ("title", "directory", "repository") and _imitates_key(raw, prefix):
            name = hash_name(f"{prefix}{raw}", raw)
        else:
            name = fit(f"{prefix}{raw}")
        return SessionName(name, source)
    raise AssertionError("a workspace always has a name")


def _prefix(naming: Naming, peer: str) -> str:
    """Return the prefix of a name: the person's peer, then the agent's, if configured."""
    names = [*([peer] if naming.peer_prefix else []), *([naming.ai_prefix] if naming.ai_prefix else [])]
    return "".join(f"{name}-" for name in names)


def _client_name(prefix: str, key: str, client: Client) -> str:
    """Return the name for a key chosen by a client. A guest's name always ends with a hash of all that identifies
    it."""
    if client.guest is not None:
        shown = clean(key)
        begun = shown if shown.startswith(KEY_START) else f"{KEY_START}{shown}"
        return hash_name(f"{prefix}{begun}", client.platform, client.guest, key)
    parts = key.split(":", MIN_KEY_PARTS - 1)
    is_ours = len(parts) == MIN_KEY_PARTS and parts[0] == "agent" and parts[2] in CLIENT_PLATFORMS
    chosen, name = parts[-1] if is_ours else key, f"{prefix}{clean(key)}"
    return hash_name(name, client.platform, key) if _is_lossy(chosen, name) else name


def _is_lossy(chosen: str, name: str) -> bool:
    """Return True if the name of a client's id could equal the name of something else."""
    changed = clean(chosen) != chosen or not chosen or len(name) > MAX_NAME_CHARS
    return changed or chosen.startswith(KEY_START) or HASHED_CLIENT.search(chosen) is not None


def _imitates_key(label: str, prefix: str) -> bool:
    """Return True if the name of a label could equal the plain name of a gateway key."""
    shown = clean(label)
    return shown.startswith(KEY_START) or (bool(prefix) and PREFIXED_KEY.search(f"-{shown}") is not None)


def hash_name(name: str, *parts: str) -> str:
    """Return `name`, shortened if long, with a hash of `parts` that makes it unique."""
    whole = "\0".join(parts)
    if any("\0" in part for part in parts):  # joined, two lists of parts could be one text; as JSON they never are
        whole = json.dumps(parts)
    begun = clean(name)[: MAX_NAME_CHARS - CLIENT_HASH_CHARS - 1].rstrip("-")
    return f"{begun}-{digest(whole, CLIENT_HASH_CHARS)}".lstrip("-")


def find_manual(naming: Naming, directory: Path | None) -> str | None:
    """Return the name that the manual map gives a directory."""
    if directory is None:
        return None
    # Not Path.expanduser, which raises for the folder of someone unknown.
    named = {Path(os.path.expanduser(given)): name for given, name in naming.manual.items()}  # noqa: PTH111
    return named.get(directory)


def find_repository(directory: Path) -> Path | None:
    """Return the root of the git repository around a directory. Reads the disk."""
    return next((folder for folder in (directory, *directory.parents) if (folder / ".git").exists()), None)


def _candidates(naming: Naming, place: Whereabouts) -> Iterator[tuple[NameSource, str]]:
    if place.gateway_key:
        rotated = f"-{digest(place.session_id or '')}" if naming.rotate else ""
        yield "gateway key", f"{place.gateway_key}{rotated}" if clean(place.gateway_key) or place.client else ""
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
    """Return the last part of the path; a hash for `/` and for names without any valid character."""
    return directory.name if clean(directory.name) else f"directory-{digest(str(directory))}"
