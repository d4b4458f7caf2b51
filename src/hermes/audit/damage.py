"""Damage: a fault in conversations, described in one sentence, with the steps of its repair; and notices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Code = Literal["route-to-child", "orphan-child", "two-live", "double-summary", "double-rows", "cross-session"]
NoticeCode = Literal["route-to-child", "began-anew", "left-behind", "routes-differ"]

SUPERSEDED = "superseded"
ORPHANED = "orphaned_compression"
ROTATED = "compression"
MAX_NAMED_STEPS = 10
"""Number of steps that `remedy` lists one by one."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a key to a session."""

    session_key: str
    session_id: str


@dataclass(frozen=True, slots=True)
class End:
    """End a session."""

    session_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reopen:
    """Reopen a session that was ended by mistake."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Detach:
    """Remove a session's parent."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Hide:
    """Hide messages from every view; they stay in the file."""

    message_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """Make messages live again."""

    message_ids: tuple[int, ...]


RepairStep: TypeAlias = Bind | End | Reopen | Detach | Hide | Restore


@dataclass(frozen=True, slots=True)
class Damage:
    """A fault and its repair. Equal damages are the same fault in the same state, so a repair verifies that it still
    exists."""

    code: Code
    sessions: tuple[str, ...]
    detail: str
    steps: tuple[RepairStep, ...]

    @property
    def remedy(self) -> str:
        """The repair in words."""
        more = len(self.steps) - MAX_NAMED_STEPS
        return "; ".join(
            [
                *map(_describe_step, self.steps[:MAX_NAMED_STEPS]),
                *([f"and {more} more of the kind"] if more > 0 else []),
            ]
        )


@dataclass(frozen=True, slots=True)
class AuditNotice:
    """A finding without a repair, in one sentence. `fix` is what a person can do; empty if nothing is wrong."""

    code: NoticeCode
    sessions: tuple[str, ...]
    detail: str
    fix: str = ""


def _describe_step(step: RepairStep) -> str:
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
