"""Sign-in requests of OAuth clients, from the first request until the client has its tokens.

open ── allowed ── spent        denied and expired requests give nothing

Only the owner decides: with the admin key, or with a one-time code that is valid for one request only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, delete, func, insert, select, update

from hermes.memory_server import limits
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.sign_in_tables import grants, sign_ins
from hermes.memory_server.engine.grants import (
    MICROSECONDS_PER_SECOND,
    ROWS_PER_CLEANUP,
    IssuedTokens,
    OAuthRefusal,
    TokenKey,
    add_grant,
    end_grants,
    issue_first,
)
from hermes.memory_server.engine.workspaces import ensure_workspace
from hermes.memory_server.faults import TooMany
from hermes.memory_server.ids import check_name, new_id

LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""Letters of codes that people type: none resembles another, and they spell no words."""
CODE_CHARS = 8
REQUEST_LIFETIME_SECONDS = 600
CODE_LIFETIME_SECONDS = 300
"""The lifetime of the code in a redirect, counted from consent; a person may have to paste it."""
EXPIRED_KEPT_SECONDS = 3600
"""How long an expired request is kept, so that its device gets `expired_token`."""
INTERVAL_SECONDS, SLOW_DOWN_SECONDS, MAX_INTERVAL_SECONDS = 5, 5, 60
POLL_GRACE_MICROSECONDS = MICROSECONDS_PER_SECOND
"""A poll that is early by less than this counts as on time, because of network jitter."""


class BrowserRequest(NamedTuple):
    """A client's request through a person's browser. `browser` identifies this browser; `config_path` is the settings
    file that the page names.
    """

    client: str
    source: str
    address: str
    redirect_uri: str
    state: str
    challenge: str
    browser: str
    config_path: str = ""


class DeviceCodes(NamedTuple):
    """The codes of a device request: `device` is the client's secret; a person types `user` into the page."""

    device: str
    user: str


def label_of(sign_in: Record) -> str:
    """Return four letters by which a person distinguishes requests; they grant nothing."""
    digest = hashlib.sha256(sign_in.public_id.encode()).digest()
    return "".join(LETTERS[value % len(LETTERS)] for value in digest[:4])


def begin_in_browser(tx: Tx, request: BrowserRequest, at: int) -> Record:
    """Store a request, or return this browser's open one, because a page may be reloaded."""
    same = [sign_ins.c[name] == value for name, value in request._asdict().items() if name != "address"]
    query = select(sign_ins).where(*same, *_is_open(at), sign_ins.c.device_hash.is_(None))
    found = tx.execute(query.limit(1)).first()
    return _add(tx, at, **request._asdict()) if found is None else found


def begin_on_device(tx: Tx, key: TokenKey, client: str, source: str, address: str, at: int) -> DeviceCodes:
    """Store a request of a program without a browser."""
    codes = DeviceCodes(secrets.token_urlsafe(32), _new_code())
    hashes = {"device_hash": key.hash(codes.device), "user_code_hash": key.hash(_plain(codes.user))}
    empty = dict.fromkeys(("redirect_uri", "state", "challenge", "browser", "config_path"), "")
    _add(tx, at, client=client, source=source, address=address, **hashes, **empty)
    return codes


def find_by_user_code(tx: Tx, key: TokenKey, user_code: str, at: int) -> Record | None:
    """Return the open request of the device that showed this code, or None."""
    typed = key.hash(_plain(user_code))
    return tx.execute(select(sign_ins).where(sign_ins.c.user_code_hash == typed, *_is_open(at))).first()


def find_sign_in(tx: Tx, public_id: str, at: int) -> Record | None:
    """Return a request that has not expired, whatever its decision, or None."""
    return tx.execute(
        select(sign_ins).where(sign_ins.c.public_id == public_id, sign_ins.c.expires_at > at)
    ).first()  # fmt: skip


def list_open(tx: Tx, at: int) -> Sequence[Record]:
    """Return the requests that are neither decided nor expired, the newest first."""
    return tx.execute(select(sign_ins).where(*_is_open(at)).order_by(sign_ins.c.id.desc())).all()


def new_approval(tx: Tx, sign_in: Record) -> str:
    """Create the one-time code with which the owner allows this request; an earlier code becomes invalid."""
    code = _new_code()
    hashed = _hash_approval(tx, sign_in, code)
    tx.execute(update(sign_ins).where(sign_ins.c.id == sign_in.id).values(approval_hash=hashed))
    return code


def has_approval(tx: Tx, sign_in: Record, code: str) -> bool:
    """Return True if this is the request's one-time code."""
    given = _hash_approval(tx, sign_in, code)
    return sign_in.approval_hash is not None and hmac.compare_digest(given, sign_in.approval_hash)


def allow(tx: Tx, sign_in: Record, workspace: str, person: str, at: int) -> None:
    """Give the request a grant for a workspace, which is created if missing."""
    check_name(workspace)
    # A device keeps polling until its request expires; a browser gets its code at once.
    expires_at = sign_in.expires_at if sign_in.device_hash else at + CODE_LIFETIME_SECONDS * MICROSECONDS_PER_SECOND
    if not _change(tx, sign_in, decision="allowed", approval_hash=None, expires_at=expires_at):
        return  # decided concurrently
    row, _ = ensure_workspace(tx, workspace, at)
    grant_id = add_grant(tx, sign_in.client, sign_in.source, row.id, person, at)
    tx.execute(update(sign_ins).where(sign_ins.c.id == sign_in.id).values(grant_id=grant_id))


def deny(tx: Tx, sign_in: Record) -> None:
    """Deny the request for good."""
    _change(tx, sign_in, decision="denied", approval_hash=None)


def code_of(key: TokenKey, sign_in: Record) -> str:
    """Return the code that the browser carries back. It is computed, so that a second click gives the same code."""
    return f"{sign_in.public_id}.{key.derive('', f'code:{sign_in.public_id}')}"


def exchange_code(
    tx: Tx, key: TokenKey, client: str, code: str, redirect_uri: str, verifier: str, at: int
) -> IssuedTokens | OAuthRefusal:
    """Exchange the code of a redirect for tokens, once."""
    found = find_sign_in(tx, code.partition(".")[0], at)
    if found is None or found.grant_id is None or not hmac.compare_digest(code_of(key, found).encode(), code.encode()):
        return OAuthRefusal("invalid_grant", "The code is unknown or expired")
    if found.client != client or found.redirect_uri != redirect_uri:
        return OAuthRefusal("invalid_grant", "The code was given to another client or redirect URL")
    if not hmac.compare_digest(_challenge_of(verifier), found.challenge):
        return OAuthRefusal("invalid_grant", "The code verifier does not fit (PKCE)")
    return _spend(tx, key, found, at)


def poll(tx: Tx, key: TokenKey, client: str, device_code: str, at: int) -> IssuedTokens | OAuthRefusal:
    """Answer a device that polls for the owner's decision."""
    found = tx.execute(select(sign_ins).where(sign_ins.c.device_hash == key.hash(device_code))).first()
    if found is None or found.client != client:
        return OAuthRefusal("invalid_grant", "The device code is unknown")
    if found.expires_at <= at and found.decision != "spent":
        return OAuthRefusal("expired_token", "The device code expired; begin again")
    if found.decision == "denied":
        return OAuthRefusal("access_denied", "The owner denied the request")
    if found.decision == "open":
        return _slow_down(tx, found, at)
    return _spend(tx, key, found, at)


def _slow_down(tx: Tx, sign_in: Record, at: int) -> OAuthRefusal:
    interval = sign_in.interval_seconds
    is_early = (
        sign_in.polled_at > 0 and at < sign_in.polled_at + interval * MICROSECONDS_PER_SECOND - POLL_GRACE_MICROSECONDS
    )
    if is_early:
        interval = min(interval + SLOW_DOWN_SECONDS, MAX_INTERVAL_SECONDS)
    _change(tx, sign_in, polled_at=at, interval_seconds=interval)
    if is_early:
        return OAuthRefusal("slow_down", f"Ask every {interval} seconds at most")
    return OAuthRefusal("authorization_pending", "The owner has not decided yet")


def _spend(tx: Tx, key: TokenKey, sign_in: Record, at: int) -> IssuedTokens | OAuthRefusal:
    if sign_in.decision == "spent" or not _change(tx, sign_in, decision="spent"):
        # Two programs had the same code, and it is unknown which of them is genuine.
        end_grants(tx, grants.c.id == sign_in.grant_id)
        return OAuthRefusal("invalid_grant", "The code was used before; the sign-in was revoked, begin again")
    return issue_first(tx, key, sign_in.grant_id, at)


def _add(tx: Tx, at: int, **given: object) -> Record:
    # No device polls an expired request for this long.
    old = (
        select(sign_ins.c.id)
        .where(sign_ins.c.expires_at < at - EXPIRED_KEPT_SECONDS * MICROSECONDS_PER_SECOND)
        .limit(ROWS_PER_CLEANUP)
    )
    tx.execute(delete(sign_ins).where(sign_ins.c.id.in_(old)))
    if tx.execute(select(func.count()).select_from(sign_ins).where(*_is_open(at))).scalar_one() >= limits.MAX_SIGN_INS:
        raise TooMany(f"{limits.MAX_SIGN_INS} sign-in requests are waiting already; try again in a few minutes")
    row = {"public_id": new_id(), "decision": "open", "polled_at": 0, "interval_seconds": INTERVAL_SECONDS}
    added = insert(sign_ins).values(
        created_at=at, expires_at=at + REQUEST_LIFETIME_SECONDS * MICROSECONDS_PER_SECOND, **row, **given
    )
    return tx.execute(added.returning(*sign_ins.c)).one()


def _change(tx: Tx, sign_in: Record, **values: object) -> bool:
    """Change a request unless it was decided since it was read. Return True if it was changed."""
    same = (sign_ins.c.id == sign_in.id, sign_ins.c.decision == sign_in.decision)
    return tx.execute(update(sign_ins).where(*same).values(**values)).rowcount == 1


def _is_open(at: int) -> tuple[ColumnElement[bool], ...]:
    return (sign_ins.c.decision == "open", sign_ins.c.expires_at > at)


def _new_code() -> str:
    letters = "".join(secrets.choice(LETTERS) for _ in range(CODE_CHARS))
    return f"{letters[:4]}-{letters[4:]}"


def _plain(code: str) -> str:
    """Return a typed code in capitals, without hyphens and spaces."""
    return "".join(code.upper().replace("-", "").split())


def _hash_approval(tx: Tx, sign_in: Record, code: str) -> str:
    # The key of the folder, not the server's secret: `hermes memory approve` may not know that one.
    return str(tx.execute(select(func.keyed_hash(f"{sign_in.public_id}:{_plain(code)}"))).scalar_one())


def _challenge_of(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
