"""Texts as vectors: the mean of static token vectors that ship inside a package. No download, a fraction of a ms."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 256
ROW_BYTES = DIMENSIONS * 2
PIECE_CHARS = 900
"""A long text is embedded in pieces: one mean over all of it says nothing."""
WORDS_KEPT = 4000
WORD_CHARS = 40
"""Words come again: the vectors of the last ones are kept, of words up to this length."""
WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
Vector = NDArray[np.float32]


class _Model:
    """Token vectors, read from their file one by one: most are never needed, and words are kept below."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer  # needed with the first text, not at start

        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.no_padding()
        with (folder / WEIGHTS).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))["embedding.weight"]
        self._file = os.open(folder / WEIGHTS, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        if header["dtype"] != "F16" or header["shape"][1] != DIMENSIONS:
            raise RuntimeError(f"{folder / WEIGHTS} does not hold the vectors that we know: {header}")
        self._start = 8 + size + int(header["data_offsets"][0])

    def sum_tokens(self, word: str) -> Vector:
        """The sum of a word's token vectors: its direction is all that counts."""
        tokens = self._tokenizer.encode(word, add_special_tokens=False).ids
        total: Vector = from_blobs([self._read(token) for token in tokens]).sum(axis=0)
        return total

    def _read(self, token: int) -> bytes:
        os.lseek(self._file, self._start + token * ROW_BYTES, os.SEEK_SET)
        return os.read(self._file, ROW_BYTES)


_guard = threading.Lock()


@cache
def _model() -> _Model:
    found = importlib.util.find_spec("wordllama")
    if found is None or found.origin is None:
        raise RuntimeError("the package wordllama, which holds the embedding weights, is not installed")
    return _Model(Path(found.origin).parent)


def embed(text: str) -> Vector:
    """The text's direction, of length 1; all zeros for a text without words."""
    words = [_word_vector(word) for word in text.split(" ")]
    total: Vector = np.add.reduce(words)
    length = float(total @ total) ** 0.5
    return total / length if length else total


class _Words:
    """Vectors of words that came lately: a full generation makes room for the next and is kept until that is full."""

    def __init__(self) -> None:
        self.young: dict[str, Vector] = {}
        self.old: dict[str, Vector] = {}

    def keep(self, word: str, vector: Vector) -> None:
        if len(self.young) >= WORDS_KEPT:
            self.young, self.old = {}, self.young
        self.young[word] = vector


_words = _Words()


def _word_vector(word: str) -> Vector:
    vector = _words.young.get(word)
    if vector is not None:
        return vector
    vector = _words.old.get(word)
    if vector is None:
        with _guard:  # one model, however many texts come first, and one place in its file
            vector = _model().sum_tokens(word)
    if len(word) <= WORD_CHARS:
        _words.keep(word, vector)
    return vector


def embed_pieces(text: str) -> list[bytes]:
    """The vectors to store for a text: one, or one for each piece of a long one."""
    return [to_blob(embed(piece)) for piece in split_pieces(text)]


def split_pieces(text: str) -> list[str]:
    """Pieces of at most PIECE_CHARS, cut at spaces where there are any."""
    pieces: list[str] = []
    rest = text
    while len(rest) > PIECE_CHARS:
        cut = rest.rfind(" ", PIECE_CHARS // 2, PIECE_CHARS)
        cut = cut if cut > 0 else PIECE_CHARS
        pieces.append(rest[:cut])
        rest = rest[cut:].lstrip()
    return [*pieces, rest] if rest or not pieces else pieces


def to_blob(vector: Vector) -> bytes:
    """A vector as the tables hold it."""
    return vector.astype(np.float16).tobytes()


def from_blobs(blobs: list[bytes]) -> NDArray[np.float32]:
    """Stored vectors as one matrix, a row each."""
    flat = np.frombuffer(b"".join(blobs), dtype=np.float16)
    return flat.reshape(len(blobs), DIMENSIONS).astype(np.float32)
