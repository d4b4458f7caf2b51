"""Errors of PostgreSQL, classified by remedy: repeat the transaction, reconnect, or report the error."""

from __future__ import annotations

from typing import Literal

import psycopg
from sqlalchemy.exc import DBAPIError

from hermes.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreMovedError,
    StoreReadOnlyError,
    StoreStoppedError,
    StoreUnreachableError,
)

Remedy = Literal["none", "again", "reconnect"]
DATABASE_ERRORS = (psycopg.Error, DBAPIError)
DUPLICATE, REFERENCE, LOCKED = "23505", "23503", "55P03"
FROZEN_STATE = "HM001"
"""SQLSTATE that the triggers of `freezing` raise."""
RETRYABLE_STATES = ("40001", "40P01", DUPLICATE, REFERENCE)
"""Serialization failure, deadlock, and a duplicate key or a reference that a concurrent transaction added."""
RECONNECT_STATES = ("08", "57P01", "57P02", "57P03", "57P05", "53300", "25006")
"""Lost connection, shutdown, startup, too many connections; and a server that became read-only, as after a failover."""
PERMANENT_LOGIN_FAILURES = (
    "does not exist",
    "authentication failed",
    "no password supplied",
    "pg_hba.conf",
    "is not permitted",
)
"""Messages of refused logins that retrying does not help; such errors have no SQLSTATE."""
FAULTS: dict[str, tuple[type[StoreError], str]] = {
    "53100": (StoreFullError, "the disk of {where} is full"),
    "57014": (StoreStoppedError, "a statement on {where} was stopped: it took too long"),
    LOCKED: (StoreBusyError, "{where} is locked by another transaction"),
    "40": (StoreBusyError, "transactions on {where} kept conflicting with each other"),
    "25006": (StoreReadOnlyError, "{where} is read-only"),
    "42501": (StoreReadOnlyError, "{where} does not permit this: {detail}"),
    FROZEN_STATE: (StoreMovedError, "{where}: {detail}"),
    "XX001": (StoreDamagedError, "{where} is damaged ({detail})"),
    "XX002": (StoreDamagedError, "{where} is damaged ({detail})"),
}
"""Errors by SQLSTATE, or by its first two characters."""


def is_key_conflict(error: BaseException) -> bool:
    """Return True if a row with the same key, or one that refers to a row, existed or was added concurrently."""
    return _state_of(error) in (DUPLICATE, REFERENCE)


def is_locked(error: BaseException) -> bool:
    """Return True if others held a lock for longer than the lock timeout."""
    return _state_of(error) == LOCKED


def is_answer(error: BaseException) -> bool:
    """Return True if the server itself reported this, as it does while it starts: there is one at this address."""
    return _state_of(error) is not None or "FATAL:" in str(_cause_of(error))


def find_remedy(error: BaseException) -> Remedy:
    """Return the remedy for an error: none, the same transaction again, or a new connection first."""
    cause, state = _cause_of(error), _state_of(error)
    if state is None:
        is_lasting = "FATAL:" in str(cause) and any(text in str(cause) for text in PERMANENT_LOGIN_FAILURES)
        return "reconnect" if isinstance(cause, psycopg.OperationalError) and not is_lasting else "none"
    if state in RETRYABLE_STATES:
        return "again"
    return "reconnect" if state.startswith(RECONNECT_STATES) else "none"


def translate(error: BaseException, where: str) -> StoreError:
    """Convert an error of the driver to the error that users see."""
    cause = _cause_of(error)
    state = _state_of(error) or ""
    said = cause.diag.message_primary if isinstance(cause, psycopg.Error) else None
    detail = " ".join((said or str(cause)).split())[:300]
    found = FAULTS.get(state) or FAULTS.get(state[:2])
    if found is None and find_remedy(error) == "reconnect":
        found = StoreUnreachableError, "{where} cannot be reached: {detail}"
    kind, text = found or (StoreError, "{where}: {detail}")
    return kind(text.format(where=where, detail=detail))


def _cause_of(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _state_of(error: BaseException) -> str | None:
    cause = _cause_of(error)
    return cause.sqlstate if isinstance(cause, psycopg.Error) else None
