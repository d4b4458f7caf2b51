"""Every request to a model as a row, written before it is sent. Caps are counted from these rows, so they outlast a
restart, and a killed process leaves the requests counted that were on their way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, case, delete, func, select, update

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import PreparedInsert, PreparedStatement
from hermes.memory_server.db.tables import model_calls

DAY_MICROSECONDS = 24 * 3600 * 1_000_000
KEEP_DAYS = 90
FORGOTTEN_CALLS = 1000
"""Rows that are dropped in one transaction."""
SENT = "sent"
"""The outcome of a request that has no answer yet, or whose process was killed. Its tokens are those reserved."""
OK = "ok"

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
    """What a request took: reserved before it is sent, measured afterwards."""

    prompt_tokens: int
    completion_tokens: int
    milliseconds: int = 0


def day_of(at: int) -> int:
    """Days since 1970, UTC."""
    return at // DAY_MICROSECONDS


def seconds_to_next_day(at: int) -> float:
    return (DAY_MICROSECONDS - at % DAY_MICROSECONDS) / 1e6


def spent_today(tx: Tx, workspace_id: int, at: int) -> tuple[int, int]:
    """Return the calls and tokens of a workspace on the day of `at`."""
    [row] = SPENT.rows(tx, workspace=workspace_id, today=day_of(at))
    return row.calls, row.tokens


def add_call(tx: Tx, workspace_id: int, purpose: str, model: str, reserved: CallCost, at: int) -> int:
    """Count a request that is about to be sent. Returns its id."""
    return INSERT.add(
        tx, workspace_id=workspace_id, day=day_of(at), purpose=purpose, model=model[:200],
        prompt_tokens=reserved.prompt_tokens, completion_tokens=reserved.completion_tokens, milliseconds=0,
        outcome=SENT, created_at=at,
    )  # fmt: skip


def finish_call(tx: Tx, call_id: int, cost: CallCost, outcome: str) -> None:
    """Replace what was reserved by what it took."""
    FINISH.run(
        tx, call_id=call_id, prompt=cost.prompt_tokens, completion=cost.completion_tokens, took=cost.milliseconds,
        result=outcome,
    )  # fmt: skip


def count_by_purpose(tx: Tx, day: int) -> list[Any]:
    """Return the calls of a day by purpose: calls, failures, prompt and completion tokens, milliseconds."""
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
    """Drop a part of the rows of long ago. Is there more to drop?"""
    old = select(model_calls.c.id).where(model_calls.c.day < day_of(at) - KEEP_DAYS).limit(FORGOTTEN_CALLS)
    ids = [row.id for row in tx.execute(old)]
    tx.execute(delete(model_calls).where(model_calls.c.id.in_(ids)))
    return len(ids) == FORGOTTEN_CALLS
