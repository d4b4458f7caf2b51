"""Access to the page. A link that works once gives the browser a cookie that is valid until `hermes web` ends.

Other requests are refused before any route: other host names, other pages, requests without a cookie.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.requests import Request

from hermes.errors import UsageError
from hermes.loopback import OWN_SITES, read_bearer
from hermes.memory.connect_routes import PATH

ENTER, STATIC = "/enter", "/static/"
CALLBACK = re.compile(PATH.format(name="[^/]+") + "/callback")
"""The path to which a provider's page returns the browser."""
API, SIGN_IN = "/api", "/api/memory/"
"""Paths under `/api` accept a key instead of the cookie, except those for sign-ins."""
MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_FIELDS = 2_000
CSRF = "csrf"
NO_COOKIE = "This page is for whoever started it: open the link that `hermes web` printed."
LINK_USED = "This link was used already. `hermes web` has printed another one below it."
WRONG_HOST = "The request names another machine than this one."
WRONG_KEY = "This is not the key of this page: `hermes web key` makes one."
FOREIGN = "Another web page sent this request. Nothing was changed."
STALE = "This form is from an earlier start of `hermes web`, so nothing was changed. Reload the page and try again."


def is_api(path: str) -> bool:
    return path == API or path.startswith(f"{API}/")


class DoorRefusal(Struct, frozen=True):
    """The reason and the HTTP status of a refusal."""

    status: int
    why: str


class WebDoor:
    """The secrets of one start: the link, the cookie, and the CSRF token of every form."""

    def __init__(self, port: int, is_key: Callable[[str], bool]) -> None:
        self._port = port
        self._is_key = is_key
        self.cookie = f"hermes_web_{secrets.token_hex(6)}"
        """A unique name, because all ports of 127.0.0.1 share their cookies."""
        self._value = secrets.token_urlsafe(32)
        self.csrf = secrets.token_urlsafe(32)
        self._once = ""

    def new_link(self) -> str:
        """Return a link that works once; earlier links are void."""
        self._once = secrets.token_urlsafe(32)
        return f"http://127.0.0.1:{self._port}{ENTER}?once={self._once}"

    def take_link(self, given: str) -> bool:
        """Consume the link; return False for any other text."""
        right = bool(self._once) and hmac.compare_digest(given.encode(), self._once.encode())
        self._once = "" if right else self._once
        return right

    def header(self) -> str:
        """Return the `Set-Cookie` header for the browser that used the link."""
        return f"{self.cookie}={self._value}; Path=/; HttpOnly; SameSite=Strict"

    def refuse(self, method: str, path: str, headers: Mapping[str, str]) -> DoorRefusal | None:
        """Return why a request is refused; None if it may pass."""
        if headers.get("host", "").lower() not in self._names:
            return DoorRefusal(403, WRONG_HOST)
        if method == "GET" and (path == ENTER or CALLBACK.fullmatch(path)):
            return None  # both are opened from other sites with a one-time secret
        site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
        if origin is not None and origin not in self._origins:
            return DoorRefusal(403, FOREIGN)
        if is_api(path) and not path.startswith(SIGN_IN) and (key := read_bearer(headers.get("authorization"))):
            if site not in OWN_SITES:
                return DoorRefusal(403, FOREIGN)
            return None if self._is_key(key) else DoorRefusal(401, WRONG_KEY)
        if method not in ("GET", "HEAD") and (origin is None or site not in OWN_SITES):
            return DoorRefusal(403, FOREIGN)
        if path.startswith(STATIC):
            return None if site in OWN_SITES else DoorRefusal(403, FOREIGN)
        if not hmac.compare_digest(self._shown(headers.get("cookie", "")).encode(), self._value.encode()):
            return DoorRefusal(401, NO_COOKIE)
        return None

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(f"{name}:{self._port}" for name in ("127.0.0.1", "localhost", "[::1]"))

    @property
    def _origins(self) -> tuple[str, ...]:
        return tuple(f"http://{name}" for name in self._names)

    def _shown(self, header: str) -> str:
        try:
            found = SimpleCookie(header).get(self.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value

    async def read_form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form; the last wins among equal names. Raises UsageError for a form of another page,
        or one that is too large."""
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                raise UsageError(f"the form has more than {MAX_BODY_BYTES:,} bytes", hint="Send less at once")
        try:
            text = body.decode()
            fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"))
        except ValueError as error:
            raise UsageError("the form cannot be read", hint="Reload the page and try again") from error
        self.check_token(fields.pop(CSRF, ""))
        return fields

    def check_token(self, given: str) -> None:
        """Raise UsageError unless this is the CSRF token of this start."""
        if not hmac.compare_digest(given.encode(), self.csrf.encode()):
            raise UsageError(STALE, hint="")
