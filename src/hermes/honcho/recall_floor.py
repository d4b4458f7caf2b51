"""Answers of a server that has no model: what is kept of them. Pure."""

from __future__ import annotations

import re

NOTICE = "No model is configured; this is what memory holds that fits the question."
"""How such an answer begins."""
SAID = "Said:"
WORD = re.compile(r"\w+")
SHORTEST = 4
"""Letters of a word that says what a question is about."""
STEM = 5
"""Letters by which two forms of a word are taken for one."""


def is_floor_answer(answer: str) -> bool:
    """Whether no model gave this answer."""
    return answer.startswith(NOTICE)


def keep_what_fits(answer: str, question: str) -> str:
    """The answer without its notice. Conclusions were chosen by the server for the question; of what was said only
    lines that share a word with it are kept, and the question itself is not."""
    about = _stems(question)
    asked = " ".join(question.lower().split())
    kept: list[str] = []
    in_said = False
    for line in answer.removeprefix(NOTICE).strip().splitlines():
        in_said = in_said or line.strip() == SAID
        is_quote = in_said and line.startswith("- ")
        if not is_quote or (about & _stems(line) and asked not in " ".join(line.lower().split())):
            kept.append(line)
    return "\n".join(kept).strip()


def _stems(text: str) -> set[str]:
    return {word[:STEM] for word in WORD.findall(text.lower()) if len(word) >= SHORTEST or not word.isascii()}
