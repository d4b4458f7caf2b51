"""Route factories: every form is checked before its handler runs, and every error becomes a page."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, cast

from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from hermes.errors import (
    HermesError,
    ModelError,
    NoteError,
    NotFoundError,
    ProviderError,
    SettingsError,
    StoreBusyError,
    StoreError,
    UsageError,
)
from hermes.redaction import hide_passwords
from hermes.web.door import is_api
from hermes.web.drawing import page
from hermes.web.host import HostKeeper, WebHost

PageForm: TypeAlias = Mapping[str, str]
FormHandler: TypeAlias = Callable[[Request, PageForm], Awaitable[Response]]
log = logging.getLogger("hermes.web")
STATUS: Mapping[type[HermesError], int] = {
    NotFoundError: 404,
    UsageError: 400,
    NoteError: 400,
    SettingsError: 400,
    ModelError: 502,
    ProviderError: 502,
    StoreBusyError: 503,
    StoreError: 500,
}
"""The HTTP status of each error; the first match counts."""
NAMES: Mapping[int, str] = {
    400: "bad_request",
    401: "not_signed_in",
    403: "foreign_request",
    404: "not_found",
    405: "wrong_method",
    500: "defect",
    502: "memory_failed",
    503: "busy",
}
"""Names of errors in JSON."""
NO_PAGE = "there is no such page"
DEFECT = "this is an error in hermes; details are in the log of this home"


MAX_NUMBER_DIGITS = 15
"""Longest number in an address: the store takes no longer ones."""


class ShortNumber(IntegerConvertor):
    """A path convertor, `{name:number}`, for numbers that the store can take."""

    regex = f"[0-9]{{1,{MAX_NUMBER_DIGITS}}}"


register_url_convertor("number", ShortNumber())


def read_number(text: str) -> int | None:
    """Return the number in a text; None for other texts and numbers that are too long."""
    is_number = text.isascii() and text.isdigit() and len(text) <= MAX_NUMBER_DIGITS
    return int(text) if is_number else None


def host_of(request: Request) -> WebHost:
    return keeper_of(request).host


def keeper_of(request: Request) -> HostKeeper:
    return cast(HostKeeper, request.app.state.keeper)


async def reload_settings(request: Request) -> str:
    """Reload settings that were changed elsewhere; return why they are invalid, or ""."""
    try:
        await keeper_of(request).refresh()
    except HermesError as error:
        return error.line()
    return ""


def redirect(path: str) -> RedirectResponse:
    """Redirect after a form: the browser loads this page, and reloading it repeats nothing."""
    return RedirectResponse(path, 303)


def form_route(path: str, handler: FormHandler) -> Route:
    """Return a route for a form. Its CSRF token is checked before the handler runs."""

    async def handle(request: Request) -> Response:
        return await handler(request, await request.app.state.door.read_form(request))

    return Route(path, handle, methods=["POST"])


def refuse_request(request: Request, template: str, status: int, text: str) -> Response:
    """Return a refusal as a page, or as JSON under `/api`."""
    if not is_api(request.url.path):
        return page(request, template, status, problem=text)
    return JSONResponse({"error": {"name": NAMES.get(status, "refused"), "message": text}}, status)


async def show_error(request: Request, error: Exception) -> Response:
    """Return an error as a page or JSON. htmx shows it in the open page, which keeps what was typed."""
    if isinstance(error, HermesError):
        status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
        text = hide_passwords(error.line())
    elif isinstance(error, HTTPException):
        status, text = error.status_code, NO_PAGE if error.status_code == 404 else error.detail
    elif isinstance(error, ClientDisconnect):
        return Response(status_code=400)
    else:
        log.exception("a page failed", exc_info=error)
        status, text = 500, DEFECT
    return refuse_request(request, "error.html", status, text)
