"""The embedder that ships with us: the mean of static token vectors. No download, a fraction of a millisecond."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from hermes.memory_server.embedder import SHIPPED, Space, Vector, in_parts
from hermes.memory_server.threads import compute

WORDS_KEPT = 8000
WORD_CHARS = 40
"""Words come again: the vectors of the last ones are kept, of words up to this length."""
LONG = 4000
"""From so many characters on, and for the first text, it is done in a thread; so much at a time, so that others have
their turn in between."""
PART_CHARS = 1000
"""How much of a word without end is turned into tokens at once: each takes a few hundred times its size."""
WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class WordVectors:
    """Each text is the sum of its words. Nothing is loaded before the first text."""

    space: Space = SHIPPED

    def __init__(self) -> None:
        self._kept = lru_cache(WORDS_KEPT)(_sum_tokens)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """The direction of each text."""
        if _model.cache_info().currsize and sum(map(len, texts)) < LONG:
            return [self.direction(text) for text in texts]
        return [vector for part in in_parts(texts, LONG) for vector in await compute(self._directions, part)]

    def _directions(self, texts: Sequence[str]) -> list[Vector]:
        return [self.direction(text) for text in texts]

    def direction(self, text: str) -> Vector:
        """The text's direction, of length 1; all zeros for a text without words."""
        kept = self._kept
        total = np.zeros(SHIPPED.dimension, dtype=np.float32)
        for word in text.split(" "):
            if len(word) <= WORD_CHARS:
                total += kept(word)
            else:
                for start in range(0, len(word), PART_CHARS):
                    total += _sum_tokens(word[start : start + PART_CHARS])
        length = float(total @ total) ** 0.5
        return total / length if length else total


_guard = threading.Lock()


def _sum_tokens(word: str) -> Vector:
    with _guard:  # one model, however many texts come first
        return _model().sum_tokens(word)


@cache
def _model() -> _Model:
    found = importlib.util.find_spec("wordllama")
    if found is None or found.origin is None:
        raise RuntimeError("the package wordllama, which holds the embedding weights, is not installed")
    return _Model(Path(found.origin).parent)


class _Model:
    """Token vectors in their file, of which the system keeps in memory what is used."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer  # needed with the first text, not at start

        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.no_padding()
        with (folder / WEIGHTS).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))["embedding.weight"]
        if header["dtype"] != "F16" or header["shape"][1] != SHIPPED.dimension:
            raise RuntimeError(f"{folder / WEIGHTS} does not hold the vectors that we know: {header}")
        start = 8 + size + int(header["data_offsets"][0])
        self._rows = np.asarray(np.memmap(folder / WEIGHTS, np.float16, "r", start, tuple(header["shape"])))

    def sum_tokens(self, word: str) -> Vector:
        """The sum of a word's token vectors: its direction is all that counts."""
        tokens = self._tokenizer.encode(word, add_special_tokens=False).ids
        total: Vector = self._rows[tokens].sum(axis=0, dtype=np.float32)
        return total
