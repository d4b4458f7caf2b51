"""Compresses a session: one at a time over all processes, and the id it was given is the id it gives back."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hermes.compression.cut import Cut, choose_cut, message_tokens
from hermes.compression.digest import make_digest
from hermes.compression.policy import CompressionPolicy, backoff_seconds
from hermes.compression.summarise import NoSummary, Summary, summarise
from hermes.db import leases
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.db.owners import is_gone
from hermes.errors import StaleError, StoreError
from hermes.llm.model import Model
from hermes.llm.tokens import estimate_tokens
from hermes.logs import operation
from hermes.store.compression_failures import Failures, clear_failures, read_failures, record_failure
from hermes.store.ids import snapshot_id
from hermes.store.store import Store
from hermes.types import Compression, LiveView, Message

log = logging.getLogger("hermes.compression")

Outcome = Literal["done", "skipped", "busy", "failed"]
LastLook: TypeAlias = Callable[[Sequence[Message]], Awaitable[None]]
"""Called with what is about to leave the window. Must not raise; is given `LAST_LOOK` seconds."""

LEASE = 30.0
LAST_LOOK = 20.0


@dataclass(frozen=True, slots=True)
class Request:
    """Why a session is compressed: `automatic` waits after failures; `must_fit` falls back to the digest."""

    focus: str = ""
    automatic: bool = False
    must_fit: bool = False
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class CompressionResult:
    """What became of it. `session_id` is the session that was to be compressed, on every path."""

    session_id: str
    messages: tuple[Message, ...]
    snapshot_id: str | None
    before: int
    after: int
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the compressor decided from."""

    view: LiveView
    last_id: int
    failures: Failures

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.view.summary or "") + sum(map(message_tokens, self.view.messages))


class Compressor:
    """Compresses sessions of one store with one model."""

    def __init__(
        self,
        store: Store,
        model: Model | None,
        policy: CompressionPolicy,
        *,
        owner: str,
        deadline: float = 180.0,
        lease: float = LEASE,
        last_look: LastLook | None = None,
    ) -> None:
        """Without a model only the digest can be made."""
        self._store = store
        self._model = model
        self._policy = policy
        self._owner = owner
        self._deadline = deadline
        self._ttl = lease
        self._last_look = last_look

    @property
    def policy(self) -> CompressionPolicy:
        return self._policy

    async def compress(self, session_id: str, request: Request = Request()) -> CompressionResult:  # noqa: B008 - frozen
        """Compress `session_id` and no other. One start line and one end line in the log, whatever happens."""
        op = secrets.token_hex(4)
        with operation(session_id):
            seen = await self._look(session_id)
            model = self._model.name if self._model else "digest"
            count = len(seen.view.messages)
            log.info(
                "context compression started: session=%s op=%s messages=%d tokens=~%s model=%s",
                session_id, op, count, f"{seen.tokens:,}", model,
            )  # fmt: skip
            result = _result(seen, "failed", "it was cancelled")
            try:
                result = await self._compress_alone(session_id, request, seen)
            except StaleError as error:
                result = _result(seen, "failed", f"refused: {error.message}")
            except StoreError as error:
                result = _result(seen, "failed", error.message)
                raise
            finally:
                log.info(
                    "context compression %s: session=%s op=%s messages=%d->%d tokens=~%s%s",
                    result.outcome, session_id, op, count, len(result.messages), f"{result.after:,}",
                    f" reason={result.reason}" if result.reason else "",
                )  # fmt: skip
            return result

    async def _compress_alone(self, session_id: str, request: Request, seen: _Seen) -> CompressionResult:
        async with self._alone(session_id) as lease:
            if lease is None:
                return _result(seen, "busy", "another compression is under way")
            seen = await self._look(session_id)
            if request.automatic and seen.failures.not_before > self._store.clock.now() and not request.must_fit:
                return _result(seen, "skipped", f"waiting after a failure: {seen.failures.reason}")
            cut = choose_cut(
                seen.view, keep_turns=self._policy.keep_turns, budget=request.budget or self._policy.staying_budget
            )
            if cut is None:
                return _result(seen, "skipped", "there is nothing to leave out")
            return await self._condense(session_id, request, seen, cut, lease)

    async def _condense(
        self, session_id: str, request: Request, seen: _Seen, cut: Cut, lease: list[Lease]
    ) -> CompressionResult:
        looking = asyncio.ensure_future(self._give_last_look(cut.leaving))
        try:
            made = await self._summarise(request, seen, cut)
            await looking
        finally:
            looking.cancel()
        if isinstance(made, NoSummary):
            if not request.must_fit:
                await self._remember_failure(session_id, seen.failures, made.reason)
                return _result(seen, "failed", made.reason)
            log.warning("the summary failed (%s); a digest is used", made.reason)
            made = Summary(make_digest(seen.view.summary, cut.leaving, self._policy.summary_budget))
        now = self._store.clock.now()
        row = Compression(
            session_id=session_id,
            epoch=seen.view.epoch + 1,
            horizon_message_id=cut.horizon_id,
            upto_message_id=seen.last_id,
            kept_ids=cut.kept_ids,
            summary=made.text,
            snapshot_id=snapshot_id(session_id, now),
            created_at=now,
        )
        view = await self._store.write(lambda tx: self._swap(tx, row, lease[0]))
        after = _Seen(view, seen.last_id, Failures())
        return CompressionResult(session_id, view.messages, row.snapshot_id, seen.tokens, after.tokens, "done")

    def _swap(self, tx: Tx, row: Compression, lease: Lease) -> LiveView:
        """The whole change, in one transaction: refused when the lease or the epoch was lost."""
        leases.check(tx, lease)
        self._store.compressions.commit(tx, row)
        clear_failures(tx, row.session_id)
        return self._store.compressions.view(tx, row.session_id)

    async def _summarise(self, request: Request, seen: _Seen, cut: Cut) -> Summary | NoSummary:
        if self._model is None:
            return Summary(make_digest(seen.view.summary, cut.leaving, self._policy.summary_budget))
        return await summarise(
            self._model,
            seen.view.summary,
            cut.leaving,
            budget=self._policy.summary_budget,
            focus=request.focus,
            deadline=self._deadline,
        )

    async def _give_last_look(self, leaving: Sequence[Message]) -> None:
        """Notes and provider see what leaves, but for what was said incognito."""
        if self._last_look is None:
            return
        session_id = leaving[0].session_id
        known = await self._store.read(lambda tx: self._store.incognito.remembered(tx, session_id, leaving))
        if not known:
            return
        try:
            async with asyncio.timeout(LAST_LOOK):
                await self._last_look(known)
        except TimeoutError:
            log.warning("the last look before compression took longer than %g s", LAST_LOOK)

    async def _remember_failure(self, session_id: str, before: Failures, reason: str) -> None:
        count = before.count + 1
        again = self._store.clock.now() + backoff_seconds(count)
        await self._store.write(lambda tx: record_failure(tx, session_id, Failures(count, again, reason)))

    async def _look(self, session_id: str) -> _Seen:
        def look(tx: Tx) -> _Seen:
            view = self._store.compressions.view(tx, session_id)
            return _Seen(view, self._store.messages.last_id(tx, session_id), read_failures(tx, session_id))

        return await self._store.read(look)

    @asynccontextmanager
    async def _alone(self, session_id: str) -> AsyncIterator[list[Lease] | None]:
        """The session's compression lease, renewed in place while it is needed; None when someone else has it."""

        def take(tx: Tx) -> Lease | None:
            name, now = f"compression:{session_id}", self._store.clock.now()
            held = leases.holder(tx, name, now=now)
            if held is not None and is_gone(held.owner):
                leases.evict(tx, held)
            return leases.acquire(tx, name, self._owner, ttl=self._ttl, now=now)

        lease = await self._store.write(take)
        if lease is None:
            yield None
            return
        holding = [lease]
        heart = asyncio.create_task(self._keep(holding))
        try:
            yield holding
        finally:
            heart.cancel()
            with suppress(asyncio.CancelledError):
                await heart
            with suppress(StaleError):  # lost already: there is nothing to let go
                await self._store.write(lambda tx: leases.release(tx, holding[0]))

    async def _keep(self, holding: list[Lease]) -> None:
        def renew(tx: Tx) -> Lease:
            return leases.renew(tx, holding[0], ttl=self._ttl, now=self._store.clock.now())

        while True:
            await self._store.clock.sleep(self._ttl / 3)
            try:
                holding[0] = await self._store.write(renew)
            except StaleError:
                return  # the swap finds out and is refused


def _result(seen: _Seen, outcome: Outcome, reason: str) -> CompressionResult:
    """Nothing changed."""
    session_id = seen.view.session_id
    return CompressionResult(session_id, seen.view.messages, None, seen.tokens, seen.tokens, outcome, reason)
