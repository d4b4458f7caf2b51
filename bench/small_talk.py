"""Measures the tokens that memory adds to a request while it grows, over a month of small talk.

    python -m bench.small_talk

Each row of the plot is a turn in a conversation of its own; `#` is the standing part, `=` the rest of the block.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.honcho.small_talk import FACTS, Month, month, small_talk

SENTENCE_COUNT, BATCH_SIZE = 500, 50
TOKENS_PER_CELL = 20
QUESTION = "Which film should I watch tonight?"
CHARS_PER_TOKEN = 4


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, month(Path(folder)) as talk:
        for line in _plot(talk):
            sys.stdout.write(f"{line}\n")
        known = sum(word in talk.ask(question) for question, word in FACTS.values())
    sys.stdout.write(f"known afterwards: {known} of {len(FACTS)} facts\n")


def _plot(talk: Month) -> Iterator[str]:
    """Yield a bar for every batch of sentences."""
    texts = small_talk(SENTENCE_COUNT)
    yield f"sentences  tokens  (one character is {TOKENS_PER_CELL} tokens)"
    for told in range(0, SENTENCE_COUNT + 1, BATCH_SIZE):
        talk.tell(texts[max(0, told - BATCH_SIZE) : told])
        block = talk.ask(QUESTION)
        first = block.partition("## Keep in mind")[2].partition("\n\n")[0]
        tokens, standing = (-(-len(text) // CHARS_PER_TOKEN) for text in (block, first))
        bar = "#" * round(standing / TOKENS_PER_CELL) + "=" * round((tokens - standing) / TOKENS_PER_CELL)
        yield f"{told:9}  {tokens:6}  {bar}"


if __name__ == "__main__":
    run()
