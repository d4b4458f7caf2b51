"""The mapping from errors to HTTP responses, and the form of every error body."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from hermes.errors import (
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreGoneError,
    StoreMovedError,
    StoreStoppedError,
    StoreUnreachableError,
)
from hermes.memory_server import faults, limits
from hermes.memory_server.api.bodies import JsonResponse

log = logging.getLogger(__name__)
Handler = Callable[[Request, Exception], Awaitable[JsonResponse]]
STATUS: dict[type[faults.Fault], int] = {
    faults.Missing: 404,
    faults.Conflict: 409,
    faults.Invalid: 422,
    faults.Refused: 400,
    faults.Unauthorized: 401,
    faults.InvalidToken: 401,
    faults.Stranger: 403,
    faults.SwitchedOff: 405,
    faults.TooLarge: 413,
    faults.UnknownFileType: 415,
    faults.TooMany: 429,
}
UNEXPECTED = "An unexpected error occurred"
NO_ROOM = "The disk is full; nothing of this request was stored"
REPLACED = "The memory folder was removed or replaced; this server shuts down"
MOVED = "This memory was moved to another database and is read-only here; keep the request and send it again later"
TOO_SLOW = f"This query or filter takes longer than {limits.READ_SECONDS:g} seconds; ask for less"
STORE: dict[type[StoreError], tuple[int, str]] = {
    StoreBusyError: (503, UNEXPECTED),
    StoreFullError: (507, NO_ROOM),
    StoreGoneError: (503, REPLACED),
    StoreMovedError: (503, MOVED),
    StoreUnreachableError: (503, UNEXPECTED),
    StoreStoppedError: (422, TOO_SLOW),
}
"""Responses to errors of the database; all others are a 500."""


def install(app: FastAPI) -> None:
    """Return every error as `{"detail": …}`."""
    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)
    app.add_exception_handler(Exception, _unexpected)


async def _fault(_request: Request, error: Exception) -> JsonResponse:
    assert isinstance(error, faults.Fault)
    challenge = 'Bearer error="invalid_token"' if isinstance(error, faults.InvalidToken) else "Bearer"
    headers = {"WWW-Authenticate": challenge} if isinstance(error, faults.Unauthorized) else None
    return JsonResponse({"detail": _encodable(error.reason)}, STATUS[type(error)], headers=headers)


async def _validation(_request: Request, error: Exception) -> JsonResponse:
    assert isinstance(error, RequestValidationError)
    return JsonResponse({"detail": [_problem(dict(problem)) for problem in error.errors()[: limits.MAX_PROBLEMS]]}, 422)


async def _http(_request: Request, error: Exception) -> JsonResponse:
    assert isinstance(error, HTTPException)
    return JsonResponse({"detail": error.detail}, error.status_code, headers=dict(error.headers or {}))


async def _store(_request: Request, error: Exception) -> JsonResponse:
    assert isinstance(error, StoreError)
    status, detail = STORE.get(type(error), (500, UNEXPECTED))
    if status >= 500:
        log.log(logging.INFO if isinstance(error, StoreMovedError) else logging.ERROR, "memory server: %s", error)
    return JsonResponse({"detail": detail}, status, headers={"Retry-After": "1"} if status == 503 else None)


async def _unexpected(_request: Request, error: Exception) -> JsonResponse:
    log.error("memory server: unexpected error", exc_info=error)
    return JsonResponse({"detail": UNEXPECTED}, 500)


HANDLERS: dict[type[Exception], Handler] = {
    faults.Fault: _fault,
    RequestValidationError: _validation,
    HTTPException: _http,
    StoreError: _store,
}


def _problem(problem: dict[str, Any]) -> dict[str, Any]:
    """Return one problem of a body. Inputs that are too long or not valid JSON are left out."""
    shown: dict[str, Any] = {key: problem[key] for key in ("type", "loc", "msg") if key in problem}
    shown["msg"] = _encodable(str(shown.get("msg", "")))
    shown["loc"] = [part if isinstance(part, int) else _encodable(str(part)) for part in shown.get("loc", ())]
    if "ctx" in problem:
        shown["ctx"] = {key: _plain(value) for key, value in problem["ctx"].items()}
    given = problem.get("input")
    if isinstance(given, (str, list, dict)) and len(given) > limits.INPUT_CHARS:
        return shown  # without encoding all of it
    try:
        if len(orjson.dumps(given)) > limits.INPUT_CHARS:
            return shown
    except TypeError:
        return shown
    return {**shown, "input": given}


def _plain(value: Any) -> int | float | str:
    """Return a number as it is, and anything else as text."""
    finite = isinstance(value, (int, float)) and abs(value) <= limits.MAX_INTEGER
    return value if finite else _encodable(str(value))


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
