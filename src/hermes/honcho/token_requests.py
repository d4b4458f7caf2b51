"""Requests to an authorization server: forms that are posted to its endpoints, and why one was not answered well."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from hermes.errors import ProviderError
from hermes.honcho.grant import TokenAnswer, read_answer
from hermes.loopback import is_loopback_url, is_private_url
from hermes.redaction import hide_tokens, hide_url
from hermes.types import Json

if TYPE_CHECKING:
    import httpx

MAX_ANSWER_BYTES, MAX_WORDS_CHARS = 65_536, 200
REQUEST_SECONDS = 15.0
FINAL = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
"""Errors by which a server says that a grant or client will never be accepted again."""
NO_PAGE = (401, 404, 405, 410)
ERRNO = re.compile(r"\[Errno -?\d+\] ")
"""Numbers that say nothing to a person."""
CODE = re.compile(r"[a-z_]{1,40}")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


class TokenError(ProviderError):
    """An authorization server gave no token; `code` is the error that it named, empty where it named none."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message, hint="")
        self.code = code

    @property
    def is_final(self) -> bool:
        return self.code in FINAL


def ask_token(url: str, form: Mapping[str, str], seconds: float = REQUEST_SECONDS) -> TokenAnswer:
    """Exchange a code or a token. Raises TokenError. Blocks."""
    try:
        return read_answer(post_form(url, form, seconds))
    except ValueError as error:
        raise TokenError(f"the answer of {hide_url(url)} is no token answer: {error}") from None


def post_form(url: str, form: Mapping[str, str], seconds: float = REQUEST_SECONDS) -> Json:
    """Post a form and return the JSON of the answer. No redirect is followed. Raises TokenError. Blocks."""
    status, read = _send("POST", url, form, seconds)
    try:
        value = json.loads(read) if read.strip() else None
    except (ValueError, RecursionError):
        value = None
    if 200 <= status < 300:
        return value
    told = value if isinstance(value, dict) else {}
    code = str(told.get("error", ""))
    code = code if CODE.fullmatch(code) else ""
    words = printable(str(told.get("error_description") or told.get("detail") or "")).strip()
    why = ": ".join(filter(None, (code, words)))
    raise TokenError(f"{hide_url(url)} answered {status}" + (f" ({why})" if why else ""), code)


def get_json(url: str, seconds: float) -> Mapping[str, Json]:
    """Return the object at a URL, an empty one where there is none. Blocks."""
    try:
        status, read = _send("GET", url, None, seconds)
        value = json.loads(read) if status == 200 else None
    except (TokenError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def has_page(url: str, seconds: float) -> bool:
    """Return True if something answers at a URL, other than that there is nothing. Blocks."""
    try:
        status, _ = _send("GET", url, None, seconds)
    except TokenError:
        return False
    return status not in NO_PAGE


def check_private(url: str) -> None:
    """Raise ProviderError for a URL over which a token could be read on its way."""
    if not url.startswith("https://") and not (url.startswith("http://") and is_private_url(url)):
        raise ProviderError(f"{hide_url(url)} is not encrypted: nobody can sign in there", hint="It takes an https URL")


def printable(text: str) -> str:
    """Return words of a server as a terminal may show them."""
    return hide_tokens(CONTROL.sub(" ", text))[:MAX_WORDS_CHARS]


def _send(method: str, url: str, form: Mapping[str, str] | None, seconds: float) -> tuple[int, bytes]:
    """Send a request and return status and body. Raises TokenError, after `seconds` in any case: the timeouts of the
    HTTP library are for each read alone, and a server may send a header byte by byte."""
    import httpx  # heavy: only who signs in or renews pays for it

    check_private(url)
    came: Future[tuple[int, bytes]] = Future()
    verify, trust_env = not url.startswith("http://"), not is_loopback_url(url)
    try:
        with httpx.Client(timeout=seconds, verify=verify, trust_env=trust_env) as client:

            def send() -> None:
                try:
                    with client.stream(method, url, data=form, headers={"Accept": "application/json"}) as response:
                        came.set_result((response.status_code, _read(response, url)))
                except (TokenError, *errors) as error:
                    came.set_exception(error)

            errors = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError, OSError, RuntimeError)
            threading.Thread(target=send, name="token request", daemon=True).start()
            return came.result(seconds)
    except TimeoutError:
        raise TokenError(f"{hide_url(url)} does not answer in time") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
        why = ERRNO.sub("", hide_tokens(str(error))) or type(error).__name__
        raise TokenError(f"{hide_url(url)} does not answer: {why}") from None


def _read(response: httpx.Response, url: str) -> bytes:
    read = bytearray()
    for part in response.iter_bytes():
        read += part
        if len(read) > MAX_ANSWER_BYTES:
            raise TokenError(f"{hide_url(url)} sends too much")
    return bytes(read)
