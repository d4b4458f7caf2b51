"""A summary without a model: the sentences that carry facts, decisions, open tasks and identifiers, word for word.

The same messages always give the same digest. It is used when the model's limit is reached and no summary can be had.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hermes.llm.tokens import estimate_tokens
from hermes.types import Message

SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？]+(?=\s|$)|[。！？]|\n|$)")
LONGEST = 400
WEIGHTS = (
    (re.compile(r"\b(decid|agree|chose|conclu|will use|settled|approved)\w*", re.I), 4.0),
    (
        re.compile(
            r"\b(todo|to do|open task|next step|must|need(s)? to|remind|deadline|due|unresolved|pending)\b", re.I
        ),
        4.0,
    ),
    (re.compile(r"\b(my|our|i am|i'm|i have|i live|i like|i prefer|i work|we are|call me|name is)\b", re.I), 2.5),
    (re.compile(r"[\w.-]+@[\w.-]+|https?://\S+|(?:/[\w.-]+){2,}|\b[A-Z]{2,}-?\d+\b|\b[0-9a-f]{7,}\b|\d"), 2.5),
    (re.compile(r"\b[A-Z][a-z]+\b"), 0.5),
    (re.compile(r"\b(error|failed|fixed|broke|bug|because)\b", re.I), 1.5),
)
ROLE_WEIGHTS = {"user": 3.0, "assistant": 1.0, "tool": 0.2}
OPENING = "Digest (made without a model, quoting what was said):"


@dataclass(frozen=True, slots=True)
class _Sentence:
    place: int
    speaker: str
    text: str
    score: float


def make_digest(previous: str | None, leaving: Sequence[Message], budget: int) -> str:
    """The most telling sentences of what leaves, in order, within `budget` tokens, after the newest of `previous`."""
    room = max(0, budget - estimate_tokens(OPENING) - 2)
    lines: list[str] = []
    if previous:
        kept = _fit(previous.removeprefix(OPENING).strip(), room // 2)
        lines.append(kept)
        room -= estimate_tokens(kept) + 1
    for sentence in sorted(_choose(leaving, room), key=lambda chosen: chosen.place):
        lines.append(f"- {sentence.speaker}: {sentence.text}")
    return "\n".join([OPENING, *lines])


def _choose(messages: Sequence[Message], room: int) -> Iterator[_Sentence]:
    for sentence in sorted(_sentences(messages), key=lambda found: (-found.score, -found.place)):
        cost = estimate_tokens(f"- {sentence.speaker}: {sentence.text}\n") + 1
        if cost <= room:
            room -= cost
            yield sentence


def _sentences(messages: Sequence[Message]) -> Iterator[_Sentence]:
    seen: set[str] = set()
    place = 0
    for message in messages:
        for found in SENTENCE.finditer(message.content or ""):
            text = " ".join(found[0].split())
            place += 1
            if len(text) > 2 and text.casefold() not in seen:
                seen.add(text.casefold())
                speaker = message.tool_name or message.role if message.role == "tool" else message.role
                yield _Sentence(place, speaker, text[:LONGEST], _score(message, text))


def _score(message: Message, text: str) -> float:
    score = ROLE_WEIGHTS.get(message.role, 0.5) + sum(weight for pattern, weight in WEIGHTS if pattern.search(text))
    return score - (1.0 if text.endswith(("?", "？")) else 0.0) - (1.0 if len(text) < 12 else 0.0)


def _fit(text: str, budget: int) -> str:
    """The newest lines of an earlier summary that fit."""
    chosen: list[str] = []
    for line in reversed(text.splitlines()):
        cost = estimate_tokens(line) + 1
        if cost > budget:
            break
        budget -= cost
        chosen.insert(0, line)
    return "\n".join(chosen)
