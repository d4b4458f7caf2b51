"""The second embedder at work: it embeds messages in the background, and questions while somebody waits.

What it makes is kept after each batch, so that whoever comes next goes on there. When it fails, searches go on without
it, and it is tried again.
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
    TRIES,
    EmbeddingBatch,
    Made,
    MessagePair,
    choose_space,
    chosen_space,
    next_batch,
    store_batch,
)
from hermes.ranking.scoring import LONG
from hermes.ranking.traits import count_words, traits_of

log = logging.getLogger(__name__)
OK = "ok"
MESSAGES = 16
"""Messages in one batch at most: a kill loses little work, and other writers do not wait long."""
REQUEST_CHARS = 8000
"""Characters in one request at most, so that a slow model answers in time."""
REQUEST_SECONDS = 60.0
CUTS = (PIECE_CHARS, PIECE_CHARS // 2, PIECE_CHARS // 4)
"""A message that is refused is tried again alone, with its pieces cut to these lengths in turn."""
ALONE_AFTER = TRIES // 2
"""After so many failures a message is embedded without the message before it, which may be the reason."""
PROBE = "ready"
"""A text that every working embedder takes: if it fails too, the embedder is at fault and not the message."""
LONG_QUESTION = 200
"""After a failure no question is asked for a while. Questions of this length or more have a pause of their own: their
length may be the reason, so shorter ones are still asked."""
ASK_SECONDS = 1.5
"""Seconds that a search waits for the vector of its question."""
FIRST_WAIT, LONGEST_WAIT = 2.0, 60.0
"""Seconds after a failure until the next try, doubled each time."""
LOOK_EVERY = 5.0
"""Seconds between two looks for messages that another process wrote."""
QUIET_SECONDS, MAX_WAIT_SECONDS = 1.0, 5.0
"""A batch waits until nothing was asked or written for so long, up to a limit: whoever uses the server comes first."""
ASKED_AT_ONCE = 2
"""Questions that are embedded at a time; further ones go without, so that a busy server answers as fast as before."""
KEPT_QUESTIONS = 256
"""The vectors of the last questions are kept: a turn asks the same several times."""
REASON_CHARS = 200
SHORT = 1000
"""A text of more characters than this is not short: it has LONG words or more, or none at all."""


class WrongVectorsError(Exception):
    """The embedder answered with something else than one vector of its space for each text."""


class RetryPace:
    """When the next try is due."""

    def __init__(self) -> None:
        self._wait = FIRST_WAIT
        self._not_before = 0.0

    def left(self) -> float:
        """Seconds until then; 0 or less when it is."""
        return self._not_before - time.monotonic()

    def worked(self) -> None:
        self._wait, self._not_before = FIRST_WAIT, 0.0

    def failed(self) -> None:
        self._not_before = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)


class Refinement:
    """A second embedder with what is known of its state."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._news = asyncio.Event()
        self._has_chosen = False
        self._filling, self._asking, self._asking_long = RetryPace(), RetryPace(), RetryPace()
        self._at_once = MESSAGES
        """How many messages the next batch has: fewer after one that was refused."""
        self.is_busy = False
        """Whether there may be something to embed."""
        self._failure = self._ask_failure = OK
        self._used_at = -QUIET_SECONDS
        self._asked_now = 0
        self._kept: dict[str, Finer] = {}
        self._other: str | None = None
        """The space that somebody else chose for the folder later."""

    @property
    def state(self) -> str:
        """`ok`, or what is wrong."""
        failure = self._failure if self._failure != OK else self._ask_failure
        return failure if self._other is None else f"this folder is embedded with {self._other} now"

    @property
    def space(self) -> str | None:
        """What its vectors can be compared with; None while that is not known."""
        space = self._embedder.space
        return str(space) if space.dimension else None

    @property
    def name(self) -> str:
        return self._embedder.space.embedder

    def wake(self) -> None:
        """Something was written."""
        self._used_at = time.monotonic()
        self._news.set()

    async def ask(self, text: str) -> Finer | None:
        """The vector of a question, or of its beginning; None when it is not there in time, when many ask at once, or
        the embedder cannot read the text."""
        self._used_at = time.monotonic()
        text = text[:PIECE_CHARS]
        if (kept := self._kept.get(text)) is not None:
            return kept
        pace = self._asking if len(text) < LONG_QUESTION else self._asking_long
        if pace.left() > 0 or self._asked_now >= ASKED_AT_ONCE:
            return None
        self._asked_now += 1
        try:
            [vector] = await self._embed([text], ASK_SECONDS)
        except Exception as error:  # noqa: BLE001 - the boundary of an embedder: told in /health, and searches go on
            pace.failed()
            self._ask_failure = self._told(error, self._ask_failure)
            return None
        finally:
            self._asked_now -= 1
        pace.worked()
        self._ask_failure = OK
        if not vector.any():
            return None
        while len(self._kept) >= KEPT_QUESTIONS:
            del self._kept[next(iter(self._kept))]
        self._kept[text] = Finer(str(self._embedder.space), vector)
        return self._kept[text]

    async def run(self, database: Database) -> None:
        """Fill this space from now on, until cancelled. The database is not closed."""
        while True:
            self._news.clear()
            await self._wait_for_quiet()
            try:
                self.is_busy = await self._embed_some(database)
            except StoreError as error:
                self.is_busy = False
                log.warning("memory server: finer vectors have to wait: %s", error.line())
            except Exception as error:  # noqa: BLE001 - the boundary of an embedder: told in /health, and tried again
                self.is_busy = False
                self._filling.failed()
                self._failure = self._told(error, self._failure)
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
            async with asyncio.timeout(LOOK_EVERY):
                await self._news.wait()
        except TimeoutError:
            return

    async def _embed_some(self, database: Database) -> bool:
        """Embed a batch. False when nothing is left to do, or when the next try has to wait."""
        if self.space is None:
            await self._embed([PROBE], REQUEST_SECONDS)
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
        """The vectors of a batch, and 0. When a batch of one fails although the embedder works: no vectors, and how
        often that message has failed. When a larger one fails: None, and the next batch is smaller."""
        size = len(batch.messages)
        try:
            vectors = await (self._embed_alone(batch) if size == 1 else self._embed_messages(batch.messages))
        except Exception as error:  # noqa: BLE001 - the boundary of an embedder: it fails altogether, or for some texts
            await self._embed([PROBE], REQUEST_SECONDS)
            self._at_once = max(1, size // 2)
            if size > 1:
                return None
            log.warning(
                "memory server: %s has no vector for message %d: %s", self.name, batch.messages[0].id, _reason(error)
            )
            return [], TRIES if isinstance(error, TextRefusedError) else batch.failures + 1
        self._at_once = min(MESSAGES, self._at_once + 1)
        return vectors, 0

    async def _embed_alone(self, batch: EmbeddingBatch) -> list[Made]:
        """The vectors of a message, of less of its text where all of it is refused."""
        alone = [replace(said, before=None) for said in batch.messages]
        with suppress(TextRefusedError):
            return await self._embed_messages(batch.messages if batch.failures < ALONE_AFTER else alone)
        for chars in CUTS[:-1]:
            with suppress(TextRefusedError):
                return await self._embed_messages(alone, chars)
        return await self._embed_messages(alone, CUTS[-1])

    async def _embed_messages(self, messages: Sequence[MessagePair], chars: int = PIECE_CHARS) -> list[Made]:
        """The vectors of the messages' pieces, each cut to `chars`. The vector of a message that answers a short one is
        the mean of its own and that of both texts together."""
        pieces = [(said, n, piece[:chars]) for said in messages for n, piece in enumerate(split_pieces(said.text))]
        after = [
            place
            for place, (said, _, _) in enumerate(pieces)
            if len(said.text) + 1 < PIECE_CHARS and _is_short(said.before)
        ]
        together = [_with_before(pieces[place][0]) for place in after]
        vectors: list[Vector] = []
        for texts in in_parts([*(piece for _, _, piece in pieces), *together], REQUEST_CHARS):
            vectors += await self._embed(texts, REQUEST_SECONDS)
        for place, both in zip(after, vectors[len(pieces) :], strict=True):
            if vectors[place].any() and both.any():
                vectors[place] = (vectors[place] + both) / np.float32(2)
        return [(said.id, n, to_blob(v)) for (said, n, _), v in zip(pieces, vectors[: len(pieces)], strict=True)]

    async def _embed(self, texts: Sequence[str], seconds: float) -> list[Vector]:
        async with asyncio.timeout(seconds):
            vectors = await self._embedder.embed(texts)
        wanted = (self._embedder.space.dimension,)
        if len(vectors) != len(texts) or any(v.shape != wanted or not np.isfinite(v).all() for v in vectors):
            raise WrongVectorsError(f"{self.name} answered with something else than vectors of {wanted[0]} numbers")
        return vectors

    def _told(self, error: Exception, before: str) -> str:
        """What is wrong, said in the log when it was not before."""
        failure = _reason(error)
        if failure != before:
            log.warning("memory server: searches go without %s: %s", self.name, failure)
        return failure


@asynccontextmanager
async def refining(database: Database, refinement: Refinement | None) -> AsyncIterator[None]:
    """Let the second embedder work for the length of a block, where there is one."""
    if refinement is None:
        yield
        return
    task = asyncio.create_task(refinement.run(database))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _reason(error: Exception) -> str:
    said = "no answer in time" if isinstance(error, TimeoutError) else " ".join(str(error).split())
    return f"{type(error).__name__}: {said}"[:REASON_CHARS]


def _with_before(said: MessagePair) -> str:
    """A message after the end of the one before it, no longer than a piece."""
    room = PIECE_CHARS - len(said.text) - 1
    return f"{(said.before or '')[-room:]}\n{said.text}"


def _is_short(text: str | None) -> bool:
    return text is not None and len(text) < SHORT and count_words(traits_of(text)) < LONG
