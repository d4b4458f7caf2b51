"""The built-in embedder: the mean of static token vectors. No download, a fraction of a millisecond per text."""

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

MAX_WORDS_KEPT = 8000
MAX_WORD_CHARS = 40
"""The vectors of the most recent words up to this length are cached, because words repeat."""
MAX_INLINE_CHARS = 4000
"""From this length on, and for the first text, embedding runs in a thread, in parts of this length, so that other
tasks can run in between.
"""
MAX_PART_CHARS = 1000
"""The number of characters of a very long word that are tokenized at once: tokenizing takes a few hundred times that
memory.
"""
WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class WordVectors:
    """An embedder that adds the vectors of a text's words. Nothing is loaded before the first text."""

    space: Space = SHIPPED

    def __init__(self) -> None:
        self._kept = lru_cache(MAX_WORDS_KEPT)(_sum_tokens)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return the direction of each text."""
        if _model.cache_info().currsize and sum(map(len, texts)) < MAX_INLINE_CHARS:
            return [self.direction(text) for text in texts]
        return [
            vector for part in in_parts(texts, MAX_INLINE_CHARS) for vector in await compute(self._directions, part)
        ]

    def _directions(self, texts: Sequence[str]) -> list[Vector]:
        return [self.direction(text) for text in texts]

    def direction(self, text: str) -> Vector:
        """Return the text's direction, of length 1; all zeros for a text without words."""
        kept = self._kept
        total = np.zeros(SHIPPED.dimension, dtype=np.float32)
        for word in text.split(" "):
            if len(word) <= MAX_WORD_CHARS:
                total += kept(word)
            else:
                for start in range(0, len(word), MAX_PART_CHARS):
                    total += _sum_tokens(word[start : start + MAX_PART_CHARS])
        length = float(total @ total) ** 0.5
        return total / length if length else total


_guard = threading.Lock()


def _sum_tokens(word: str) -> Vector:
    with _guard:  # loads the model once
        return _model().sum_tokens(word)


@cache
def _model() -> _Model:
    found = importlib.util.find_spec("wordllama")
    if found is None or found.origin is None:
        raise RuntimeError("the package wordllama, which holds the embedding weights, is not installed")
    return _Model(Path(found.origin).parent)


class _Model:
    """Token vectors, memory-mapped from their file."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer  # needed with the first text, not at start

        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.no_padding()
        with (folder / WEIGHTS).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))["embedding.weight"]
        if header["dtype"] != "F16" or header["shape"][1] != SHIPPED.dimension:
            raise RuntimeError(f"{folder / WEIGHTS} has vectors of an unknown format: {header}")
        start = 8 + size + int(header["data_offsets"][0])
        self._rows = np.asarray(np.memmap(folder / WEIGHTS, np.float16, "r", start, tuple(header["shape"])))

    def sum_tokens(self, word: str) -> Vector:
        """Return the sum of a word's token vectors; only its direction matters."""
        tokens = self._tokenizer.encode(word, add_special_tokens=False).ids
        total: Vector = self._rows[tokens].sum(axis=0, dtype=np.float32)
        return total
