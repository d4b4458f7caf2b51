"""The peer of each speaker on the server. Pure, and the same in every process.

    pin · alias of the id · alias of the other id · owner · prefix + id · id · session key · unknown

The first rule that applies wins. Two accounts share a peer only by an alias or a pin: an id that is not a valid name,
or equals another name of the configuration, gets a hash, and ids of a second platform get the platform's name as a
prefix. A speaker without an id is never the owner.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

from msgspec import Struct, field

from hermes.honcho.guests import NO_GUESTS, GuestRecord, account_name, split_account
from hermes.honcho.names import MAX_NAME_CHARS, digest
from hermes.memory.provider import Acquaintance, Speaker

FALLBACK = "user"
"""The owner's peer if neither the configuration nor the system names one."""
UNKNOWN = "unknown"
"""The suffix for speakers without an id and a conversation."""
OTHER = re.compile(r"[^A-Za-z0-9_-]")
HASH_LENGTHS = (8, 12, 16, 24, 32, 64)
HASHED = re.compile(r"-(?:[0-9a-f]{8}|[0-9a-f]{12}|[0-9a-f]{16}|[0-9a-f]{24}|[0-9a-f]{32}|[0-9a-f]{64})$")
"""Matches ids that end like one of our hashes."""
PLATFORM_NAMES = (
    *("api", "api_server", "discord", "email", "feishu", "google_chat", "line", "matrix", "mattermost", "signal"),
    *("slack", "sms", "teams", "telegram", "webhook", "wechat", "whatsapp"),
)
PLATFORM_START = re.compile(rf"(?:{'|'.join(PLATFORM_NAMES)})-")
"""Matches the start of peers of a second platform; an id that starts so gets a hash."""
AGENT = re.compile(r"hermes(?:_.*)?", re.DOTALL)
"""Matches the default names of agents."""

Rung = Literal["pin", "alias", "alias of the other id", "owner", "kept", "prefix", "id", "session", "unknown"]


class Identities(Struct, frozen=True, dict=True):
    """The names and rules of the configuration that identify people. `owner` is `peerName`, or the login name if
    unset."""

    owner: str
    ai: str
    pin: bool = False
    pin_guests: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    others: frozenset[str] = frozenset()
    """The owner's and the agent's peers in all other host blocks."""
    targets: frozenset[str] = frozenset()
    """Peers that aliases of any host block point to."""
    guests: GuestRecord = NO_GUESTS

    @cached_property
    def taken(self) -> frozenset[str]:
        """Peers that no id may get by accident."""
        aliased = (*self.aliases.values(), *self.targets, *self.guests.owners)
        return frozenset({self.owner, self.ai, *aliased, *self.others, *self.guests.kept.values()})

    def is_own(self, peer: str) -> bool:
        """Return True if a peer is the owner's or an agent's, in any host block."""
        return self.is_owners(peer) or peer == self.ai or peer in self.others or AGENT.fullmatch(peer) is not None

    def is_owners(self, peer: str) -> bool:
        """Return True if a peer is the owner's here, also by an alias."""
        return peer == self.owner or peer in self.guests.owners


class ResolvedPeer(Struct, frozen=True):
    """A peer's name, and the rule that gave it."""

    name: str
    rung: Rung
    is_shared: bool = False
    """True for an account that is not the owner's on a peer of the owner, an agent or another account. It may read
    only the current conversation."""


def find_peer(
    who: Identities, speaker: Speaker | None, session_key: str | None = None, platform: str | None = None
) -> ResolvedPeer:
    """Return the peer of a speaker. `session_key` identifies a speaker without an id. Without a platform, the first
    platform is assumed."""
    person = speaker or Speaker()
    if person.is_agent and person.user_id:  # never pinned, never the owner, whatever an alias says
        return _of_id(who, platform, person.user_id)
    if who.pin and (person.is_owner or who.pin_guests):
        return ResolvedPeer(who.owner, "pin", not person.is_owner)
    for given, rung in ((person.user_id, "alias"), (person.user_id_alt, "alias of the other id")):
        named = None if given is None else _alias(who, platform, given)
        if named is not None:
            is_shared = not person.is_owner and _is_others(who, platform, person.user_id or "", named)
            return ResolvedPeer(named, rung, is_shared)  # type: ignore[arg-type]
    if person.is_owner:
        return ResolvedPeer(who.owner, "owner")
    if person.user_id:
        return _of_id(who, platform, person.user_id)
    if session_key:
        return ResolvedPeer(_name_id(who, f"{FALLBACK}-", session_key), "session")
    return ResolvedPeer(_name_id(who, f"{FALLBACK}-", UNKNOWN), "unknown")


def parse_account(who: Identities, given: str, people: Sequence[Acquaintance]) -> tuple[str | None, str]:
    """Split `<platform>:<id>`, or find the platform of an id alone: the first platform, unless the only known
    account with this id is on another one."""
    platform, colon, user_id = given.partition(":")
    if colon and platform in PLATFORM_NAMES:
        return platform, user_id
    known = {one.platform for one, _ in everybody(who, people) if one.user_id == given}
    first = who.guests.first
    return (known.pop() if len(known) == 1 and first not in known else first), given


def everybody(who: Identities, people: Sequence[Acquaintance]) -> list[tuple[Acquaintance, ResolvedPeer]]:
    """Return every known account with its peer: `people`, then accounts in Honcho's record of guests."""
    listed = {one.who for one in people}
    others = [Acquaintance(*split_account(account)) for account in who.guests.accounts if account not in listed]
    return [
        (one, find_peer(who, Speaker(one.user_id, is_owner=one.is_owner), None, one.platform))
        for one in (*people, *others)
    ]


def describe_reach(one: Acquaintance, peer: ResolvedPeer) -> str:
    """Describe what is recalled for an account."""
    if one.is_owner:
        return "everything"
    return "this conversation" if peer.is_shared else "their own"


def peer_text(raw: str) -> str:
    """Return `raw` with each character that a name may not have replaced by `-`, as a stock Hermes does."""
    return OTHER.sub("-", raw)


def _alias(who: Identities, platform: str | None, user_id: str) -> str | None:
    """Return the peer that an alias gives an account. A bare id means the first platform, or its recorded platform."""
    if platform is not None and (named := who.aliases.get(account_name(platform, user_id))) is not None:
        return named
    if user_id.partition(":")[0] in PLATFORM_NAMES:
        return None  # it looks like an account of another platform, whose alias it must not get
    is_meant = platform == who.guests.bare.get(user_id, platform if who.guests.is_first(platform) else None)
    return who.aliases.get(user_id) if is_meant else None


def _of_id(who: Identities, platform: str | None, user_id: str) -> ResolvedPeer:
    """Return the peer of an account without an alias."""
    kept = None if platform is None else who.guests.kept.get(account_name(platform, user_id))
    if kept is not None and not who.is_own(kept):
        return ResolvedPeer(kept, "kept")
    prefix = who.prefix if platform is None or who.guests.is_first(platform) else f"{who.prefix}{platform}-"
    account = account_name(platform or who.guests.first or "", user_id)
    return ResolvedPeer(_name_id(who, prefix, user_id, account), "prefix" if who.prefix else "id")


def _is_others(who: Identities, platform: str | None, user_id: str, peer: str) -> bool:
    """Return True if an alias's peer is the owner's or an agent's, or holds messages of an account without that
    alias."""
    if who.is_own(peer):
        return True
    own = account_name(platform or who.guests.first or "", user_id)
    others = who.guests.holders.get(peer, set()) - {own}
    return any(_alias(who, *split_account(other)) != peer for other in others)


def _name_id(who: Identities, prefix: str, raw: str, account: str = "") -> str:
    """Return an id as a peer's name: unchanged if possible, else with a hash of the whole id. Ids that look hashed
    or prefixed get a hash too, and so do ids whose name another account has had."""

    def is_free(name: str) -> bool:
        return name not in who.taken and account in who.guests.holders.get(name, (account,))

    whole = f"{prefix}{raw}"
    name = peer_text(whole)
    is_exact = (
        name == whole and len(name) <= MAX_NAME_CHARS and not HASHED.search(name) and not PLATFORM_START.match(raw)
    )
    if is_exact and is_free(name) and AGENT.fullmatch(name) is None:
        return name
    hashed = [f"{name[: MAX_NAME_CHARS - length - 1]}-{digest(whole, length)}" for length in HASH_LENGTHS]
    return next(filter(is_free, hashed), hashed[-1])
