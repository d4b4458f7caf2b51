"""What a provider holds about a person, as that person may see, correct and forget it."""

from __future__ import annotations

from msgspec import Struct

from hermes.memory.values import Wording


class FactQuery(Struct, frozen=True):
    """Which facts are wanted: with all of the words, or with this id; up to `limit`, `after` those given before."""

    words: Wording | None = None
    id: str | None = None
    after: str = ""
    limit: int = 20


class Fact(Struct, frozen=True):
    """One thing that is held about a person. `id` is the provider's own, and stays the same for this text."""

    id: str
    text: str
    at: float | None = None
    origin: str = ""
    """Where it comes from, in a few words."""


class Facts(Struct, frozen=True):
    """Facts, and after which the next come, if there are more. `remark` says what is not among them, and why."""

    items: tuple[Fact, ...] = ()
    after: str | None = None
    remark: str = ""


class FactSource(Struct, frozen=True):
    """Words that a fact was learnt from. `session_id` is the conversation, where it was one of this home."""

    text: str
    at: float | None = None
    session_id: str | None = None
    can_go: bool = True
    """False where the provider cannot delete it."""
