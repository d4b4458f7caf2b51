"""Sign-in with a browser: a page of the server, and a local listener that the browser is redirected to.

Sign-in with a code that a person types on another device (RFC 8628): for SSH and containers.
"""

from __future__ import annotations

import hmac
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from hermes.errors import UsageError
from hermes.honcho.grant import TokenResponse
from hermes.honcho.oauth import (
    DEVICE_GRANT,
    Endpoints,
    SignInSource,
    TokenError,
    ask_token,
    check_private,
    post_form,
    printable,
)
from hermes.loopback import names_loopback

HOST, PORT, CALLBACK = "127.0.0.1", 8765, "/callback"
WAIT_SECONDS, IDLE_SECONDS = 300.0, 5.0
MAX_CODE_CHARS, MAX_PASTED_CHARS = 4_096, 16_384
DONE = "Hermes has what it needs. You can close this page and go back."
OVER = "This sign-in has ended. Start it again where you started it."
FOREIGN = "This response belongs to another sign-in and is ignored."
DENIED = "The sign-in was declined. You can close this page and go back."
PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<meta name="color-scheme" content="light dark"><title>Hermes</title><p>{}</p></html>'
)


class BrowserSignIn:
    """One pending sign-in. It listens on a local port from its creation until `close`."""

    def __init__(self, endpoints: Endpoints, source: SignInSource, config_path: str) -> None:
        for url in (endpoints.authorize, endpoints.token):
            check_private(url)
        self._endpoints = endpoints
        self._state, self._verifier = token_urlsafe(32), token_urlsafe(64)
        self._came: Future[str] = Future()
        self._lock = threading.Lock()
        self._listener = _listen(self)
        threading.Thread(target=self._listener.serve_forever, args=(0.1,), name="sign-in", daemon=True).start()
        self.redirect_uri = f"http://{HOST}:{self._listener.server_port}{CALLBACK}"
        challenge = urlsafe_b64encode(sha256(self._verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": endpoints.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": endpoints.scope,
            "state": self._state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "source": source,
            "config_path": config_path,
        }
        self.url = f"{endpoints.authorize}{'&' if '?' in endpoints.authorize else '?'}{urlencode(query)}"

    def __enter__(self) -> BrowserSignIn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; a pending `finish` raises TokenError."""
        with self._lock:
            if not self._came.done():
                self._came.set_exception(TokenError("the sign-in was cancelled"))
        self._listener.shutdown()
        self._listener.server_close()

    def take(self, query: Mapping[str, str]) -> str:
        """Accept the redirect's parameters, once, and return the text for the person. Raises UsageError for
        parameters of another sign-in; the wait continues."""
        with self._lock:
            if self._came.done():
                raise UsageError(OVER)
            state, error, code = query.get("state"), query.get("error"), query.get("code", "")
            is_ours = state is not None and hmac.compare_digest(state.encode(errors="replace"), self._state.encode())
            if error is not None and (is_ours or state is None):
                why = " ".join(filter(None, (printable(error), printable(query.get("error_description", "")))))
                self._came.set_exception(TokenError(f"the sign-in was declined ({why})", "access_denied"))
                return DENIED
            if not is_ours or not 0 < len(code) <= MAX_CODE_CHARS:
                raise UsageError(FOREIGN)
            self._came.set_result(code)
            return DONE

    def take_pasted(self, address: str) -> None:
        """Accept the address that a browser on any machine was redirected to."""
        try:
            query = urlsplit(address.strip()[:MAX_PASTED_CHARS]).query
        except ValueError:
            raise UsageError(FOREIGN) from None
        self.take(dict(parse_qsl(query)))

    def finish(self, seconds: float = WAIT_SECONDS) -> TokenResponse:
        """Wait for the redirect, and exchange its code for tokens. Raises TokenError."""
        try:
            code = self._came.result(seconds)
        except TimeoutError:
            raise TokenError(f"nobody signed in within {seconds / 60:.0f} minutes") from None
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "client_id": self._endpoints.client_id,
            "code_verifier": self._verifier,
        }
        return ask_token(self._endpoints.token, form)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = False
    waiting: BrowserSignIn

    def handle_error(self, request: object, client_address: object) -> None:
        """Suppress the traceback of a broken connection, which would appear in the person's terminal."""


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version, timeout = "hermes", "", IDLE_SECONDS
    server: _Listener

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path != CALLBACK or not names_loopback(self.headers.get("Host")):
            self._answer(404, "There is nothing here.")
            return
        try:
            self._answer(200, self.server.waiting.take(dict(parse_qsl(parts.query))))
        except UsageError as error:
            self._answer(400, error.message)

    def _answer(self, status: int, words: str) -> None:
        body = PAGE.format(words).encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the request's path holds a code."""


def _listen(waiting: BrowserSignIn) -> _Listener:
    """Listen on the usual port, or on any free one if it is taken."""
    try:
        listener = _Listener((HOST, PORT), _Handler)
    except OSError:
        listener = _Listener((HOST, 0), _Handler)
    listener.waiting = waiting
    return listener


USUAL_INTERVAL_SECONDS, SLOWER_SECONDS, MAX_INTERVAL_SECONDS = 5.0, 5.0, 60.0
USUAL_LIFE_SECONDS, MAX_LIFE_SECONDS = 600.0, 3_600.0
ENDINGS = {
    "access_denied": "the sign-in was declined",
    "expired_token": "the code expired before anybody entered it",
}
PENDING = frozenset({"authorization_pending", "slow_down", "temporarily_unavailable", "server_error"})
"""Errors after which a device polls again; any other ends the sign-in (RFC 8628, 3.5)."""


def sign_in_by_code(
    endpoints: Endpoints,
    source: SignInSource,
    say: Callable[[str], object],
    sleep: Callable[[float], None] = time.sleep,
) -> TokenResponse:
    """Show a code, and wait until a person enters it on the server's page. Raises TokenError. Blocks."""
    asked = {"client_id": endpoints.client_id, "scope": endpoints.scope, "source": source}
    device = post_form(endpoints.device, asked)
    response: Mapping[str, Any] = device if isinstance(device, dict) else {}
    code, user_code, page = (str(response.get(name, "")) for name in ("device_code", "user_code", "verification_uri"))
    if not code or not user_code or not page:
        raise TokenError("the server sent no sign-in code")
    check_private(page)
    say(f"Open {printable(page)} in any browser, on this or another device, and type the code {printable(user_code)}")
    if whole := response.get("verification_uri_complete"):
        say(f"or open {printable(str(whole))}")
    say("Waiting until you have; Ctrl-C ends it.")
    form = {"grant_type": DEVICE_GRANT, "device_code": code, "client_id": endpoints.client_id}
    pause = _seconds(response.get("interval"), USUAL_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS)
    end = time.monotonic() + _seconds(response.get("expires_in"), USUAL_LIFE_SECONDS, MAX_LIFE_SECONDS)
    while time.monotonic() < end:
        sleep(pause)
        try:
            return ask_token(endpoints.token, form)
        except TokenError as error:
            if error.code and error.code not in PENDING:
                raise TokenError(ENDINGS.get(error.code, error.message), error.code) from None
            if error.code != "authorization_pending":  # slow_down, or a failure that may pass
                pause = min(pause + SLOWER_SECONDS, MAX_INTERVAL_SECONDS)
    raise TokenError(ENDINGS["expired_token"], "expired_token")


def _seconds(given: object, usual: float, most: float) -> float:
    is_number = isinstance(given, int | float) and not isinstance(given, bool) and given > 0
    return min(float(given), most) if is_number else usual  # type: ignore[arg-type]
