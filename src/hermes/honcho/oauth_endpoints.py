"""The OAuth endpoints of a server: from variables, then the server's metadata, then the defaults of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.errors import ProviderError
from hermes.honcho.configuration import is_cloud_url
from hermes.honcho.grant import CLIENT_ID, SCOPE
from hermes.honcho.token_requests import get_json, has_page
from hermes.loopback import is_loopback, is_private_url
from hermes.redaction import hide_url

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
