"""Outbox entries that the plugin itself creates: changes made by the agent's tools, and the import of the owner's
files.

Queue one with `Host.put(…, encode_act(act), speaker)`. The entry's outcome is its result: for a conclusion,
`Delivered.note` holds the id.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from hermes.types import Json

Whom: TypeAlias = Literal["user", "ai"]
"""The subject of an act: the entry's speaker, or the agent."""


class Conclude(msgspec.Struct, frozen=True, tag_field="act", tag="conclude"):
    """Store a sentence about someone."""

    content: str
    about: Whom = "user"


class Remove(msgspec.Struct, frozen=True, tag_field="act", tag="remove"):
    """Delete a conclusion."""

    conclusion: str


class SetCard(msgspec.Struct, frozen=True, tag_field="act", tag="card"):
    """Replace the lines of someone's card."""

    lines: list[str]
    about: Whom = "user"


class TakeFiles(msgspec.Struct, frozen=True, tag_field="act", tag="files"):
    """Send the contents of the owner's files to a session of the owner."""


Act: TypeAlias = Conclude | Remove | SetCard | TakeFiles


def encode_act(act: Act) -> Json:
    """Return the act in the form that `Host.put` takes."""
    return msgspec.to_builtins(act)


def decode_act(data: Json) -> Act:
    """Return the act in an entry's data. Raises `msgspec.ValidationError` for data of any other form."""
    act: Act = msgspec.convert(data, Act)
    return act
