"""LoCoMo conversations with their questions, and scores of ranked turns."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

DEPTH = 50


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation."""

    id: str
    session: str
    speaker: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, the turns that answer it, and its category."""

    text: str
    evidence: frozenset[str]
    category: int


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation with its questions."""

    name: str
    turns: Sequence[Turn]
    questions: Sequence[Asked]


@dataclass(frozen=True, slots=True)
class Measured:
    """The scores of one question."""

    category: int
    recall: tuple[float, float, float]
    """Recall among the first 5, 10 and 50."""
    reciprocal: float
    session_first: float
    session_gain: float


def read_talks(folder: Path) -> list[Talk]:
    """Return the conversations of all files in a folder."""
    talks: list[Talk] = []
    for path in sorted(folder.glob("*.json")):
        for number, given in enumerate(json.loads(path.read_text(encoding="utf-8"))):
            talks.append(_talk(f"{path.stem}-{number}", given))
    return talks


def _talk(name: str, given: dict[str, Any]) -> Talk:
    turns = list(_turns(given["conversation"]))
    known = {turn.id for turn in turns}
    questions = [
        Asked(asked["question"], evidence, asked["category"])
        for asked in given["qa"]
        if (evidence := frozenset(_ids(asked["evidence"])) & known)
    ]
    return Talk(name, turns, questions)


def _turns(conversation: dict[str, Any]) -> Iterator[Turn]:
    number = 1
    while f"session_{number}_date_time" in conversation:
        stamp = conversation[f"session_{number}_date_time"]
        start = datetime.strptime(stamp, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for place, said in enumerate(conversation.get(f"session_{number}", [])):
            at = start + timedelta(seconds=place)
            yield Turn(said["dia_id"], f"session-{number}", said["speaker"], said["text"], at)
        number += 1


def _ids(evidence: Sequence[str]) -> Iterator[str]:
    for entry in evidence:
        for part in entry.replace(";", " ").replace(",", " ").split():
            session, _, turn = part.strip("()D").partition(":")
            if session.isdigit() and turn.isdigit():
                yield f"D{int(session)}:{int(turn)}"


def judge(talk: Talk, asked: Asked, found: Sequence[str]) -> Measured:
    """Score a ranked list."""
    session_of = {turn.id: turn.session for turn in talk.turns}
    ranks = [place for place, turn in enumerate(found) if turn in asked.evidence]
    right = {session_of[turn] for turn in asked.evidence}
    sessions = list(dict.fromkeys(session_of[turn] for turn in found))[:5]
    gain = sum(1 / math.log2(place + 2) for place, session in enumerate(sessions) if session in right)
    best = sum(1 / math.log2(place + 2) for place in range(min(5, len(right))))
    first, second, third = (sum(rank < depth for rank in ranks) / len(asked.evidence) for depth in (5, 10, DEPTH))
    return Measured(
        asked.category,
        (first, second, third),
        1 / (ranks[0] + 1) if ranks else 0.0,
        float(bool(sessions) and sessions[0] in right),
        gain / best,
    )
