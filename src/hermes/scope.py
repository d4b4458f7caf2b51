"""How far a conversation reaches. Whatever searches, notes, delegates or builds a prompt is given one of these.

    the owner, alone    everything
    a guest, alone      that guest's sessions with this agent, that guest's notes
    a group             that group's sessions and notes, for everyone in it, the owner too

A conversation's scope is whose it is, not who speaks: what the owner says in a guest's session is read by the guest.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from msgspec import Struct

TERMINAL: Final = "cli"
"""The source of sessions that began in a terminal."""
API: Final = "api"
"""The source, and the kind of chat, of sessions that began over HTTP."""
DIRECT = ("dm", "api")
"""Chats with one person: there the person belongs to the conversation, elsewhere to the message."""
READABLE = 40
"""Characters of a person's id that a name shows."""


class Owner(Struct, frozen=True):
    """The owner's own conversations."""

    kind: Literal["owner"] = "owner"
    name: Literal["owner"] = "owner"


class Guest(Struct, frozen=True):
    """Direct chats with someone else."""

    platform: str
    user_id: str
    kind: Literal["guest"] = "guest"

    @property
    def name(self) -> str:
        """A name that is a file's too: no two guests or groups share one, and it leads nowhere else."""
        return _name(self.kind, self.platform, self.user_id)


class Group(Struct, frozen=True):
    """A chat of several people, by its session key."""

    session_key: str
    kind: Literal["group"] = "group"

    @property
    def name(self) -> str:
        return _name(self.kind, self.session_key)


Scope: TypeAlias = Owner | Guest | Group
OWNER: Final = Owner()


def _name(*parts: str) -> str:
    whole = json.dumps(parts).encode()  # escaped, so that half a surrogate pair has bytes too
    shown = re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")[:READABLE]
    return f"{shown}-{sha256(whole).hexdigest()[:32]}"
