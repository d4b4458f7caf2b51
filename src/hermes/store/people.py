"""People on chat platforms: who is the owner, and whose a conversation is.

Everybody who is not marked as the owner is a guest. A row is made when a person is allowed, first writes, or is marked.
`marked_at` is None until the owner has marked them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.scope import API, DIRECT, OWNER, TERMINAL, Group, Guest, Scope
from hermes.types import Session

SCHEMA = """
CREATE TABLE hermes_people (
    platform TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    is_owner INTEGER NOT NULL DEFAULT 0,
    marked_at REAL,
    told INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (platform, user_id)
) WITHOUT ROWID
"""
MAX_NAMED_PEOPLE = 5
"""Maximum number of people named in one line."""
LOCAL_SOURCES = frozenset(
    (TERMINAL, API, "acp", "api_server", "cron", "desktop", "local", "subagent", "tool", "tui", "web")
)
"""Sources of sessions in which only the owner writes, unless the session has the fields of a chat. Any other source may
be a platform, of ours or of another version."""
MIN_KEY_PARTS = 5
"""Minimum number of parts in `agent:<agent>:<platform>:<chat type>:<chat id>`."""


class KnownPerson(Struct, frozen=True):
    """A person who has written, or may write."""

    platform: str
    user_id: str
    name: str
    is_owner: bool = False
    marked_at: float | None = None

    @property
    def role(self) -> Literal["owner", "guest"]:
        return "owner" if self.is_owner else "guest"


class People(Struct, frozen=True):
    """Decides whose a conversation is. Every method runs inside the caller's transaction."""

    api_guests: bool = False
    """True if each API `user` is a guest. Otherwise API clients act as the owner, whatever `user` they send."""

    def is_owner(self, tx: Tx, source: str, user_id: str | None) -> bool:
        """Return True if messages from this source and user id are the owner's."""
        if source in (TERMINAL, API):
            return source == TERMINAL or user_id is None or not self.api_guests
        row = tx.execute(
            "SELECT is_owner FROM hermes_people WHERE platform = ? AND user_id = ?", (source, user_id)
        ).fetchone()
        return row is not None and bool(row["is_owner"])

    def scope_of_person(self, tx: Tx, source: str, user_id: str | None) -> Scope:
        """Return the scope of a person in a direct chat."""
        return OWNER if self.is_owner(tx, source, user_id) else Guest(source, user_id or "")

    def scope_of(self, tx: Tx, session: Session) -> Scope:
        """Return the scope of a session. Fields that other programs left empty are read from its key. A session from a
        local source without any field of a chat is the owner's."""
        key = (session.session_key or "").split(":")
        keyed = len(key) >= MIN_KEY_PARTS and key[0] == "agent"
        chat_type = session.chat_type or (key[3] if keyed else None)
        if session.source == TERMINAL:
            return OWNER
        if chat_type in DIRECT:
            user_id = session.user_id
            if user_id is None and session.source != API:
                user_id = session.chat_id or (key[4] if keyed else None)
            return self.scope_of_person(tx, session.source, user_id)
        has_trace = session.session_key or session.chat_id or session.user_id or session.source not in LOCAL_SOURCES
        if chat_type is None and not has_trace:
            return OWNER
        return Group(session.session_key or f"session:{session.id}")


def people(tx: Tx) -> list[KnownPerson]:
    """Return all known people, owners first."""
    rows = tx.execute("SELECT * FROM hermes_people ORDER BY is_owner DESC, platform, user_id")
    return [
        KnownPerson(row["platform"], row["user_id"], row["name"], bool(row["is_owner"]), row["marked_at"])
        for row in rows
    ]


def meet(tx: Tx, platform: str, user_id: str, name: str) -> None:
    """Add a person, or update the name of a known one."""
    tx.execute(
        "INSERT INTO hermes_people (platform, user_id, name) VALUES (:platform, :user, :name) "
        "ON CONFLICT (platform, user_id) DO UPDATE SET name = :name WHERE :name <> '' AND name <> :name",
        {"platform": platform, "user": user_id, "name": name},
    )


def mark(tx: Tx, platform: str, user_id: str, *, is_owner: bool, now: float) -> KnownPerson:
    """Mark a person as the owner or as a guest."""
    meet(tx, platform, user_id, "")
    row = tx.execute(
        "UPDATE hermes_people SET is_owner = :owner, marked_at = :now "
        "WHERE platform = :platform AND user_id = :user RETURNING name",
        {"platform": platform, "user": user_id, "owner": int(is_owner), "now": now},
    ).fetchone()
    return KnownPerson(platform, user_id, row["name"], is_owner, now)


def meet_all(tx: Tx, allowed: Iterable[str]) -> None:
    """Add everybody who may write but has no row yet: paired people, and those in the allow-list."""
    tx.execute(
        "INSERT INTO hermes_people (platform, user_id, name) "
        "SELECT platform, user_id, name FROM hermes_pairings WHERE state = 'allowed' ON CONFLICT DO NOTHING"
    )
    for platform, user_id in named(allowed):
        meet(tx, platform, user_id, "")


def everyone(tx: Tx, allowed: Iterable[str]) -> list[KnownPerson]:
    """Return known people and those who may write. Read-only."""
    known = people(tx)
    there = {(one.platform, one.user_id) for one in known}
    paired = tx.execute("SELECT platform, user_id, name FROM hermes_pairings WHERE state = 'allowed'")
    others = [KnownPerson(*row) for row in paired] + [KnownPerson(*one, "") for one in named(allowed)]
    new = {(one.platform, one.user_id): one for one in others if (one.platform, one.user_id) not in there}
    return [*known, *new.values()]


def find_unmarked(tx: Tx, allowed: Iterable[str]) -> list[KnownPerson]:
    """Return people who may write but are not marked. Read-only."""
    return [one for one in everyone(tx, allowed) if one.marked_at is None]


def named(allowed: Iterable[str]) -> list[tuple[str, str]]:
    """Return the people that an allow-list names by id. Groups have negative ids, and user names may change hands: both
    are skipped."""
    pairs = [entry.partition(":")[::2] for entry in allowed]
    return [(platform, user) for platform, user in pairs if user and not user.startswith(("*", "-", "@"))]


def take_untold(tx: Tx, allowed: Iterable[str]) -> list[KnownPerson]:
    """Return unmarked people whom the owner was not notified of, and count them as notified."""
    meet_all(tx, allowed)
    unmarked = {(one.platform, one.user_id): one for one in people(tx) if one.marked_at is None}
    rows = tx.execute("UPDATE hermes_people SET told = 1 WHERE told = 0 RETURNING platform, user_id").fetchall()
    found = [(row["platform"], row["user_id"]) for row in rows]
    return [unmarked[one] for one in sorted(found) if one in unmarked]


def describe_unmarked(unmarked: Sequence[KnownPerson]) -> str:
    """Return one line that names unmarked people, or "" for none."""
    if not unmarked:
        return ""
    names = [f"{one.platform}:{one.user_id}" for one in unmarked]
    more = f" and {len(names) - MAX_NAMED_PEOPLE} more" if len(names) > MAX_NAMED_PEOPLE else ""
    are = "is a guest" if len(names) == 1 else "are guests"
    return f"{', '.join(names[:MAX_NAMED_PEOPLE])}{more} {are} until you say otherwise"
