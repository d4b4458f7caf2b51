"""Grants: what the owner allowed a client, and its tokens. The database holds only hashes of tokens.

A refresh token is exchanged once. The new pair is computed from it, so a client that lost the response and retries
soon gets the same pair, although no token is stored. A later use of the same token means that somebody has a copy: the
whole grant ends.

OAuth clients: the programs that may ask a person to sign in, and the URLs that the browser is sent back to.

All are public clients (RFC 8252): they hold no secret, so PKCE and the redirect URL protect them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import logging
import secrets
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from sqlalchemy import ColumnElement, bindparam, delete, exists, func, insert, select, update

from hermes.memory_server import limits
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.sign_in_tables import grant_tokens, grants, oauth_clients
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import workspaces
from hermes.memory_server.faults import Conflict, Invalid, Missing
from hermes.memory_server.ids import check_name

log = logging.getLogger(__name__)
ACCESS, REFRESH = "hch-at-", "hch-rt-"
"""The prefixes of tokens; clients treat anything else as an API key."""
MICROSECONDS_PER_SECOND = 1_000_000
REFRESH_TOKEN_SECONDS = 60 * 24 * 3600
REPLAY_WINDOW_SECONDS = 30
ROWS_PER_CLEANUP = 200
"""The number of rows that a clean-up deletes, because other writers wait meanwhile."""
ACCESS_OWNER = PreparedStatement(
    select(workspaces.c.name)
    .select_from(grant_tokens.join(grants, grants.c.id == grant_tokens.c.grant_id).join(
        workspaces, workspaces.c.id == grants.c.workspace_id
    ))
    .where(
        grant_tokens.c.hash == bindparam("hash"),
        grant_tokens.c.kind == ACCESS,
        grant_tokens.c.expires_at > bindparam("at"),
    )
)  # fmt: skip


class TokenKey(NamedTuple):
    """The key with which tokens are made and looked up. With another secret, all tokens are invalid."""

    secret: str
    access_seconds: int

    def mac(self, text: str) -> bytes:
        return hmac.new(self.secret.encode(), text.encode(), hashlib.sha256).digest()

    def hash(self, token: str) -> str:
        """Return the hash that is stored for a token."""
        return self.mac(f"stored:{token}").hex()

    def derive(self, prefix: str, seed: str) -> str:
        """Return the token that only this server can compute from a seed."""
        return prefix + base64.urlsafe_b64encode(self.mac(f"{prefix}:{seed}")).decode().rstrip("=")


class IssuedTokens(NamedTuple):
    """A pair of tokens; the first pair of a grant also has the workspace and person of the consent."""

    access: str
    refresh: str
    expires_in_seconds: int
    workspace: str = ""
    person: str = ""


class OAuthRefusal(NamedTuple):
    """An error of RFC 6749 or 8628. A value, not an exception, so that the changes of a refusal are committed."""

    error: str
    reason: str


def add_grant(tx: Tx, client: str, source: str, workspace_id: int, person: str, at: int) -> int:
    """Store a grant without tokens, and return its id."""
    if tx.execute(select(func.count()).select_from(grants)).scalar_one() >= limits.MAX_GRANTS:
        raise Conflict(f"There are {limits.MAX_GRANTS} grants already; revoke some with `hermes memory clients revoke`")
    row = {"client": client, "source": source, "workspace_id": workspace_id, "person": person}
    added = insert(grants).values(public_id=secrets.token_hex(6), created_at=at, renewed_at=at, **row)
    return int(tx.execute(added.returning(grants.c.id)).scalar_one())


def issue_first(tx: Tx, key: TokenKey, grant_id: int, at: int) -> IssuedTokens | OAuthRefusal:
    """Issue the first pair of a new grant."""
    query = select(grants.c.person, workspaces.c.name).join(workspaces, workspaces.c.id == grants.c.workspace_id)
    found = tx.execute(query.where(grants.c.id == grant_id)).first()
    if found is None:
        return OAuthRefusal("invalid_grant", "This sign-in was revoked")
    pair = _issue(tx, key, grant_id, secrets.token_urlsafe(32), at)
    return pair._replace(workspace=found.name, person=found.person)


def refresh(tx: Tx, key: TokenKey, client: str, token: str, at: int) -> IssuedTokens | OAuthRefusal:
    """Exchange a refresh token for the next pair. Late reuse of a spent token ends the grant."""
    found = _find_token(tx, key, token, REFRESH)
    if found is None or found.client != client or found.expires_at <= at:
        return OAuthRefusal("invalid_grant", "The refresh token is unknown, expired or revoked; sign in again")
    unspent = update(grant_tokens).where(grant_tokens.c.hash == found.hash, grant_tokens.c.spent_at.is_(None))
    if tx.execute(unspent.values(spent_at=at)).rowcount:
        tx.execute(update(grants).where(grants.c.id == found.grant_id).values(renewed_at=at))
        forget_expired(tx, at)
        return _issue(tx, key, found.grant_id, token, at)
    # It was spent before, or by a concurrent request.
    found = _find_token(tx, key, token, REFRESH) or found
    again = _find_token(tx, key, key.derive(REFRESH, token), REFRESH)
    access = _find_token(tx, key, key.derive(ACCESS, token), ACCESS)
    is_newest = again is not None and again.spent_at is None
    if is_newest and at - (found.spent_at or at) <= REPLAY_WINDOW_SECONDS * MICROSECONDS_PER_SECOND:
        left = 1 if access is None else max(1, (access.expires_at - at) // MICROSECONDS_PER_SECOND)
        return IssuedTokens(key.derive(ACCESS, token), key.derive(REFRESH, token), left)
    log.warning("memory server: a refresh token of %s was used again: its grant ends", found.client)
    end_grants(tx, grants.c.id == found.grant_id)
    return OAuthRefusal("invalid_grant", "The refresh token was used before; the sign-in was revoked, sign in again")


def revoke(tx: Tx, key: TokenKey, client: str, token: str) -> None:
    """End the grant of a token, if the token is the client's own."""
    for kind in (REFRESH, ACCESS):
        found = _find_token(tx, key, token, kind)
        if found is not None and found.client == client:
            end_grants(tx, grants.c.id == found.grant_id)


def find_workspace_of(tx: Tx, key: TokenKey, token: str, at: int) -> str | None:
    """Return the workspace that an access token opens; None if the token is unknown, expired or revoked."""
    found = ACCESS_OWNER.first(tx, hash=key.hash(token), at=at)
    return None if found is None else str(found.name)


def list_grants(tx: Tx) -> list[Record]:
    """Return all grants with the names of their workspaces, the newest first."""
    query = select(*grants.c, workspaces.c.name.label("workspace")).join(
        workspaces, workspaces.c.id == grants.c.workspace_id
    )
    return list(tx.execute(query.order_by(grants.c.id.desc())).all())


def end_grants(tx: Tx, *which: ColumnElement[bool]) -> int:
    """Delete grants and their tokens. Return the number of grants."""
    ids = select(grants.c.id).where(*which).scalar_subquery()
    tx.execute(delete(grant_tokens).where(grant_tokens.c.grant_id.in_(ids)))
    return int(tx.execute(delete(grants).where(*which)).rowcount)


def forget_expired(tx: Tx, at: int) -> None:
    """Delete some expired tokens, and expired grants without tokens."""
    old = select(grant_tokens.c.hash).where(grant_tokens.c.expires_at <= at).limit(ROWS_PER_CLEANUP)
    tx.execute(delete(grant_tokens).where(grant_tokens.c.hash.in_(old)))
    has_token = exists().where(grant_tokens.c.grant_id == grants.c.id)
    is_old = grants.c.renewed_at < at - REFRESH_TOKEN_SECONDS * MICROSECONDS_PER_SECOND
    tx.execute(delete(grants).where(is_old, ~has_token))


def _issue(tx: Tx, key: TokenKey, grant_id: int, seed: str, at: int) -> IssuedTokens:
    lives = {ACCESS: key.access_seconds, REFRESH: REFRESH_TOKEN_SECONDS}
    made = {kind: key.derive(kind, seed) for kind in lives}
    for kind, token in made.items():
        row = {"hash": key.hash(token), "grant_id": grant_id, "kind": kind}
        tx.execute(insert(grant_tokens).values(expires_at=at + lives[kind] * MICROSECONDS_PER_SECOND, **row))
    return IssuedTokens(made[ACCESS], made[REFRESH], key.access_seconds)


def _find_token(tx: Tx, key: TokenKey, token: str, kind: str) -> Record | None:
    query = select(*grant_tokens.c, grants.c.client).join(grants, grants.c.id == grant_tokens.c.grant_id)
    return tx.execute(query.where(grant_tokens.c.hash == key.hash(token), grant_tokens.c.kind == kind)).first()


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
