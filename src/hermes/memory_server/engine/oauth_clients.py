"""OAuth clients: the programs that may ask a person to sign in, and the URLs that the browser is sent back to.

All are public clients (RFC 8252): they hold no secret, so PKCE and the redirect URL protect them.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from sqlalchemy import delete, func, insert, select

from hermes.memory_server import limits
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.tables import oauth_clients
from hermes.memory_server.faults import Conflict, Invalid, Missing
from hermes.memory_server.ids import check_name

LOOPBACK = ("http://127.0.0.1/callback", "http://[::1]/callback")


class OAuthClient(NamedTuple):
    """A client program. `redirects` are the URLs that its browser may be sent back to."""

    name: str
    redirects: tuple[str, ...]
    is_built_in: bool = False


BUILT_IN = {name: OAuthClient(name, LOOPBACK, True) for name in ("hermes-agent", "honcho-cli")}
"""The client ids of Honcho's own programs."""


def find_client(tx: Tx, name: str) -> OAuthClient | None:
    """Return the client with this id, or None."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    row = tx.execute(select(oauth_clients).where(oauth_clients.c.name == name)).first()
    return None if row is None else OAuthClient(row.name, tuple(json.loads(row.redirects)))


def list_clients(tx: Tx) -> list[OAuthClient]:
    """Return all clients, the built-in ones first."""
    added = tx.execute(select(oauth_clients).order_by(oauth_clients.c.name)).all()
    return [*BUILT_IN.values(), *(OAuthClient(row.name, tuple(json.loads(row.redirects))) for row in added)]


def add_client(tx: Tx, name: str, redirects: Sequence[str], at: int) -> None:
    """Add a client. Without redirect URLs it may use loopback addresses, like the built-in clients."""
    check_name(name)
    if len(redirects) > limits.MAX_REDIRECTS:
        raise Invalid(f"A client can have at most {limits.MAX_REDIRECTS} redirect URLs")
    for url in redirects:
        _check_redirect(url)
    if find_client(tx, name) is not None:
        raise Conflict(f"A client {name} exists already; remove it first")
    if tx.execute(select(func.count()).select_from(oauth_clients)).scalar_one() >= limits.MAX_OAUTH_CLIENTS:
        raise Conflict(f"There can be at most {limits.MAX_OAUTH_CLIENTS} clients; remove one first")
    written = json.dumps([*(redirects or LOOPBACK)])
    tx.execute(insert(oauth_clients).values(name=name, redirects=written, created_at=at))


def remove_client(tx: Tx, name: str) -> None:
    """Remove a client that was added. Its grants are ended separately."""
    if name in BUILT_IN:
        raise Invalid(f"{name} is built in and cannot be removed; its grants can be revoked")
    if tx.execute(delete(oauth_clients).where(oauth_clients.c.name == name)).rowcount == 0:
        raise Missing("Client", name)


def accepts_redirect(client: OAuthClient, url: str) -> bool:
    """Return True if a browser may be sent back to this URL: it equals a registered URL, or is a loopback address that
    differs only in its port (RFC 8252, 7.3).
    """
    if len(url) > limits.URL_CHARS:
        return False
    return url in client.redirects or any(_differs_in_port(url, known) for known in client.redirects)


def _differs_in_port(url: str, known: str) -> bool:
    try:
        given, registered = urlsplit(url), urlsplit(known)
        if not (_is_loopback_literal(given) and _is_loopback_literal(registered)):
            return False
        # Rebuilt from its parts, so that it cannot contain a user, a fragment or unusual characters.
        port = "" if given.port is None else f":{given.port}"
    except ValueError:
        return False
    host = f"[{registered.hostname}]" if ":" in (registered.hostname or "") else registered.hostname
    return url == registered._replace(netloc=f"{host}{port}").geturl()


def _is_loopback_literal(parts: SplitResult) -> bool:
    try:
        return parts.scheme == "http" and ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _check_redirect(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise Invalid(f"{url[:200]!r} is not a URL: {error}") from error
    fits = parts.hostname and not parts.fragment and "@" not in parts.netloc and url.isascii() and url.isprintable()
    if len(url) > limits.URL_CHARS or not fits or not (parts.scheme == "https" or _is_loopback_literal(parts)):
        raise Invalid(
            f"{url[:200]!r} cannot be a redirect URL: use https://…, or http:// with 127.0.0.1 or [::1], "
            "without a user or a fragment"
        )
