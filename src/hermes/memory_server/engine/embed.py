"""Texts as vectors: the mean of static token vectors that ship inside a package. No download, a fraction of a ms."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 256
PIECE_CHARS = 900
"""A long text is embedded in pieces: one mean over all of it says nothing."""
WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
Vector = NDArray[np.float32]


@cache
def _model() -> tuple[Any, NDArray[np.float16]]:
    from tokenizers import Tokenizer  # needed with the first text, not at start
    from tokenizers.pre_tokenizers import Split

    found = importlib.util.find_spec("wordllama")
    if found is None or found.origin is None:
        raise RuntimeError("the package wordllama, which holds the embedding weights, is not installed")
    folder = Path(found.origin).parent
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokenizer.no_padding()
    # Word by word: its cache then holds words, which come again, and not whole texts, which do not.
    tokenizer.pre_tokenizer = Split("▁", "merged_with_next")
    return tokenizer, _map_weights(folder / WEIGHTS)


def _map_weights(path: Path) -> NDArray[np.float16]:
    """The token vectors straight from the file: pages that no text needs take no memory."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))["embedding.weight"]
    if header["dtype"] != "F16" or header["shape"][1] != DIMENSIONS:
        raise RuntimeError(f"{path} does not hold the vectors that we know: {header}")
    mapped = np.memmap(path, np.float16, "r", 8 + size + header["data_offsets"][0], tuple(header["shape"]))
    return mapped.view(np.ndarray)  # the same memory without the price of a subclass


def embed(text: str) -> Vector:
    """The text's direction, of length 1; all zeros for a text without words."""
    tokenizer, weights = _model()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if not ids:
        return np.zeros(DIMENSIONS, dtype=np.float32)
    mean: Vector = weights[ids].astype(np.float32).mean(axis=0)
    length = float(np.linalg.norm(mean))
    return mean / length if length else mean


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
