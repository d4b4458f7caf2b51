"""Requests to an authorization server: form posts to its endpoints, and their errors.

The OAuth endpoints of a server: from variables, then the server's metadata, then the defaults of its kind.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.errors import ProviderError
from hermes.honcho.configuration import is_cloud_url
from hermes.honcho.grant import CLIENT_ID, SCOPE, TokenResponse, parse_token_response
from hermes.loopback import is_loopback, is_loopback_url, is_private_url
from hermes.redaction import hide_tokens, hide_url
from hermes.types import Json

if TYPE_CHECKING:
    import httpx

MAX_ANSWER_BYTES, MAX_WORDS_CHARS = 65_536, 200
REQUEST_SECONDS = 15.0
FINAL = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
"""Errors after which a grant or client will never be accepted again."""
NO_PAGE_STATUSES = (401, 404, 405, 410)
ERRNO = re.compile(r"\[Errno -?\d+\] ")
"""Matches error numbers, which do not help a person."""
CODE = re.compile(r"[a-z_]{1,40}")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


class TokenError(ProviderError):
    """An authorization server gave no token. `code` is the error that it named, or ""."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message, hint="")
        self.code = code

    @property
    def is_final(self) -> bool:
        return self.code in FINAL


def ask_token(url: str, form: Mapping[str, str], seconds: float = REQUEST_SECONDS) -> TokenResponse:
    """Exchange a code or token for tokens. Raises TokenError. Blocks."""
    try:
        return parse_token_response(post_form(url, form, seconds))
    except ValueError as error:
        raise TokenError(f"the response of {hide_url(url)} is not a token response: {error}") from None


def post_form(url: str, form: Mapping[str, str], seconds: float = REQUEST_SECONDS) -> Json:
    """Post a form and return the response's JSON. Redirects are not followed. Raises TokenError. Blocks."""
    status, read = _send("POST", url, form, seconds)
    try:
        value = json.loads(read) if read.strip() else None
    except (ValueError, RecursionError):
        value = None
    if 200 <= status < 300:
        return value
    body = value if isinstance(value, dict) else {}
    code = str(body.get("error", ""))
    code = code if CODE.fullmatch(code) else ""
    words = printable(str(body.get("error_description") or body.get("detail") or "")).strip()
    why = ": ".join(filter(None, (code, words)))
    raise TokenError(f"{hide_url(url)} answered {status}" + (f" ({why})" if why else ""), code)


def get_json(url: str, seconds: float) -> Mapping[str, Json]:
    """Return the JSON object at a URL; {} if the request fails or finds anything else. Blocks."""
    try:
        status, read = _send("GET", url, None, seconds)
        value = json.loads(read) if status == 200 else None
    except (TokenError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def has_page(url: str, seconds: float) -> bool:
    """Return True if a page answers at a URL with another status than "not found" or the like. Blocks."""
    try:
        status, _ = _send("GET", url, None, seconds)
    except TokenError:
        return False
    return status not in NO_PAGE_STATUSES


def check_private(url: str) -> None:
    """Raise ProviderError for an unencrypted URL, over which a token could be read."""
    if not url.startswith("https://") and not (url.startswith("http://") and is_private_url(url)):
        raise ProviderError(f"{hide_url(url)} is not encrypted: nobody can sign in there", hint="It takes an https URL")


def printable(text: str) -> str:
    """Return a server's text without control characters and secrets, for a terminal."""
    return hide_tokens(CONTROL.sub(" ", text))[:MAX_WORDS_CHARS]


def _send(method: str, url: str, form: Mapping[str, str] | None, seconds: float) -> tuple[int, bytes]:
    """Send a request and return status and body. Raises TokenError after `seconds` in any case: the HTTP library's
    timeouts apply to each read, and a server may send byte by byte."""
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
            raise TokenError(f"the response of {hide_url(url)} is too long")
    return bytes(read)


CLOUD_DASHBOARD, LOCAL_DASHBOARD = "https://app.honcho.dev", "http://localhost:3000"
METADATA_PATH = "/.well-known/oauth-authorization-server"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
METADATA_SECONDS, MAX_URL_CHARS = 5.0, 2_000
SignInSource = Literal["cli", "web", "desktop"]
"""The program in which a person starts to sign in, sent to the consent page."""
VARIABLES = ("DASHBOARD", "AUTHORIZE_URL", "TOKEN_URL", "CLIENT_ID", "SCOPE")
"""Suffixes of the variables `HONCHO_OAUTH_…`."""


class Endpoints(Struct, frozen=True):
    """The OAuth endpoints of a server, with client id and scope. `device` and `revoke` are "" if the server has
    none."""

    server: str
    authorize: str
    token: str
    device: str
    revoke: str
    client_id: str
    scope: str
    is_offered: bool
    """Whether the server publishes OAuth metadata."""


def find_endpoints(server: str, env: Mapping[str, str]) -> Endpoints:
    """Read a server's OAuth metadata; without it, assume the default addresses. Blocks."""
    metadata = get_json(f"{server}{METADATA_PATH}", METADATA_SECONDS)
    named = {name: env.get(f"HONCHO_OAUTH_{name}", "").strip() for name in VARIABLES}
    token = named["TOKEN_URL"] or _own(metadata, "token_endpoint", server) or default_token_url(server)
    grants = metadata.get("grant_types_supported")
    has_device = isinstance(grants, list) and DEVICE_GRANT in grants
    device = _own(metadata, "device_authorization_endpoint", server) or f"{server}/oauth/device_authorization"
    return Endpoints(
        server,
        named["AUTHORIZE_URL"] or _authorize(server, named["DASHBOARD"], metadata),
        token,
        device if has_device else "",
        _own(metadata, "revocation_endpoint", server),
        named["CLIENT_ID"] or CLIENT_ID,
        named["SCOPE"] or SCOPE,
        bool(metadata),
    )


def check_page(endpoints: Endpoints) -> None:
    """Raise ProviderError if nobody can sign in: the server publishes no metadata, and its default page is missing.
    The cloud is not checked. Blocks."""
    if endpoints.is_offered or is_cloud_url(endpoints.server) or has_page(endpoints.authorize, METADATA_SECONDS):
        return
    shown, page = hide_url(endpoints.server), hide_url(endpoints.authorize)
    raise ProviderError(
        f"{shown} does not say where one signs in, and there is no page at {page}",
        hint="`hermes memory setup honcho` takes an API key instead; `HONCHO_OAUTH_AUTHORIZE_URL` names another page",
    )


def default_token_url(server: str) -> str:
    return f"{server}/oauth/token"


def _authorize(server: str, dashboard: str, metadata: Mapping[str, Any]) -> str:
    if dashboard:
        return f"{dashboard.rstrip('/')}/authorize"
    if page := _url(metadata, "authorization_endpoint"):
        return page
    if is_cloud_url(server):
        return f"{CLOUD_DASHBOARD}/authorize"
    return f"{LOCAL_DASHBOARD if is_loopback(urlsplit(server).hostname or '') else server}/authorize"


def _own(metadata: Mapping[str, Any], name: str, server: str) -> str:
    """Return an endpoint that secrets are sent to, if it is on the server itself; else ""."""
    url = _url(metadata, name)
    return url if url and _origin(url) == _origin(server) else ""


def _url(metadata: Mapping[str, Any], name: str) -> str:
    url = metadata.get(name)
    if not isinstance(url, str) or len(url) > MAX_URL_CHARS or not url.isascii() or not url.isprintable():
        return ""
    try:
        parts, _ = urlsplit(url), _origin(url)
    except ValueError:  # a port or an address that is none
        return ""
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_private_url(url))
    return url if is_safe and parts.hostname and "@" not in parts.netloc and " " not in url else ""


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    host = "this machine" if is_loopback(parts.hostname or "") else parts.hostname or ""
    return parts.scheme, host, parts.port
