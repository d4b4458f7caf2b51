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

import numpy as np

from hermes.errors import StoreError
from hermes.memory_server.db.database import Database
from hermes.memory_server.embedder import Embedder, Finer, Vector, split_pieces, to_blob
from hermes.memory_server.engine.finer import Batch, choose_space, chosen_space, next_batch, store_batch
from hermes.ranking.scoring import LONG
from hermes.ranking.traits import LENGTH_AT, traits_of

log = logging.getLogger(__name__)
OK = "ok"
MESSAGES = 16
"""In one batch: little is lost by a kill, and nobody else waits long for the write lock."""
BATCH_SECONDS = 60.0
ASK_SECONDS = 1.5
"""Who searches does not wait longer for the vector of a question."""
FIRST_WAIT, LONGEST_WAIT = 2.0, 60.0
"""Seconds after a failure until the next try, doubled each time."""
LOOK_EVERY = 5.0
"""Seconds between two looks for messages that another process wrote."""
REASON_CHARS = 200
SHORT = 1000
"""Characters from which on a text has surely LONG words, or none at all."""


class WrongVectorsError(Exception):
    """The embedder answered with something else than one vector of its space for each text."""


class Refinement:
    """A second embedder with what is known of its state."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._news = asyncio.Event()
        self._has_chosen = False
        self._wait = FIRST_WAIT
        self._not_before = 0.0
        self.is_busy = False
        """Is there something to embed, as far as is known?"""
        self._failure = OK
        self._other: str | None = None
        """The space that somebody else chose for the folder later."""

    @property
    def state(self) -> str:
        """`ok`, or what is wrong."""
        return self._failure if self._other is None else f"this folder is embedded with {self._other} now"

    @property
    def space(self) -> str | None:
        """What its vectors can be compared with; None while that is not known."""
        space = self._embedder.space
        return str(space) if space.dimension else None

    @property
    def name(self) -> str:
        """What it is called."""
        return self._embedder.space.embedder

    def wake(self) -> None:
        """Something was written."""
        self._news.set()

    async def ask(self, text: str) -> Finer | None:
        """The direction of a question; None while it cannot be had in time."""
        if time.monotonic() < self._not_before:
            return None
        try:
            [vector] = await self._embed([text], ASK_SECONDS)
        except Exception as error:  # noqa: BLE001 - the boundary of an embedder: told in /health, and searches go on
            self._failed(error)
            return None
        self._worked()
        return Finer(str(self._embedder.space), vector)

    async def run(self, database: Database) -> None:
        """Fill this space from now on, until cancelled. The database is not closed."""
        while True:
            self._news.clear()
            try:
                self.is_busy = await self._embed_some(database)
            except StoreError as error:
                self.is_busy = False
                log.warning("memory server: vectors wait: %s", error.line())
            except Exception as error:  # noqa: BLE001 - the boundary of an embedder: told in /health, and tried again
                self.is_busy = False
                self._failed(error)
            if not self.is_busy:
                await self._rest()

    async def _rest(self) -> None:
        left = self._not_before - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
            return
        try:
            async with asyncio.timeout(LOOK_EVERY):
                await self._news.wait()
        except TimeoutError:
            return

    async def _embed_some(self, database: Database) -> bool:
        """Embed a batch. False when there is nothing to do here."""
        if self.space is None:
            await self._embed(["ready"], BATCH_SECONDS)
        space = str(self._embedder.space)
        if not self._has_chosen:
            await database.write(lambda tx: choose_space(tx, space))
            self._has_chosen = True
        chosen, batch = await database.read(lambda tx: (chosen_space(tx), next_batch(tx, space, MESSAGES)))
        self._other = None if chosen == space else chosen
        if chosen != space:
            return False
        vectors = [] if batch is None else await self._embed_batch(batch)
        self._worked()
        if batch is None:
            return False
        await database.write(lambda tx: store_batch(tx, space, batch, vectors))
        return True

    async def _embed_batch(self, batch: Batch) -> list[tuple[int, int, bytes]]:
        """The vectors (message, piece, vector) of a batch. Of a message after a short one, half is what both say."""
        pieces = [(said, n, piece) for said in batch.messages for n, piece in enumerate(split_pieces(said.text))]
        after = [
            place for place, (said, _, piece) in enumerate(pieces) if piece == said.text and _is_short(said.before)
        ]
        together = [f"{pieces[place][0].before}\n{pieces[place][2]}" for place in after]
        vectors = await self._embed([*(piece for _, _, piece in pieces), *together], BATCH_SECONDS)
        for place, both in zip(after, vectors[len(pieces) :], strict=True):
            vectors[place] = (vectors[place] + both) / np.float32(2)
        return [(said.id, n, to_blob(v)) for (said, n, _), v in zip(pieces, vectors[: len(pieces)], strict=True)]

    async def _embed(self, texts: Sequence[str], seconds: float) -> list[Vector]:
        async with asyncio.timeout(seconds):
            vectors = await self._embedder.embed(texts)
        wanted = (self._embedder.space.dimension,)
        if len(vectors) != len(texts) or any(v.shape != wanted or not np.isfinite(v).all() for v in vectors):
            raise WrongVectorsError(f"{self.name} answered with something else than vectors of {wanted[0]} numbers")
        return vectors

    def _worked(self) -> None:
        self._failure, self._wait, self._not_before = OK, FIRST_WAIT, 0.0

    def _failed(self, error: Exception) -> None:
        said = "no answer in time" if isinstance(error, TimeoutError) else " ".join(str(error).split())
        failure = f"{type(error).__name__}: {said}"[:REASON_CHARS]
        if failure != self._failure:
            log.warning("memory server: searches go without %s: %s", self.name, failure)
        self._failure = failure
        self._not_before = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)


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


def _is_short(text: str | None) -> bool:
    return text is not None and len(text) < SHORT and traits_of(text) >> LENGTH_AT < LONG
