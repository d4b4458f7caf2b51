"""Who is who: the peer that a speaker is on the server. Pure, and the same in every process.

    pin · alias of the id · alias of the other id · owner · prefix + id · id · session key · unknown

The first that applies wins. Two ids never become one peer, unless an alias or a pin says so: an id that cannot stand as
it is, or would be taken for another peer of the configuration, gets a hash. Nobody is the owner for want of an id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from hermes.honcho.names import LONGEST, digest
from hermes.memory.provider import Speaker

FALLBACK = "user"
"""The owner's peer where nobody gave a name and the system knows none."""
UNKNOWN = "unknown"
"""Whoever has neither an id nor a conversation."""
OTHER = re.compile(r"[^A-Za-z0-9_-]")
HASHES = (8, 12, 16, 24, 32, 64)
HASHED = re.compile(r"-(?:[0-9a-f]{8}|[0-9a-f]{12}|[0-9a-f]{16}|[0-9a-f]{24}|[0-9a-f]{32}|[0-9a-f]{64})$")
"""How an id ends that could be taken for one of ours with a hash."""

Rung = Literal["pin", "alias", "alias of the other id", "owner", "prefix", "id", "session", "unknown"]


class Identities(Struct, frozen=True):
    """What the configuration says of people. `owner` is `peerName`, or the login name where it is not set."""

    owner: str
    ai: str
    pin: bool = False
    pin_guests: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""

    @property
    def taken(self) -> frozenset[str]:
        """Peers that no id may become by accident."""
        return frozenset({self.owner, self.ai, *self.aliases.values()})


class Peer(Struct, frozen=True):
    """A peer's name, and the rung of the ladder that gave it."""

    name: str
    rung: Rung


def find_peer(who: Identities, speaker: Speaker | None, session_key: str | None = None) -> Peer:
    """The peer of a speaker. `session_key`, the chat's or the session's, names whoever has no id."""
    person = speaker or Speaker()
    if who.pin and (person.is_owner or who.pin_guests):
        return Peer(who.owner, "pin")
    if person.user_id is not None and person.user_id in who.aliases:
        return Peer(who.aliases[person.user_id], "alias")
    if person.user_id_alt is not None and person.user_id_alt in who.aliases:
        return Peer(who.aliases[person.user_id_alt], "alias of the other id")
    if person.is_owner:
        return Peer(who.owner, "owner")
    if person.user_id:
        return Peer(_name_id(who, who.prefix, person.user_id), "prefix" if who.prefix else "id")
    if session_key:
        return Peer(_name_id(who, f"{FALLBACK}-", session_key), "session")
    return Peer(_name_id(who, f"{FALLBACK}-", UNKNOWN), "unknown")


def peer_text(raw: str) -> str:
    """`raw` with every character that no name may have as `-`, as a stock Hermes has it."""
    return OTHER.sub("-", raw)


def _name_id(who: Identities, prefix: str, raw: str) -> str:
    """An id as it stands, or with a hash of all of it. What could be taken for one with a hash gets one of its own."""
    whole = f"{prefix}{raw}"
    name = peer_text(whole)
    is_exact = name == whole and len(name) <= LONGEST and not HASHED.search(name)
    if is_exact and name not in who.taken:
        return name
    hashed = [f"{name[: LONGEST - length - 1]}-{digest(whole, length)}" for length in HASHES]
    return next((one for one in hashed if one not in who.taken), hashed[-1])
