"""Vectors from any endpoint that speaks OpenAI's `/embeddings`."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from hermes.loopback import is_loopback_url
from hermes.memory_server.embedder import Space, TextRefusedError, Vector

if TYPE_CHECKING:
    import httpx

SECONDS = 20.0
"""For one request; who asks a question waits less long than that."""
TEXTS = 64
"""In one request."""
ANSWER_BYTES = 64 * 1024 * 1024
DIMENSIONS = (8, 8192)
"""How many numbers a vector may have."""
LATER = (408, 425, 429)
"""Answers that say nothing of the texts: the same request may be taken later."""


class EndpointError(Exception):
    """The endpoint cannot be reached, fails, or answers with something else than vectors."""


class EmbeddingEndpoint:
    """A model behind a URL. How many numbers its vectors have is said, or seen in its first answer."""

    def __init__(self, url: str, model: str, key: str = "", *, dimension: int = 0) -> None:
        import httpx  # takes a tenth of a second, and few have an endpoint

        parts = urlsplit(url)
        self._url = parts._replace(path=f"{parts.path.rstrip('/')}/embeddings").geturl()
        for name in ("httpx", "httpcore"):  # their chatter holds the URL, and the URL may hold a key
            logging.getLogger(name).setLevel(logging.WARNING)
        self._model = model
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._tls = httpx.create_ssl_context()  # takes longer than a request on this machine
        self._is_here = is_loopback_url(url)
        self.space = Space(f"{_place(url)} {model}", dimension)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """The vector of each text. An EndpointError says what went wrong, a TextRefusedError what it does not take."""
        import httpx

        found: list[Vector] = []
        client = httpx.AsyncClient(
            timeout=SECONDS, headers=self._headers, verify=self._tls, trust_env=not self._is_here
        )
        try:
            async with client:
                for start in range(0, len(texts), TEXTS):
                    found += await self._embed(client, texts[start : start + TEXTS])
        except httpx.HTTPError as error:
            raise EndpointError(f"the embeddings endpoint cannot be reached: {type(error).__name__} {error}") from error
        return found

    async def _embed(self, client: httpx.AsyncClient, texts: Sequence[str]) -> list[Vector]:
        # Some endpoints refuse an empty text.
        body = {"model": self._model, "input": [text if text.strip() else "." for text in texts]}
        async with client.stream("POST", self._url, json=body) as answer:
            content = await _read(answer)
        if 400 <= answer.status_code < 500 and answer.status_code not in LATER:
            raise TextRefusedError(f"the embeddings endpoint answers {answer.status_code}")
        if answer.status_code != 200:
            raise EndpointError(f"the embeddings endpoint answers {answer.status_code}")
        return [self._direction(numbers) for numbers in _numbers(content, len(texts))]

    def _direction(self, numbers: Any) -> Vector:
        try:
            vector = np.asarray(numbers, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise EndpointError("the embeddings endpoint answers with something else than numbers") from error
        if vector.ndim != 1 or not DIMENSIONS[0] <= len(vector) <= DIMENSIONS[1] or not np.isfinite(vector).all():
            raise EndpointError("the embeddings endpoint answers with something else than a vector")
        if not self.space.dimension:
            self.space = Space(self.space.embedder, len(vector))
        if len(vector) != self.space.dimension:
            raise EndpointError(
                f"the embeddings endpoint answers with {len(vector)} numbers, and before with {self.space.dimension}"
            )
        return vector / np.float32(max(float(np.linalg.norm(vector)), 1e-12))


def _place(url: str) -> str:
    """Where it is, without what is secret in a URL: this name is shown and stored."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}".rstrip("/")


async def _read(answer: httpx.Response) -> bytes:
    content = bytearray()
    async for part in answer.aiter_bytes():
        content += part
        if len(content) > ANSWER_BYTES:
            raise EndpointError("the embeddings endpoint answers without end")
    return bytes(content)


def _numbers(content: bytes, wanted: int) -> list[Any]:
    """The vectors of an answer, in the order of the texts."""
    try:
        rows = json.loads(content)["data"]
        found = [row["embedding"] for row in sorted(rows, key=lambda row: row["index"])]
    except (ValueError, KeyError, TypeError) as error:
        raise EndpointError("the embeddings endpoint answers with something else than vectors") from error
    if len(found) != wanted:
        raise EndpointError(f"the embeddings endpoint answers with {len(found)} vectors for {wanted} texts")
    return found
