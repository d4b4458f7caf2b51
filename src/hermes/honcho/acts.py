"""Outbox entries of our own: what the agent's tools change in memory, and the owner's files.

They are queued with `Host.put(…, encode_act(act), speaker)`. The entry's outcome tells what came of it: for a
conclusion, `Delivered.note` is its id.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from hermes.types import Json

Whom: TypeAlias = Literal["user", "ai"]
"""Whom it is about: the speaker of the entry, or the agent."""


class Conclude(msgspec.Struct, frozen=True, tag_field="act", tag="conclude"):
    """Remember a sentence about someone."""

    content: str
    about: Whom = "user"


class Remove(msgspec.Struct, frozen=True, tag_field="act", tag="remove"):
    """Take a conclusion back."""

    conclusion: str


class SetCard(msgspec.Struct, frozen=True, tag_field="act", tag="card"):
    """Write someone's card anew, line by line."""

    lines: list[str]
    about: Whom = "user"


class TakeFiles(msgspec.Struct, frozen=True, tag_field="act", tag="files"):
    """Tell a session of the owner's what the owner's files hold."""


Act: TypeAlias = Conclude | Remove | SetCard | TakeFiles


def encode_act(act: Act) -> Json:
    """As `Host.put` takes it."""
    return msgspec.to_builtins(act)


def decode_act(data: Json) -> Act:
    """Raises `msgspec.ValidationError` for what is none."""
    act: Act = msgspec.convert(data, Act)
    return act
