"""Migration of guests from an earlier version, once per profile: guests keep their peers, and nobody gets a session
or peer that holds someone else's messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hermes.honcho.failures import NOT_FOUND_STATUS, Refusal
from hermes.honcho.guests import MAX_PEERS, GuestRecord, MisfiledMessages, account_name, split_account
from hermes.honcho.identity import HASH_LENGTHS, HASHED, Identities, find_peer, peer_text
from hermes.honcho.names import MAX_NAME_CHARS, digest, in_path, workspace_path
from hermes.honcho.wire import Wire
from hermes.memory.provider import Acquaintance, Conversation, Speaker

USUAL_PLATFORM = "telegram"
"""The first platform of every home in which it was ever used."""
PLATFORM = "platform"
"""An address field that earlier versions did not write."""


def migrate_guests(
    who: Identities, workspace: str, conversations: Sequence[Conversation], people: Sequence[Acquaintance]
) -> GuestRecord:
    """Return the guests found in conversations of an earlier version, to be joined with the existing record of
    `who`."""
    known = who.guests
    earlier = [one for one in conversations if _bound(one, workspace) and PLATFORM not in (one.bound or {})]
    accounts = _accounts(earlier, people)
    platforms = [*(one.platform for one in earlier), *(one.platform for one in people)]
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
    mixed = _mixed(earlier, workspace)
    moves = [
        MisfiledMessages(_bound(one, workspace), before[account], after[account])
        for one in earlier
        if (account := _account(one)) is not None
        and account not in kept
        and before[account] != after[account]
        and _bound(one, workspace) not in mixed
    ]
    mine = [_peer(who, one.who, is_owner=True) for one in people if one.is_owner]
    owners = tuple(dict.fromkeys(peer for peer in mine if not who.is_own(peer)))[:MAX_PEERS]
    return GuestRecord(first, {**after, **kept}, kept, bare, mixed, tuple(dict.fromkeys(moves)), owners=owners)


def join_records(known: GuestRecord, found: GuestRecord) -> GuestRecord:
    """Return the workspace's record with the guests of one more profile added."""
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


async def move_misfiled(wire: Wire, workspace: str, move: MisfiledMessages, until: float) -> None:
    """Move misfiled messages to the peer of their speaker. Raises Failure."""
    path = f"ext/sessions/{in_path(move.session)}/peers/{in_path(move.peer)}/move"
    try:
        await wire.ask("POST", f"{workspace_path(workspace)}/{path}", {"to": move.to}, until=until)
    except Refusal as refusal:
        if refusal.status != NOT_FOUND_STATUS:  # nothing of it is there
            raise


def _bound(conversation: Conversation, workspace: str) -> str:
    """Return the session that a conversation is bound to in a workspace; "" if none."""
    bound = conversation.bound
    return str(bound.get("session") or "") if isinstance(bound, dict) and bound.get("workspace") == workspace else ""


def _platform(account: str) -> str:
    return split_account(account)[0]


def _account(conversation: Conversation) -> str | None:
    """Return the account of a guest's direct chat."""
    person = conversation.person
    is_guest = person is not None and not person.is_owner and bool(person.user_id)
    return account_name(conversation.platform, person.user_id or "") if is_guest and person is not None else None


def _accounts(earlier: Sequence[Conversation], people: Sequence[Acquaintance]) -> list[str]:
    """Return every guest's account, in the order of first appearance."""
    of_chats = [account for one in earlier if (account := _account(one)) is not None]
    return list(dict.fromkeys([*of_chats, *(one.who for one in people if not one.is_owner)]))


def _peer(who: Identities, account: str, *, is_owner: bool = False) -> str:
    platform, user_id = split_account(account)
    return find_peer(replace(who, pin=False), Speaker(user_id, is_owner=is_owner), None, platform).name


def _earlier_peer(who: Identities, account: str) -> str:
    """Return the peer that an earlier version gave an account, regardless of platform."""
    user_id = split_account(account)[1]
    if user_id in who.aliases:
        return who.aliases[user_id]
    whole = f"{who.prefix}{user_id}"
    name, taken = peer_text(whole), {who.owner, who.ai, *who.aliases.values()}
    if name == whole and len(name) <= MAX_NAME_CHARS and not HASHED.search(name) and name not in taken:
        return name
    hashed = [f"{name[: MAX_NAME_CHARS - length - 1]}-{digest(whole, length)}" for length in HASH_LENGTHS]
    return next((one for one in hashed if one not in taken), hashed[-1])


def _is_alone(who: Identities, before: Mapping[str, str], account: str) -> bool:
    """Return True if the account's earlier peer is nobody else's, so that the account can keep it."""
    peer = before[account]
    shared = sum(one == peer for one in before.values()) > 1
    return not shared and not who.is_own(peer) and peer not in who.aliases.values()


def _mixed(earlier: Sequence[Conversation], workspace: str) -> dict[str, dict[str, str]]:
    """Return the sessions that several people share, each with the gateway keys of its guests."""
    whose: dict[str, dict[str, str]] = defaultdict(dict)
    for one in earlier:
        key = one.gateway_session_key or one.session_id
        whose[_bound(one, workspace)][key] = _account(one) or (key if one.person is None else "")
    several = {name: keys for name, keys in whose.items() if len(set(keys.values())) > 1}
    return {name: {key: one for key, one in keys.items() if one not in ("", key)} for name, keys in several.items()}
