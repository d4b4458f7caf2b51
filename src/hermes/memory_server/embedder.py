"""Embedders, which turn texts into vectors, and how vectors are stored. The caller that starts the server chooses
one.

Vectors from any endpoint that implements OpenAI's `/embeddings`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from hermes.loopback import is_loopback_url

if TYPE_CHECKING:
    import httpx

Vector = NDArray[np.float32]
PIECE_CHARS = 900
"""Length of the pieces in which a long text is embedded: a single vector for all of it finds little."""


@dataclass(frozen=True, slots=True)
class Space:
    """The vector space of an embedder. Only vectors of one space can be compared, so a folder holds vectors of one."""

    embedder: str
    dimension: int

    def __str__(self) -> str:
        return f"{self.embedder} ({self.dimension} numbers)"


SHIPPED = Space("wordllama/l2_supercat_256", 256)
"""Space of the bundled word vectors, which need no other service."""


class TextRefusedError(Exception):
    """The embedder does not accept these texts; fewer or shorter texts may be accepted."""


class Embedder(Protocol):
    """Turn texts into vectors of one space."""

    @property
    def space(self) -> Space:
        """Space of the vectors that this embedder returns."""

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector for each text, of length 1, or all zeros for a text without words.

        It may take long and may raise, so it is never called inside a transaction. A TextRefusedError says that the
        same texts would be refused again; after any other failure they may be taken.
        """


@dataclass(frozen=True, slots=True)
class Finer:
    """Vector of a question from a second embedder, with the name of its space."""

    space: str
    vector: Vector


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """A search query: its text and its vector."""

    text: str
    vector: Vector
    direction: Callable[[str], Vector] | None = None
    """Embed a shorter text immediately; None for embedders that have no such method."""
    finer: Finer | None = None
    """Vector from the second embedder, of the question without the names of peers."""


def split_pieces(text: str) -> list[str]:
    """Split a text into pieces of at most PIECE_CHARS, at spaces where possible."""
    pieces: list[str] = []
    rest = text
    while len(rest) > PIECE_CHARS:
        cut = rest.rfind(" ", PIECE_CHARS // 2, PIECE_CHARS)
        cut = cut if cut > 0 else PIECE_CHARS
        pieces.append(rest[:cut])
        rest = rest[cut:].lstrip()
    return [*pieces, rest] if rest or not pieces else pieces


def in_parts(texts: Iterable[str], chars: int) -> Iterator[list[str]]:
    """Yield the texts in order, in batches of at most `chars` characters; a longer text forms a batch alone."""
    part: list[str] = []
    for text in texts:
        if part and sum(map(len, part)) + len(text) > chars:
            yield part
            part = []
        part.append(text)
    if part:
        yield part


def to_blob(vector: Vector) -> bytes:
    """Encode a vector as the tables store it, in half floats."""
    return vector.astype(np.float16).tobytes()


def from_blobs(blobs: Iterable[bytes], dimension: int) -> Vector:
    """Decode stored vectors into a matrix with one row for each."""
    flat = np.frombuffer(b"".join(blobs), dtype=np.float16)
    return flat.reshape(-1, dimension).astype(np.float32)


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
