"""Expands `reading_patterns.txt` to labelled messages, the same ones every time."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATTERNS = Path(__file__).with_name("reading_patterns.txt")
USES_PER_PATTERN = 8
"""Messages that are expanded from one pattern."""
CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")
NAMED = re.compile(r"\{(\w+)\}")
SHAPE = re.compile(r"<([^<>]+)>")
LETTERS = {"a": string.ascii_lowercase, "A": string.ascii_uppercase, "9": string.digits}
KEPT = frozenset(("statement", "other", "remember", "instruction", "preference", "plan", "secret"))
Lists = dict[str, dict[str, list[str]]]


def expand_patterns() -> Iterator[dict[str, Any]]:
    """Yield labelled messages, without a group."""
    lists: Lists = {}
    heading: list[str] = []
    for line in PATTERNS.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            heading = line.strip("[]").split()
        elif len(heading) == 1:
            language, words = line.split(": ", 1)
            lists.setdefault(heading[0], {})[language] = words.split("|")
        elif heading:
            language, kind = heading
            yield from _expand(line, language, kind, lists)


def _expand(pattern: str, language: str, kind: str, lists: Lists) -> Iterator[dict[str, Any]]:
    chance = random.Random(f"{language} {kind} {pattern}")
    texts = dict.fromkeys(_fill(pattern, language, lists, chance) for _ in range(USES_PER_PATTERN))
    for text in texts:
        yield {"text": text, "language": language, "kind": kind, "keep": kind in KEPT, "pattern": pattern}


def _fill(pattern: str, language: str, lists: Lists, chance: random.Random) -> str:
    def name(found: re.Match[str]) -> str:
        words = lists[found[1]]
        return chance.choice(words.get(language) or words["en"])

    text = pattern
    while NAMED.search(text) or CHOICE.search(text):
        text = CHOICE.sub(lambda found: chance.choice(found[1].split("|")), NAMED.sub(name, text))
    text = SHAPE.sub(lambda found: "".join(chance.choice(LETTERS.get(sign, sign)) for sign in found[1]), text)
    text = " ".join(text.replace("\\n", "\n").split(" ")).strip()
    return _finish(re.sub(r" {2,}", " ", text), chance)


def _finish(text: str, chance: random.Random) -> str:
    """Return a text with or without a capital and a full stop, as people type."""
    if chance.random() < 0.7:
        text = text[:1].upper() + text[1:]
    if text[-1] in ".?!:,。？" or chance.random() < 0.4:
        return text
    return text + ("。" if re.search("[\u4e00-\u9fff]", text) else ".")
