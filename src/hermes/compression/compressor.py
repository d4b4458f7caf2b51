"""The compressor of sessions. Over all processes one compression per session runs at a time, and the id stays the
same."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hermes.compression.cut import CompressionPolicy, Cut, backoff_seconds, choose_cut
from hermes.compression.summarise import (
    DigestLine,
    NoSummary,
    UsableSummary,
    add_missing,
    make_digest,
    read_telling,
    summarise,
)
from hermes.db import leases
from hermes.db.engine import Tx
from hermes.errors import HermesError, StaleError
from hermes.llm.model import Model
from hermes.llm.tokens import estimate_tokens, message_tokens, view_tokens
from hermes.logs import operation
from hermes.store.compressions import Failures, SeenSession, record_failure
from hermes.store.held_lease import HeldLease, kept, take, wanted_lease
from hermes.store.ids import compression_lease
from hermes.store.store import Store
from hermes.types import LiveView, Message

log = logging.getLogger("hermes.compression")

CompressionOutcome = Literal["done", "skipped", "busy", "failed"]
LastLook: TypeAlias = Callable[[Sequence[Message]], Awaitable[None]]
"""Called with the messages that are about to leave the window, with a time limit. A HermesError is logged."""

COMPRESSION_LEASE_SECONDS = 30.0
LAST_LOOK_SECONDS = 20.0
FACT_SCAN_DELAY_SECONDS = 0.05
FACT_SCAN_TIMEOUT_SECONDS = 0.03
"""Times in seconds. While the model writes, another thread scans the messages for facts. The scan starts after
FACT_SCAN_DELAY_SECONDS, and is waited for up to FACT_SCAN_TIMEOUT_SECONDS after the model's answer."""


class Request(Struct, frozen=True):
    """Why a session is compressed: `automatic` requests wait after failures; `must_fit` falls back to the digest."""

    focus: str = ""
    automatic: bool = False
    must_fit: bool = False
    budget: int | None = None


class CompressionResult(Struct, frozen=True):
    """Result of a compression. `session_id` is the requested session in every case.

    `before` and `after` are tokens of the conversation; `failures` counts consecutive ones, including this one.
    """

    session_id: str
    messages: tuple[Message, ...]
    snapshot_id: str | None
    before: int
    after: int
    outcome: CompressionOutcome
    reason: str = ""
    failures: int = 0


class _Seen(SeenSession, frozen=True):
    """The state that the compressor decides from, with its size in tokens."""

    tokens: int


class _UnderWay(Struct):
    """A running compression; `result` is its result if it ended now, even by cancellation."""

    session_id: str
    op: str
    request: Request
    seen: _Seen
    result: CompressionResult

    def end(self, outcome: CompressionOutcome, reason: str, failures: int = 0) -> None:
        """Set the result of a compression that changes nothing."""
        self.result = _unchanged(self.seen, outcome, reason, failures)


class Compressor(Struct, frozen=True):
    """Compresses sessions of one store with one model; without a model it makes digests."""

    store: Store
    model: Model | None
    policy: CompressionPolicy
    owner: str
    deadline: float = 180.0
    lease: float = COMPRESSION_LEASE_SECONDS
    last_look: LastLook | None = None
    last_look_deadline: float = LAST_LOOK_SECONDS

    async def compress(self, session_id: str, request: Request = Request()) -> CompressionResult:  # noqa: B008 - frozen
        """Compress `session_id`. Logs exactly one start line and one end line."""
        with operation(session_id):
            seen = await self._look(session_id)
            so_far = _unchanged(seen, "failed", "it was interrupted")
            work = _UnderWay(session_id, secrets.token_hex(4), request, seen, so_far)
            name, about = compression_lease(session_id), f"the compression of session {session_id}"
            wanted = wanted_lease(self.store, about, name, self.owner, self.lease)
            try:
                held = await take(self.store, wanted)
            except HermesError as error:  # no compression without the lease
                with self._reported(work):
                    work.end("failed", error.message)
                return work.result
            if held is None:
                with self._reported(work):
                    work.end("busy", "another compression is running")
            else:
                # The lines are written while the lease is held, so that those of two compressions never cross.
                async with kept(self.store, wanted, held):
                    with self._reported(work):
                        await self._compress_alone(work, held)
            return work.result

    @contextmanager
    def _reported(self, work: _UnderWay) -> Iterator[None]:
        """Log the start and end lines around the block, and turn its HermesErrors into its result."""
        count, tokens = len(work.seen.view.messages), f"{work.seen.tokens:,}"
        log.info(
            "context compression started: session=%s op=%s messages=%d tokens=~%s model=%s",
            work.session_id, work.op, count, tokens, self.model.name if self.model else "digest",
        )  # fmt: skip
        try:
            yield
        except StaleError as error:
            work.end("failed", f"refused: {error.message}")
        except HermesError as error:
            work.end("failed", error.message)
        finally:
            result = work.result
            log.info(
                "context compression %s: session=%s op=%s messages=%d->%d tokens=~%s%s",
                result.outcome, work.session_id, work.op, count, len(result.messages), f"{result.after:,}",
                f" reason={result.reason}" if result.reason else "",
            )  # fmt: skip

    async def would_try(self, session_id: str, request: Request) -> bool:
        """Return True if `compress` would have something to do, judged without starting it. Nothing is logged."""
        return isinstance(self._plan(await self._look(session_id), request), Cut)

    async def is_busy(self, session_id: str) -> bool:
        now = self.store.clock.now()
        held = await self.store.read(lambda tx: leases.holder(tx, compression_lease(session_id), now=now))
        return held is not None

    async def _compress_alone(self, work: _UnderWay, held: HeldLease) -> None:
        work.seen = await self._look(work.session_id)
        plan = self._plan(work.seen, work.request)
        if isinstance(plan, Cut):
            await self._condense(work, plan, held)
        else:
            work.end("skipped", plan)

    def _plan(self, seen: _Seen, request: Request) -> Cut | str:
        """Return the cut, or the reason not to compress."""
        patient = request.automatic and not request.must_fit
        if patient and seen.failures.not_before > self.store.clock.now():
            return f"waiting after a failure: {seen.failures.reason}"
        budget = request.budget or self.policy.staying_budget
        cut = choose_cut(
            seen.view,
            keep_turns=self.policy.keep_turns,
            budget=budget,
            ceiling=request.budget or self.policy.ceiling,
        )
        if cut is None:
            return "there is nothing to leave out"
        if patient and cut.tokens < self.policy.least_gain:
            return "it would remove too little"
        return cut

    async def _condense(self, work: _UnderWay, cut: Cut, held: HeldLease) -> None:
        made = await self._summarise_while_others_look(work, cut)
        if isinstance(made, NoSummary):
            if not work.request.must_fit:
                failures = await self._remember_failure(work, held, made.reason)
                work.end("failed", made.reason, failures)
                return
            log.warning("the summary failed (%s); a digest is used", made.reason)
            made = replace(
                await self._digest(work, cut), remark=f"the summary failed ({made.reason}), a digest was used"
            )
        if estimate_tokens(made.text) >= cut.tokens + estimate_tokens(work.seen.view.summary or ""):
            work.end("skipped", "the summary would not be shorter")
            return
        # Once submitted, the swap may be committed even if we are cancelled: the log must show its outcome.
        swapping = asyncio.ensure_future(self.store.write(lambda tx: self._swap(tx, work, cut, made, held)))
        try:
            work.result = await asyncio.shield(swapping)
        except asyncio.CancelledError:
            with suppress(HermesError):  # refused: nothing changed, and the end line says that it was interrupted
                work.result = await swapping
            raise

    def _swap(self, tx: Tx, work: _UnderWay, cut: Cut, made: UsableSummary, held: HeldLease) -> CompressionResult:
        """Make the whole change in one transaction. Raises StaleError if the lease or the epoch was lost."""
        held.check(tx)
        now = self.store.clock.now()
        snapshot, view = self.store.compressions.swap(tx, work.seen, cut.horizon_id, cut.kept_ids, made.text, now=now)
        remarks = [remark for remark in (made.remark, _unread(cut, view)) if remark]
        before, after = work.seen.tokens, view_tokens(view)
        return CompressionResult(work.session_id, view.messages, snapshot, before, after, "done", "; ".join(remarks))

    async def _summarise_while_others_look(self, work: _UnderWay, cut: Cut) -> UsableSummary | NoSummary:
        looking = asyncio.ensure_future(self._give_last_look(cut.leaving))
        try:
            made = await self._summarise(work, cut)
            await looking
        finally:
            if not looking.done():
                looking.cancel()
                await asyncio.wait({looking})
        return made

    async def _summarise(self, work: _UnderWay, cut: Cut) -> UsableSummary | NoSummary:
        if self.model is None:
            return await self._digest(work, cut)
        previous, budget = work.seen.view.summary, self._summary_budget(work.request)
        focus = work.request.focus
        writing = asyncio.ensure_future(
            summarise(self.model, previous, cut.leaving, budget=budget, focus=focus, deadline=self.deadline)
        )
        try:
            if (await asyncio.wait({writing}, timeout=FACT_SCAN_DELAY_SECONDS))[0]:
                return writing.result()
            # Read while the model writes: what a weak model leaves out is quoted.
            reading = asyncio.ensure_future(asyncio.to_thread(read_telling, previous, cut.leaving))
            made = await writing
            await asyncio.wait({reading}, timeout=FACT_SCAN_TIMEOUT_SECONDS)
            return _complete(made, reading.result(), cut, budget // 3) if reading.done() else made
        finally:
            if not writing.done():
                writing.cancel()
                await asyncio.wait({writing})

    async def _digest(self, work: _UnderWay, cut: Cut) -> UsableSummary:
        budget = self._summary_budget(work.request)
        # A long conversation takes a while to scan; other sessions go on meanwhile.
        return UsableSummary(await asyncio.to_thread(make_digest, work.seen.view.summary, cut.leaving, budget))

    def _summary_budget(self, request: Request) -> int:
        """Return the summary's size in tokens. A request with its own budget gets a proportional summary."""
        whole = self.policy.summary_budget
        return whole if request.budget is None else min(whole, max(128, request.budget // 2))

    async def _give_last_look(self, leaving: Sequence[Message]) -> None:
        """Show the messages that leave the window, except incognito ones, to notes and provider."""
        if self.last_look is None:
            return
        try:
            known = await self.store.read(lambda tx: self.store.incognito.remembered(tx, leaving))
            if known:
                async with asyncio.timeout(self.last_look_deadline):
                    await self.last_look(known)
        except TimeoutError:
            log.warning("the last look before compression took longer than %g s", self.last_look_deadline)
        except HermesError as error:
            log.warning("the last look before compression failed: %s", error.line())

    async def _remember_failure(self, work: _UnderWay, held: HeldLease, reason: str) -> int:
        count = work.seen.failures.count + 1
        again = self.store.clock.now() + backoff_seconds(count)

        def remember(tx: Tx) -> None:
            held.check(tx)  # a new holder has newer failures
            record_failure(tx, work.session_id, Failures(count, again, reason))

        await self.store.write(remember)
        return count

    async def _look(self, session_id: str) -> _Seen:
        def look(tx: Tx) -> _Seen:
            seen = self.store.compressions.look(tx, session_id)
            return _Seen(seen.view, seen.last_id, seen.failures, view_tokens(seen.view))

        return await self.store.read(look)


def _unread(cut: Cut, after: LiveView) -> str:
    """Return a notice if even the person's newest message does not fit the window, else ""."""
    left = [message for message in cut.leaving if message.role == "user"]
    staying = [message.id for message in after.messages if message.role == "user"]
    if not left or any(id_ > left[-1].id for id_ in staying):
        return ""
    return f"what you said last (~{message_tokens(left[-1]):,} tokens) is too long for the model, which sees a summary"


def _complete(
    made: UsableSummary | NoSummary, telling: Sequence[DigestLine], cut: Cut, room: int
) -> UsableSummary | NoSummary:
    """Return the summary with facts that it lacks, if it is still shorter than what it replaces."""
    if isinstance(made, NoSummary):
        return made
    text = add_missing(made.text, telling, room)
    return replace(made, text=text) if estimate_tokens(text) < cut.tokens else made


def _unchanged(seen: _Seen, outcome: CompressionOutcome, reason: str, failures: int = 0) -> CompressionResult:
    session_id = seen.view.session_id
    return CompressionResult(session_id, seen.view.messages, None, seen.tokens, seen.tokens, outcome, reason, failures)
