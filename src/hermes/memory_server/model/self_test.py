"""A fixed test of a model's class: it can point at a line, or also write a sentence from quotes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hermes.memory_server.model.memory_model import MemoryModel
from hermes.memory_server.model.settings import ModelClass
from hermes.types import Json

DEADLINE_SECONDS = 180.0
MAX_TOKENS = 120
LINES = (
    "[1] Tove said on 3 May: the kitchen will be painted green.",
    "[2] Tove said on 14 May: the boat is moored at pier 9 until autumn.",
    "[3] Ulf said on 20 May: pier 4 is closed for repairs.",
)
WHICH: Json = {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]}
POINT = "Which line answers the question? Give its number, or 0 if none does.\nQuestion: {}\n{}"
CHOICES = (("Where is Tove's boat?", 2), ("What does Ulf do for a living?", 0))
COMPOSE = (
    "Answer the question in one sentence from these lines alone. Name the day, and put the number of the line that you "
    "used in brackets behind the sentence, like [3].\nQuestion: Where is Tove's boat, and when did she say so?\n{}"
)
NUMBERS = re.compile(r"\d+")


async def try_out(model: MemoryModel) -> ModelClass | None:
    """Return the class that the model's answers show; None if it cannot be asked now."""
    points = []
    for question, right in CHOICES:
        answer = await model.ask(
            "self_test", _user(POINT.format(question, "\n".join(LINES))), schema=WHICH, max_tokens=MAX_TOKENS,
            deadline_seconds=DEADLINE_SECONDS,
        )  # fmt: skip
        if answer.failure is not None and answer.failure.may_pass:
            return None
        points.append(answer.failure is None and answer.parsed["line"] == right)
    written = await model.ask(
        "self_test", _user(COMPOSE.format("\n".join(LINES))), max_tokens=MAX_TOKENS, deadline_seconds=DEADLINE_SECONDS
    )
    if written.failure is not None and written.failure.may_pass:
        return None
    return "compose" if all(points) and _is_faithful(written.text) else "point"


def _is_faithful(text: str) -> bool:
    """Return True if a sentence gives the facts of line 2, cites it, and invents no number."""
    numbers = set(NUMBERS.findall(text))
    return "[2]" in text and {"9", "14"} <= numbers <= {"2", "9", "14"}


def _user(text: str) -> Sequence[dict[str, Json]]:
    return [{"role": "user", "content": text}]
