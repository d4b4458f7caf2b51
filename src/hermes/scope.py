"""Scopes: how far a conversation reaches. Searching, note taking, delegation and prompts are all limited by one.

    the owner, alone    everything
    a guest, alone      that guest's sessions with this agent, that guest's notes
    a group             that group's sessions and notes, for everyone in it, the owner too

A conversation's scope is whose it is, not who writes: a message of the owner in a guest's session is visible to the
guest.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from msgspec import Struct

TERMINAL: Final = "cli"
"""Source of sessions that began in a terminal."""
API: Final = "api"
"""Source, and chat type, of sessions that began over HTTP."""
DIRECT = ("dm", "api")
"""Chat types with one person. There the person belongs to the conversation, elsewhere to the message."""
MAX_READABLE_CHARS = 40
"""Maximum number of characters of a person's id that a name shows."""


class Owner(Struct, frozen=True):
    """The owner's own conversations."""

    kind: Literal["owner"] = "owner"
    name: Literal["owner"] = "owner"


class Guest(Struct, frozen=True):
    """Direct chats with somebody else."""

    platform: str
    user_id: str
    kind: Literal["guest"] = "guest"

    @property
    def name(self) -> str:
        """A unique name that is safe as a file name: no two guests or groups share one."""
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
    shown = re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")[:MAX_READABLE_CHARS]
    return f"{shown}-{sha256(whole).hexdigest()[:32]}"
