"""Migration of guests from an earlier version, once per profile: they keep their peers, and nobody gets a session or
a peer with someone else's words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hermes.honcho.failures import NOT_FOUND, Refusal
from hermes.honcho.guests import MAX_PEERS, GuestRecord, MisfiledWords, account_name, split_account
from hermes.honcho.identity import HASHED, HASHES, Identities, find_peer, peer_text
from hermes.honcho.names import LONGEST, digest, in_path, workspace_path
from hermes.honcho.wire import Wire
from hermes.memory.provider import Acquaintance, Conversation, Speaker

USUAL_PLATFORM = "telegram"
"""The first platform of every home in which it was ever used."""
PLATFORM = "platform"
"""Key of addresses that an earlier version did not write."""


def carry_over(
    who: Identities, workspace: str, conversations: Sequence[Conversation], people: Sequence[Acquaintance]
) -> GuestRecord:
    """Return what the conversations of an earlier version add to the record of `who`, which other profiles and this
    version have written."""
    known = who.guests
    told = [one for one in conversations if _bound(one, workspace) and PLATFORM not in (one.bound or {})]
    accounts = _accounts(told, people)
    platforms = [*(one.platform for one in told), *(one.platform for one in people)]
    usual = USUAL_PLATFORM if USUAL_PLATFORM in platforms else next(map(_platform, accounts), None)
    first = known.first or usual
    before = {account: _earlier_peer(who, account) for account in accounts}
    bare = {
        user_id: platform
        for platform, user_id in map(split_account, accounts)
        if user_id in who.aliases
        and platform != first
        and account_name(first or "", user_id) not in (*accounts, *known.accounts)
    }
    record = GuestRecord(first, kept=known.kept, bare={**bare, **known.bare})
    after = {account: _peer(replace(who, guests=record), account) for account in accounts}
    held = {**known.accounts, **before}
    kept = {
        one: before[one]
        for one in accounts
        if one not in known.accounts and after[one] != before[one] and _is_alone(who, held, one)
    }
    mixed = _mixed(told, workspace)
    moves = [
        MisfiledWords(_bound(one, workspace), before[account], after[account])
        for one in told
        if (account := _account(one)) is not None
        and account not in kept
        and before[account] != after[account]
        and _bound(one, workspace) not in mixed
    ]
    mine = [_peer(who, one.who, is_owner=True) for one in people if one.is_owner]
    owners = tuple(dict.fromkeys(peer for peer in mine if not who.is_own(peer)))[:MAX_PEERS]
    return GuestRecord(first, {**after, **kept}, kept, bare, mixed, tuple(dict.fromkeys(moves)), owners=owners)


def join_records(known: GuestRecord, found: GuestRecord) -> GuestRecord:
    """Return what one more profile adds to the record of a workspace."""
    return GuestRecord(
        known.first or found.first,
        {**found.accounts, **known.accounts},
        {**found.kept, **known.kept},
        {**found.bare, **known.bare},
        {**found.mixed, **known.mixed},
        tuple(dict.fromkeys((*known.moves, *found.moves))),
        known.later,
        tuple(dict.fromkeys((*known.owners, *found.owners))),
    )


async def file_under_speaker(wire: Wire, workspace: str, move: MisfiledWords, until: float) -> None:
    """File messages under the peer of who said them. Raises Failure."""
    path = f"ext/sessions/{in_path(move.session)}/peers/{in_path(move.peer)}/move"
    try:
        await wire.ask("POST", f"{workspace_path(workspace)}/{path}", {"to": move.to}, until=until)
    except Refusal as refusal:
        if refusal.status != NOT_FOUND:  # nothing of it is there
            raise


def _bound(conversation: Conversation, workspace: str) -> str:
    """The session that a conversation has in a workspace; "" for none."""
    bound = conversation.bound
    return str(bound.get("session") or "") if isinstance(bound, dict) and bound.get("workspace") == workspace else ""


def _platform(account: str) -> str:
    return split_account(account)[0]


def _account(conversation: Conversation) -> str | None:
    """The account of a guest's direct chat."""
    person = conversation.person
    is_guest = person is not None and not person.is_owner and bool(person.user_id)
    return account_name(conversation.platform, person.user_id or "") if is_guest and person is not None else None


def _accounts(told: Sequence[Conversation], people: Sequence[Acquaintance]) -> list[str]:
    """Every guest's account, in the order in which they came."""
    of_chats = [account for one in told if (account := _account(one)) is not None]
    return list(dict.fromkeys([*of_chats, *(one.who for one in people if not one.is_owner)]))


def _peer(who: Identities, account: str, *, is_owner: bool = False) -> str:
    platform, user_id = split_account(account)
    return find_peer(replace(who, pin=False), Speaker(user_id, is_owner=is_owner), None, platform).name


def _earlier_peer(who: Identities, account: str) -> str:
    """The peer that an earlier version gave an account, whatever its platform."""
    user_id = split_account(account)[1]
    if user_id in who.aliases:
        return who.aliases[user_id]
    whole = f"{who.prefix}{user_id}"
    name, taken = peer_text(whole), {who.owner, who.ai, *who.aliases.values()}
    if name == whole and len(name) <= LONGEST and not HASHED.search(name) and name not in taken:
        return name
    hashed = [f"{name[: LONGEST - length - 1]}-{digest(whole, length)}" for length in HASHES]
    return next((one for one in hashed if one not in taken), hashed[-1])


def _is_alone(who: Identities, before: Mapping[str, str], account: str) -> bool:
    """Return True if an account had a peer to itself, which it can keep."""
    peer = before[account]
    shared = sum(one == peer for one in before.values()) > 1
    return not shared and not who.is_own(peer) and peer not in who.aliases.values()


def _mixed(told: Sequence[Conversation], workspace: str) -> dict[str, dict[str, str]]:
    """Sessions that several people were put into, with the keys of the guests among them."""
    whose: dict[str, dict[str, str]] = defaultdict(dict)
    for one in told:
        key = one.gateway_session_key or one.session_id
        whose[_bound(one, workspace)][key] = _account(one) or (key if one.person is None else "")
    several = {name: keys for name, keys in whose.items() if len(set(keys.values())) > 1}
    return {name: {key: one for key, one in keys.items() if one not in ("", key)} for name, keys in several.items()}
