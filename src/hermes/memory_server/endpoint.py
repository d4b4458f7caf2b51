"""Vectors from any endpoint that implements OpenAI's `/embeddings`."""

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

REQUEST_TIMEOUT_SECONDS = 20.0
"""Timeout of one request. Searches use a shorter one."""
MAX_TEXTS_PER_REQUEST = 64
"""Texts in one request."""
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
ALLOWED_DIMENSIONS = (8, 8192)
"""Smallest and largest number of dimensions that a vector may have."""
RETRYABLE_STATUSES = (408, 425, 429)
"""Statuses that do not depend on the texts: the same request may succeed later."""


class EndpointError(Exception):
    """The endpoint cannot be reached, fails, or returns something other than vectors."""


class EmbeddingEndpoint:
    """An embedding model behind a URL. The dimension of its vectors is given, or learned from its first response."""

    def __init__(self, url: str, model: str, key: str = "", *, dimension: int = 0) -> None:
        import httpx  # importing it takes a tenth of a second, and few users have an endpoint

        parts = urlsplit(url)
        self._url = parts._replace(path=f"{parts.path.rstrip('/')}/embeddings").geturl()
        for name in ("httpx", "httpcore"):  # their messages contain the URL, which may contain a key
            logging.getLogger(name).setLevel(logging.WARNING)
        self._model = model
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._tls = httpx.create_ssl_context()  # creating it takes longer than a request on this machine
        self._is_here = is_loopback_url(url)
        self.space = Space(f"{_public_url(url)} {model}", dimension)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return the vector of each text. Raise EndpointError if the endpoint fails, TextRefusedError if it rejects the
        texts."""
        import httpx

        found: list[Vector] = []
        client = httpx.AsyncClient(
            timeout=REQUEST_TIMEOUT_SECONDS, headers=self._headers, verify=self._tls, trust_env=not self._is_here
        )
        try:
            async with client:
                for start in range(0, len(texts), MAX_TEXTS_PER_REQUEST):
                    found += await self._embed(client, texts[start : start + MAX_TEXTS_PER_REQUEST])
        except httpx.HTTPError as error:
            raise EndpointError(f"the embeddings endpoint cannot be reached: {type(error).__name__} {error}") from error
        return found

    async def _embed(self, client: httpx.AsyncClient, texts: Sequence[str]) -> list[Vector]:
        # Some endpoints refuse an empty text.
        body = {"model": self._model, "input": [text if text.strip() else "." for text in texts]}
        async with client.stream("POST", self._url, json=body) as answer:
            content = await _read(answer)
        if 400 <= answer.status_code < 500 and answer.status_code not in RETRYABLE_STATUSES:
            raise TextRefusedError(f"the embeddings endpoint returned status {answer.status_code}")
        if answer.status_code != 200:
            raise EndpointError(f"the embeddings endpoint returned status {answer.status_code}")
        return [self._direction(numbers) for numbers in _numbers(content, len(texts))]

    def _direction(self, numbers: Any) -> Vector:
        try:
            vector = np.asarray(numbers, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise EndpointError("the embeddings endpoint returned a vector that does not consist of numbers") from error
        if (
            vector.ndim != 1
            or not ALLOWED_DIMENSIONS[0] <= len(vector) <= ALLOWED_DIMENSIONS[1]
            or not np.isfinite(vector).all()
        ):
            raise EndpointError("the embeddings endpoint returned an invalid vector")
        if not self.space.dimension:
            self.space = Space(self.space.embedder, len(vector))
        if len(vector) != self.space.dimension:
            raise EndpointError(
                f"the embeddings endpoint returned a vector of {len(vector)} numbers, "
                f"and earlier one of {self.space.dimension}"
            )
        return vector / np.float32(max(float(np.linalg.norm(vector)), 1e-12))


def _public_url(url: str) -> str:
    """Return the URL without its secrets: this name is displayed and stored."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}".rstrip("/")


async def _read(answer: httpx.Response) -> bytes:
    content = bytearray()
    async for part in answer.aiter_bytes():
        content += part
        if len(content) > MAX_RESPONSE_BYTES:
            raise EndpointError(f"the response of the embeddings endpoint exceeds {MAX_RESPONSE_BYTES} bytes")
    return bytes(content)


def _numbers(content: bytes, wanted: int) -> list[Any]:
    """Return the vectors of a response, in the order of the texts."""
    try:
        rows = json.loads(content)["data"]
        found = [row["embedding"] for row in sorted(rows, key=lambda row: row["index"])]
    except (ValueError, KeyError, TypeError) as error:
        raise EndpointError("the embeddings endpoint returned a response without vectors") from error
    if len(found) != wanted:
        raise EndpointError(f"the embeddings endpoint returned {len(found)} vectors for {wanted} texts")
    return found
