"""Who is who: the peer that a speaker is on the server. Pure, and the same in every process.

    pin · alias of the id · alias of the other id · owner · prefix + id · id · session key · unknown

The first that applies wins. Two ids never become one peer, unless an alias or a pin says so: an id that is no valid
name, or equals another name of the configuration, gets a hash. A speaker without an id is never taken for the owner.
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
"""The end of an id that looks as if we had added a hash to it."""

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


class ResolvedPeer(Struct, frozen=True):
    """A peer's name, and the rung of the ladder that gave it."""

    name: str
    rung: Rung


def find_peer(who: Identities, speaker: Speaker | None, session_key: str | None = None) -> ResolvedPeer:
    """The peer of a speaker. `session_key`, the chat's or the session's, names whoever has no id."""
    person = speaker or Speaker()
    if who.pin and (person.is_owner or who.pin_guests):
        return ResolvedPeer(who.owner, "pin")
    if person.user_id is not None and person.user_id in who.aliases:
        return ResolvedPeer(who.aliases[person.user_id], "alias")
    if person.user_id_alt is not None and person.user_id_alt in who.aliases:
        return ResolvedPeer(who.aliases[person.user_id_alt], "alias of the other id")
    if person.is_owner:
        return ResolvedPeer(who.owner, "owner")
    if person.user_id:
        return ResolvedPeer(_name_id(who, who.prefix, person.user_id), "prefix" if who.prefix else "id")
    if session_key:
        return ResolvedPeer(_name_id(who, f"{FALLBACK}-", session_key), "session")
    return ResolvedPeer(_name_id(who, f"{FALLBACK}-", UNKNOWN), "unknown")


def peer_text(raw: str) -> str:
    """`raw` with every character that no name may have as `-`, as a stock Hermes has it."""
    return OTHER.sub("-", raw)


def _name_id(who: Identities, prefix: str, raw: str) -> str:
    """An id as a peer's name: unchanged where possible, else with a hash of the whole id. An id that already looks
    hashed gets a hash too, so that it cannot be mistaken for another."""
    whole = f"{prefix}{raw}"
    name = peer_text(whole)
    is_exact = name == whole and len(name) <= LONGEST and not HASHED.search(name)
    if is_exact and name not in who.taken:
        return name
    hashed = [f"{name[: LONGEST - length - 1]}-{digest(whole, length)}" for length in HASHES]
    return next((one for one in hashed if one not in who.taken), hashed[-1])
