"""The record of a workspace's guests: the first platform, known accounts, and leftovers of an earlier version.
Stored in one file of the default home, for all profiles.

An account is written `<platform>:<id>`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct, field

from hermes.errors import HomeError, SettingsError
from hermes.files import edit_file, read_file

FILE = "honcho-guests.json"
MAX_ACCOUNTS = 5_000
"""Accounts in a workspace's record; later ones are not protected from an alias onto their peer."""
MAX_PEERS = 8
"""Peers recorded for one account, or for the owner."""
MAX_FILE_BYTES = 16 * 1024 * 1024


class MisfiledMessages(Struct, frozen=True):
    """Messages of one session that an earlier version stored under another person's peer."""

    session: str
    peer: str
    to: str


class GuestRecord(Struct, frozen=True, omit_defaults=True, dict=True):
    """The guests of one workspace: accounts, first platform, and leftovers of an earlier version."""

    first: str | None = None
    """The platform of the first guest. Ids of any other platform are prefixed with its name."""
    accounts: Mapping[str, str] = field(default_factory=dict)
    """Known accounts, each with the peer that it had first."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Accounts that keep their peer from an earlier version."""
    bare: Mapping[str, str] = field(default_factory=dict)
    """Aliases without a platform whose id belongs to another platform than the first, and that platform."""
    mixed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Sessions that hold messages of several people: the gateway keys of their guests, each with its account."""
    moves: tuple[MisfiledMessages, ...] = ()
    """Misfiled messages that still have to be moved."""
    later: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further peers of accounts since their first one, after changes of aliases or prefix."""
    owners: tuple[str, ...] = ()
    """Peers of the owner's accounts given by aliases."""

    @cached_property
    def holders(self) -> Mapping[str, set[str]]:
        """The accounts that have ever had a peer, by peer."""
        found: dict[str, set[str]] = defaultdict(set)
        for account, peer in self.accounts.items():
            for one in (peer, *self.later.get(account, ())):
                found[one].add(account)
        return dict(found)

    def is_first(self, platform: str | None) -> bool:
        """Return True if ids of a platform are used without its name. None means the first platform."""
        return platform is None or self.first is None or platform == self.first

    def lists(self, account: str, peer: str) -> bool:
        """Return True if an account with this peer needs no new entry, or the record is full."""
        if account not in self.accounts:
            return len(self.accounts) >= MAX_ACCOUNTS
        return account in self.holders.get(peer, ()) or len(self.later.get(account, ())) >= MAX_PEERS


class _Document(Struct):
    workspaces: dict[str, GuestRecord] = field(default_factory=dict)


NO_GUESTS = GuestRecord()


def account_name(platform: str, user_id: str) -> str:
    """Return `<platform>:<id>`."""
    return f"{platform}:{user_id}"


def split_account(account: str) -> tuple[str, str]:
    """Return the platform and the id of an account."""
    platform, _, user_id = account.partition(":")
    return platform, user_id


def read_guests(path: Path, workspace: str) -> GuestRecord:
    """Return the record of a workspace. Raises SettingsError for an invalid file: with an empty record guests would
    get other peers."""
    return _parse(path, _raw(path)).workspaces.get(workspace, NO_GUESTS)


def check_first(path: Path, workspace: str, known: str, found: str | None) -> SettingsError | None:
    """Return an error if the recorded first platform differs from the known one, since guests would get other peers."""
    if found == known:
        return None
    lost = f"{path} was removed or replaced: guests of the workspace {workspace} would get other names at Honcho"
    anew = json.dumps({"workspaces": {workspace: {"first": known}}})
    return SettingsError(lost, hint=f"Restore it from a backup; where there is none, write {anew} into it")


def edit_guests(path: Path, workspace: str, change: Callable[[GuestRecord], GuestRecord]) -> None:
    """Change the record of a workspace under the file's lock."""

    def edit(raw: bytes | None) -> str:
        document = _parse(path, raw)
        document.workspaces[workspace] = change(document.workspaces.get(workspace, NO_GUESTS))
        return msgspec.json.format(msgspec.json.encode(document)).decode() + "\n"

    if not edit_file(path, lambda: _raw(path), edit):
        raise HomeError(f"another program keeps changing {path}", hint="Try again in a moment")


def add_account(record: GuestRecord, account: str, peer: str) -> GuestRecord:
    """Add an account, or a further peer of it, while there is room."""
    if record.lists(account, peer):
        return record
    if account not in record.accounts:
        return msgspec.structs.replace(record, accounts={**record.accounts, account: peer})
    return msgspec.structs.replace(record, later={**record.later, account: (*record.later.get(account, ()), peer)})


def add_owners_peer(record: GuestRecord, peer: str) -> GuestRecord:
    """Add a peer that an alias gives the owner's account, while there is room."""
    is_known = peer in record.owners or len(record.owners) >= MAX_PEERS
    return record if is_known else msgspec.structs.replace(record, owners=(*record.owners, peer))


def without_move(record: GuestRecord, done: MisfiledMessages) -> GuestRecord:
    """Return the record without a finished move."""
    return msgspec.structs.replace(record, moves=tuple(one for one in record.moves if one != done))


def _raw(path: Path) -> bytes | None:
    try:
        return read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}", hint="Check its owner and permissions") from error


def _parse(path: Path, raw: bytes | None) -> _Document:
    if raw is None:
        return _Document()
    if len(raw) > MAX_FILE_BYTES:
        raise SettingsError(f"{path} has more than {MAX_FILE_BYTES // 1024 // 1024} MB", hint="Is it the right file?")
    try:
        return msgspec.json.decode(raw, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "Restore it from a backup; without it guests would get other names at Honcho"
        raise SettingsError(f"{path} is invalid: {error}", hint=hint) from error
