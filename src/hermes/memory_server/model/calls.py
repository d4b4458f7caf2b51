"""A log of model requests: one row for each, committed before the request is sent. Daily caps are computed from these
rows, so they survive a restart, and requests that were under way when a process was killed stay counted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, case, delete, func, select, update

from hermes.clock import Clock
from hermes.errors import StoreError
from hermes.llm.events import Usage
from hermes.memory_server import times
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.statements import PreparedInsert, PreparedStatement
from hermes.memory_server.db.tables import model_calls
from hermes.memory_server.model.answer import ModelFailure, Purpose
from hermes.memory_server.model.settings import ModelSettings

log = logging.getLogger(__name__)
DAY_MICROSECONDS = 24 * 3600 * 1_000_000
KEEP_DAYS = 90
MAX_CALLS_PER_DELETE = 1000
"""Rows that one transaction deletes."""
SENT = "sent"
"""Outcome of a request without a response yet, or whose process was killed. Its tokens are the reserved ones."""
OK = "ok"
UNFINISHED = "unfinished"
"""Outcome of a request whose answer was not read to its end."""
SELF_TEST_WORKSPACE_ID = 0
"""Workspace id of requests that belong to no workspace; they have no cap."""

INSERT = PreparedInsert(
    model_calls, "workspace_id", "day", "purpose", "model", "prompt_tokens", "completion_tokens", "milliseconds",
    "outcome", "created_at",
)  # fmt: skip
FINISH = PreparedStatement(
    update(model_calls)
    .where(model_calls.c.id == bindparam("call_id"))
    .values(
        prompt_tokens=bindparam("prompt"),
        completion_tokens=bindparam("completion"),
        milliseconds=bindparam("took"),
        outcome=bindparam("result"),
    )
)
TOKENS = func.coalesce(func.sum(model_calls.c.prompt_tokens + model_calls.c.completion_tokens), 0)
SPENT = PreparedStatement(
    select(func.count().label("calls"), TOKENS.label("tokens")).where(
        model_calls.c.workspace_id == bindparam("workspace"), model_calls.c.day == bindparam("today")
    )
)


@dataclass(frozen=True, slots=True)
class CallCost:
    """The cost of a request: reserved before it is sent, measured afterwards."""

    prompt_tokens: int
    completion_tokens: int
    milliseconds: int = 0


class CallCounter:
    """Count the requests of this process, and refuse those beyond a cap."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.metrics: Counter[tuple[str, str, str]] = Counter()
        """Counters since the start of this process, by counter name, purpose and outcome."""

    def new_call(self, workspace_id: int, settings: ModelSettings, purpose: Purpose, model: str) -> CountedCall:
        """Return a call that is not counted yet."""

        def reserve(tx: Tx, cost: CallCost) -> int | ModelFailure:
            at = times.now(self._clock)
            spent_calls, spent_tokens = spent_today(tx, workspace_id, at)
            tokens = spent_tokens + cost.prompt_tokens + cost.completion_tokens
            over = f"{settings.cap_calls:,} calls" if spent_calls >= settings.cap_calls else ""
            over = over or (f"{settings.cap_tokens:,} tokens" if tokens > settings.cap_tokens else "")
            if over and workspace_id != SELF_TEST_WORKSPACE_ID:
                reason = f"the workspace's cap of {over} to a model is reached for today"
                return ModelFailure("cap", reason, seconds_to_next_day(at))
            return add_call(tx, workspace_id, purpose, model, cost, at)

        def report(cost: CallCost, outcome: str) -> None:
            self.metrics["calls", purpose, outcome] += 1
            self.metrics["tokens", purpose, outcome] += cost.prompt_tokens + cost.completion_tokens
            self.metrics["milliseconds", purpose, outcome] += cost.milliseconds

        return CountedCall(self._database, reserve, report)


class CountedCall:
    """One request, or several with the same text if the endpoint refuses its form; each is counted."""

    def __init__(
        self,
        database: Database,
        reserve: Callable[[Tx, CallCost], int | ModelFailure],
        report: Callable[[CallCost, str], None],
    ) -> None:
        self._database = database
        self._reserve = reserve
        self._report = report
        self._reserved = CallCost(0, 0)
        self._began = 0.0
        self._id: int | None = None
        self.refused: ModelFailure | None = None
        """The reason why the request, or its repetition, was not sent."""

    async def open(self, prompt_tokens: int, answer_tokens: int) -> bool:
        """Count the request before it is sent. Return False if it may not be sent."""
        self._reserved = CallCost(prompt_tokens, answer_tokens)
        self._began = time.monotonic()
        try:
            found = await self._database.write(lambda tx: self._reserve(tx, self._reserved))
        except StoreError as error:  # a request that cannot be counted is not sent
            found = ModelFailure("down", error.line())
        self._id, self.refused = (None, found) if isinstance(found, ModelFailure) else (found, None)
        return self.refused is None

    async def repeat(self) -> bool:
        """Count a refused request again. Return False if it may not be sent again."""
        await self.close("bad_request", None, 0)
        return await self.open(self._reserved.prompt_tokens, self._reserved.completion_tokens)

    async def close(self, outcome: str, usage: Usage | None, said_tokens: int) -> None:
        """Replace the reserved cost by the measured one, even if the caller is cancelled meanwhile."""
        if self._id is None:
            return
        took = round((time.monotonic() - self._began) * 1000)
        prompt, said = (0, 0) if usage is None else (usage.prompt_tokens, usage.completion_tokens)
        cost = CallCost(prompt or self._reserved.prompt_tokens, said or said_tokens, took)
        call_id, self._id = self._id, None
        self._report(cost, outcome)
        try:
            await asyncio.shield(self._database.write(lambda tx: finish_call(tx, call_id, cost, outcome)))
        except StoreError as error:  # the reserved tokens stay counted
            log.warning("memory server: the tokens of a request were not recorded: %s", error.line())


def day_of(at: int) -> int:
    """Return the number of days since 1970 UTC."""
    return at // DAY_MICROSECONDS


def seconds_to_next_day(at: int) -> float:
    return (DAY_MICROSECONDS - at % DAY_MICROSECONDS) / 1e6


def spent_today(tx: Tx, workspace_id: int, at: int) -> tuple[int, int]:
    """Return the calls and tokens of a workspace on the day of `at`."""
    [row] = SPENT.rows(tx, workspace=workspace_id, today=day_of(at))
    return row.calls, row.tokens


def add_call(tx: Tx, workspace_id: int, purpose: str, model: str, reserved: CallCost, at: int) -> int:
    """Insert a row for a request that is about to be sent, and return its id."""
    return INSERT.add(
        tx, workspace_id=workspace_id, day=day_of(at), purpose=purpose, model=model[:200],
        prompt_tokens=reserved.prompt_tokens, completion_tokens=reserved.completion_tokens, milliseconds=0,
        outcome=SENT, created_at=at,
    )  # fmt: skip


def finish_call(tx: Tx, call_id: int, cost: CallCost, outcome: str) -> None:
    """Replace the reserved cost by the measured one."""
    FINISH.run(
        tx, call_id=call_id, prompt=cost.prompt_tokens, completion=cost.completion_tokens, took=cost.milliseconds,
        result=outcome,
    )  # fmt: skip


def count_by_purpose(tx: Tx, day: int) -> list[Any]:
    """Return calls, failures, prompt and completion tokens, and milliseconds of a day, by purpose."""
    columns = (
        model_calls.c.purpose,
        func.count().label("calls"),
        func.sum(case((model_calls.c.outcome.in_((OK, SENT)), 0), else_=1)).label("failures"),
        func.sum(model_calls.c.prompt_tokens).label("prompt_tokens"),
        func.sum(model_calls.c.completion_tokens).label("completion_tokens"),
        func.sum(model_calls.c.milliseconds).label("milliseconds"),
    )
    query = select(*columns).where(model_calls.c.day == day).group_by(model_calls.c.purpose)
    return list(tx.execute(query.order_by(model_calls.c.purpose)).all())


def forget_calls(tx: Tx, at: int) -> bool:
    """Delete one batch of rows older than KEEP_DAYS. Return True if more remain."""
    old = select(model_calls.c.id).where(model_calls.c.day < day_of(at) - KEEP_DAYS).limit(MAX_CALLS_PER_DELETE)
    ids = [row.id for row in tx.execute(old)]
    tx.execute(delete(model_calls).where(model_calls.c.id.in_(ids)))
    return len(ids) == MAX_CALLS_PER_DELETE
