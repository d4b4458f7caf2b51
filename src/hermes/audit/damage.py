"""Damage: one thing that is wrong with conversations, in one sentence, and the steps that mend it; and remarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Code = Literal["route-to-child", "orphan-child", "two-live", "double-summary", "double-rows", "cross-session"]
RemarkCode = Literal["route-to-child", "began-anew", "left-behind", "routes-differ"]

SUPERSEDED = "superseded"
ORPHANED = "orphaned_compression"
ROTATED = "compression"
NAMED = 10
"""Steps that are named one by one."""


@dataclass(frozen=True, slots=True)
class Bind:
    """From now on the key means this session."""

    session_key: str
    session_id: str


@dataclass(frozen=True, slots=True)
class End:
    """Nothing more is said here."""

    session_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reopen:
    """Its end was a mistake."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Detach:
    """It is nobody's child."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Hide:
    """These messages are in no view any more; they stay in the file."""

    message_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """These messages are live again."""

    message_ids: tuple[int, ...]


RepairStep: TypeAlias = Bind | End | Reopen | Detach | Hide | Restore


@dataclass(frozen=True, slots=True)
class Damage:
    """Equal damages are the same damage in the same state: a repair only mends what it would still find."""

    code: Code
    sessions: tuple[str, ...]
    detail: str
    steps: tuple[RepairStep, ...]

    @property
    def remedy(self) -> str:
        """What a repair would do, for a person."""
        more = len(self.steps) - NAMED
        return "; ".join([*map(_say, self.steps[:NAMED]), *([f"and {more} more of the kind"] if more > 0 else [])])


@dataclass(frozen=True, slots=True)
class Remark:
    """What there is to know of conversations and no repair changes, in one sentence. `fix` is what a person can do; it
    is empty where all is well."""

    code: RemarkCode
    sessions: tuple[str, ...]
    detail: str
    fix: str = ""


def _say(step: RepairStep) -> str:
    match step:
        case Bind(key, session_id):
            return f"lead {key} to {session_id}"
        case End(session_id, reason):
            return f"close {session_id} as {reason} (it can still be read)"
        case Reopen(session_id):
            return f"open {session_id} again"
        case Detach(session_id):
            return f"take {session_id} out of the other conversation"
        case Hide(message_ids):
            return f"show {_messages(message_ids)} no longer"
        case Restore(message_ids):
            return f"show {_messages(message_ids)} again"


def _messages(message_ids: tuple[int, ...]) -> str:
    first, last = message_ids[0], message_ids[-1]
    return f"message {first}" if first == last else f"{len(message_ids)} messages ({first} to {last})"
