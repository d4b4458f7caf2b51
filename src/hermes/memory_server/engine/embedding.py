"""Run the second embedder: messages are embedded in the background, questions while somebody waits.

Vectors are stored after each batch, so that the next process continues there. While the embedder fails, searches run
without it, and it is retried.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import numpy as np

from hermes.errors import StoreError
from hermes.memory_server.db.database import Database
from hermes.memory_server.embedder import (
    PIECE_CHARS,
    Embedder,
    Finer,
    TextRefusedError,
    Vector,
    in_parts,
    split_pieces,
    to_blob,
)
from hermes.memory_server.engine.finer import (
    MAX_ATTEMPTS,
    EmbeddingBatch,
    Made,
    MessagePair,
    choose_space,
    chosen_space,
    next_batch,
    store_batch,
)
from hermes.ranking.scoring import MIN_LONG_WORDS
from hermes.ranking.traits import count_words, traits_of

log = logging.getLogger(__name__)
OK = "ok"
MAX_BATCH_MESSAGES = 16
"""The number of messages in one batch: a crash loses little work, and other writers do not wait long."""
MAX_REQUEST_CHARS = 8000
"""The number of characters in one request, so that a slow model answers in time."""
REQUEST_TIMEOUT_SECONDS = 60.0
CUTS = (PIECE_CHARS, PIECE_CHARS // 2, PIECE_CHARS // 4)
"""A refused message is retried alone, with its pieces cut to these lengths in turn."""
MAX_PAIRED_ATTEMPTS = MAX_ATTEMPTS // 2
"""After this many failures a message is embedded without the message before it, which may be the cause."""
PROBE = "ready"
"""A text that every working embedder accepts: if it fails too, the embedder is at fault and not the message."""
LONG_QUESTION_CHARS = 200
"""After a failure, questions are not embedded for a while. Questions of this length or more have a separate pause,
because their length may be the cause; shorter ones are still embedded.
"""
ASK_TIMEOUT_SECONDS = 1.5
"""How long a search waits for the vector of its question."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 2.0, 60.0
"""The first delay after a failure, doubled each time up to the second."""
POLL_SECONDS = 5.0
"""The time between two checks for messages that another process wrote."""
QUIET_SECONDS, MAX_WAIT_SECONDS = 1.0, 5.0
"""A batch waits until no request or write came for this long, but no longer than the limit: requests come
first.
"""
MAX_CONCURRENT_QUESTIONS = 2
"""The number of questions embedded at a time; further ones are searched without, so that a busy server stays fast."""
MAX_CACHED_QUESTIONS = 256
"""The number of question vectors that are cached: one turn often asks the same question several times."""
MAX_FAILURE_TEXT_CHARS = 200
MAX_SHORT_CHARS = 1000
"""A text of more characters than this is not short: it has MIN_LONG_WORDS words or more, or none at all."""


class WrongVectorsError(Exception):
    """The embedder did not return one vector of its space for each text."""


class RetryPace:
    """A retry delay that doubles with each failure."""

    def __init__(self) -> None:
        self._wait = FIRST_RETRY_SECONDS
        self._not_before = 0.0

    def left(self) -> float:
        """Return the seconds until the next try; 0 or less if it is due."""
        return self._not_before - time.monotonic()

    def worked(self) -> None:
        self._wait, self._not_before = FIRST_RETRY_SECONDS, 0.0

    def failed(self) -> None:
        self._not_before = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, MAX_RETRY_SECONDS)


class Refinement:
    """The second embedder, with its state."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._news = asyncio.Event()
        self._has_chosen = False
        self._filling, self._asking, self._asking_long = RetryPace(), RetryPace(), RetryPace()
        self._at_once = MAX_BATCH_MESSAGES
        """The size of the next batch: smaller after a batch that was refused."""
        self.is_busy = False
        """True if there may be messages to embed."""
        self._failure = self._ask_failure = OK
        self._used_at = -QUIET_SECONDS
        self._asked_now = 0
        self._kept: dict[str, Finer] = {}
        self._other: str | None = None
        """The space that another process chose for the folder later."""

    @property
    def state(self) -> str:
        """`ok`, or the reason of the last failure."""
        failure = self._failure if self._failure != OK else self._ask_failure
        return failure if self._other is None else f"this folder is now embedded with {self._other}"

    @property
    def space(self) -> str | None:
        """The space that its vectors are comparable in, or None while it is unknown."""
        space = self._embedder.space
        return str(space) if space.dimension else None

    @property
    def name(self) -> str:
        return self._embedder.space.embedder

    def wake(self) -> None:
        """Note that messages were written."""
        self._used_at = time.monotonic()
        self._news.set()

    async def ask(self, text: str) -> Finer | None:
        """Return the vector of a question, or of its beginning; None if it does not arrive in time, if too many
        questions are being embedded, or if the embedder cannot read the text.
        """
        self._used_at = time.monotonic()
        text = text[:PIECE_CHARS]
        if (kept := self._kept.get(text)) is not None:
            return kept
        pace = self._asking if len(text) < LONG_QUESTION_CHARS else self._asking_long
        if pace.left() > 0 or self._asked_now >= MAX_CONCURRENT_QUESTIONS:
            return None
        self._asked_now += 1
        try:
            [vector] = await self._embed([text], ASK_TIMEOUT_SECONDS)
        except Exception as error:  # noqa: BLE001 - the boundary of an embedder: shown in /health
            pace.failed()
            self._ask_failure = self._note_failure(error, self._ask_failure)
            return None
        finally:
            self._asked_now -= 1
        pace.worked()
        self._ask_failure = OK
        if not vector.any():
            return None
        while len(self._kept) >= MAX_CACHED_QUESTIONS:
            del self._kept[next(iter(self._kept))]
        self._kept[text] = Finer(str(self._embedder.space), vector)
        return self._kept[text]

    async def run(self, database: Database) -> None:
        """Fill this space until cancelled. The database is not closed."""
        while True:
            self._news.clear()
            await self._wait_for_quiet()
            try:
                self.is_busy = await self._embed_some(database)
            except StoreError as error:
                self.is_busy = False
                log.warning("memory server: background embedding is postponed: %s", error.line())
            except Exception as error:  # noqa: BLE001 - the boundary of an embedder: shown in /health, and retried
                self.is_busy = False
                self._filling.failed()
                self._failure = self._note_failure(error, self._failure)
            if not self.is_busy:
                await self._rest()

    async def _wait_for_quiet(self) -> None:
        until = time.monotonic() + MAX_WAIT_SECONDS
        while True:
            left = min(until, self._used_at + QUIET_SECONDS) - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(left)

    async def _rest(self) -> None:
        if (left := self._filling.left()) > 0:
            await asyncio.sleep(left)
            return
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._news.wait()
        except TimeoutError:
            return

    async def _embed_some(self, database: Database) -> bool:
        """Embed a batch. Return False if nothing is left, or if the next try must wait."""
        if self.space is None:
            await self._embed([PROBE], REQUEST_TIMEOUT_SECONDS)
        space = str(self._embedder.space)
        if not self._has_chosen:
            await database.write(lambda tx: choose_space(tx, space))
            self._has_chosen = True
        chosen, batch = await database.read(lambda tx: (chosen_space(tx), next_batch(tx, space, self._at_once)))
        self._other = None if chosen == space else chosen
        if chosen != space:
            return False
        made = None if batch is None else await self._embed_batch(batch)
        self._filling.worked()
        self._failure = OK
        if batch is None:
            return False
        if made is None:
            return True
        vectors, failures = made
        await database.write(lambda tx: store_batch(tx, space, batch, vectors, failures))
        return batch.upto is not None or len(vectors) > 0

    async def _embed_batch(self, batch: EmbeddingBatch) -> tuple[list[Made], int] | None:
        """Return the vectors of a batch and 0; no vectors and the failure count, if a batch of one fails although the
        embedder works; or None, if a larger batch fails (the next one is smaller).
        """
        size = len(batch.messages)
        try:
            vectors = await (self._embed_alone(batch) if size == 1 else self._embed_messages(batch.messages))
        except Exception as error:  # noqa: BLE001 - the boundary of an embedder: it fails for all texts, or for some
            await self._embed([PROBE], REQUEST_TIMEOUT_SECONDS)
            self._at_once = max(1, size // 2)
            if size > 1:
                return None
            log.warning(
                "memory server: %s has no vector for message %d: %s", self.name, batch.messages[0].id, _reason(error)
            )
            return [], MAX_ATTEMPTS if isinstance(error, TextRefusedError) else batch.failures + 1
        self._at_once = min(MAX_BATCH_MESSAGES, self._at_once + 1)
        return vectors, 0

    async def _embed_alone(self, batch: EmbeddingBatch) -> list[Made]:
        """Return the vectors of one message, of less of its text if the embedder refuses all of it."""
        alone = [replace(said, before=None) for said in batch.messages]
        with suppress(TextRefusedError):
            return await self._embed_messages(batch.messages if batch.failures < MAX_PAIRED_ATTEMPTS else alone)
        for chars in CUTS[:-1]:
            with suppress(TextRefusedError):
                return await self._embed_messages(alone, chars)
        return await self._embed_messages(alone, CUTS[-1])

    async def _embed_messages(self, messages: Sequence[MessagePair], chars: int = PIECE_CHARS) -> list[Made]:
        """Return the vectors of the messages' pieces, each cut to `chars`.

        If a message answers a short one, its vector is the mean of its own and that of both texts together.
        """
        pieces = [(said, n, piece[:chars]) for said in messages for n, piece in enumerate(split_pieces(said.text))]
        after = [
            place
            for place, (said, _, _) in enumerate(pieces)
            if len(said.text) + 1 < PIECE_CHARS and _is_short(said.before)
        ]
        together = [_with_before(pieces[place][0]) for place in after]
        vectors: list[Vector] = []
        for texts in in_parts([*(piece for _, _, piece in pieces), *together], MAX_REQUEST_CHARS):
            vectors += await self._embed(texts, REQUEST_TIMEOUT_SECONDS)
        for place, both in zip(after, vectors[len(pieces) :], strict=True):
            if vectors[place].any() and both.any():
                vectors[place] = (vectors[place] + both) / np.float32(2)
        return [(said.id, n, to_blob(v)) for (said, n, _), v in zip(pieces, vectors[: len(pieces)], strict=True)]

    async def _embed(self, texts: Sequence[str], seconds: float) -> list[Vector]:
        async with asyncio.timeout(seconds):
            vectors = await self._embedder.embed(texts)
        wanted = (self._embedder.space.dimension,)
        if len(vectors) != len(texts) or any(v.shape != wanted or not np.isfinite(v).all() for v in vectors):
            raise WrongVectorsError(f"{self.name} did not return vectors of {wanted[0]} numbers")
        return vectors

    def _note_failure(self, error: Exception, before: str) -> str:
        """Return the reason of a failure, and log it if it is new."""
        failure = _reason(error)
        if failure != before:
            log.warning("memory server: searches run without %s: %s", self.name, failure)
        return failure


@asynccontextmanager
async def refining(database: Database, refinement: Refinement | None) -> AsyncIterator[None]:
    """Run the second embedder, if any, while the block runs."""
    if refinement is None:
        yield
        return
    loop = asyncio.get_running_loop()
    database.watch_jobs(lambda: loop.call_soon_threadsafe(refinement.wake))
    task = asyncio.create_task(refinement.run(database))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _reason(error: Exception) -> str:
    said = "no answer in time" if isinstance(error, TimeoutError) else " ".join(str(error).split())
    return f"{type(error).__name__}: {said}"[:MAX_FAILURE_TEXT_CHARS]


def _with_before(said: MessagePair) -> str:
    """Return a message after the end of the one before it, no longer than a piece."""
    room = PIECE_CHARS - len(said.text) - 1
    return f"{(said.before or '')[-room:]}\n{said.text}"


def _is_short(text: str | None) -> bool:
    return text is not None and len(text) < MAX_SHORT_CHARS and count_words(traits_of(text)) < MIN_LONG_WORDS
