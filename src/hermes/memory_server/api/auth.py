"""Authentication and authorization. Keys are Honcho's: JWT, HS256, claims `ad`, `w`, `p`, `s` and an ISO `exp`.

The narrowest claim of a key counts. Every refusal is a 401, as clients expect. A server that a program started has a
start key instead: who can read it in the server's folder may do everything, anybody else nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import jwt
from fastapi import Depends, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from hermes.loopback import find_strangeness, read_bearer, shows_key
from hermes.memory_server import times
from hermes.memory_server.api.bodies import JsonResponse
from hermes.memory_server.api.metrics import HEALTH, KEY_SHOWN, UNAUTHORIZED_STATUS
from hermes.memory_server.api.server import Server
from hermes.memory_server.engine.grants import ACCESS, find_workspace_of
from hermes.memory_server.engine.peers import is_member, is_merged
from hermes.memory_server.faults import Invalid, InvalidToken, Stranger, Unauthorized

ALGORITHM = "HS256"
CALLER = "hermes.caller"
"""Key in the ASGI scope for the caller of a request, once authenticated."""
Pass = Literal["peer", "session", "member", "any"]
"""Callers that may pass besides admin and workspace keys: the peer in the path, the session in the path, a member of
that session, or any key of the workspace (the handler then checks the body)."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a key, as its claims define it."""

    admin: bool = False
    workspace: str | None = None
    peer: str | None = None
    session: str | None = None

    def holds(self, workspace: str) -> bool:
        """Return True for the key of this workspace, or the admin key."""
        return self.admin or (self.workspace == workspace and self.peer is None and self.session is None)

    @property
    def only_peer(self) -> str | None:
        """Peer of a peer's key; None for other keys."""
        return None if self.admin or self.session is not None else self.peer

    @property
    def only_session(self) -> str | None:
        """Session of a session's key; None for other keys."""
        return None if self.admin else self.session


ADMIN = Caller(admin=True)


def make_key(caller: Caller, secret: str, at: int, expires_at: int | None) -> str:
    claims: dict[str, Any] = {"t": times.to_wire(at)}
    if expires_at is not None:
        claims["exp"] = times.to_wire(expires_at)
    given = {"ad": caller.admin or None, "w": caller.workspace, "p": caller.peer, "s": caller.session}
    claims |= {name: value for name, value in given.items() if value is not None}
    return jwt.encode(claims, secret, algorithm=ALGORITHM)


def read_key(token: str, secret: str, at: int) -> Caller:
    """Verify a key and return its caller. Raise Unauthorized if it is invalid or expired."""
    try:
        # These keys have a text in `exp`, which the library rejects; it is checked below.
        options = {"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": False}
        claims = jwt.decode(token, secret, algorithms=[ALGORITHM], options=options)  # type: ignore[arg-type]
    except jwt.PyJWTError as error:
        raise Unauthorized("Invalid JWT") from error
    if (expires := claims.get("exp")) is not None and _expiry(expires) <= at:
        raise Unauthorized("JWT expired")
    names = [claims.get(name) for name in ("w", "p", "s")]
    if any(name is not None and not isinstance(name, str) for name in names):
        raise Unauthorized("Invalid JWT")
    workspace, peer, session = names
    if workspace is None and (peer is not None or session is not None):
        raise Unauthorized("Invalid JWT: a peer or session key must name its workspace")
    return Caller(claims.get("ad") is True, workspace, peer, session)


def _expiry(value: Any) -> int:
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return times.to_micros(datetime.fromtimestamp(value, UTC))
        return times.parse(str(value))
    except (Invalid, ValueError, OverflowError, OSError) as error:
        raise Unauthorized("Invalid JWT") from error


class Gate:
    """A dependency that authorizes requests for a route."""

    def __init__(self, *passes: Pass) -> None:
        self._passes = frozenset(passes)

    async def __call__(self, request: Request) -> Caller:
        """Return the caller, or raise. A route has one gate, which is evaluated once per request."""
        if (known := request.scope.get(CALLER)) is None:
            known = request.scope[CALLER] = await self._examine(request)
        caller: Caller = known
        return caller

    async def _examine(self, request: Request) -> Caller:
        server: Server = request.app.state.server
        if not server.options.use_auth:
            if (strange := find_strangeness(request.headers)) is not None:
                raise Stranger(f"This server uses no keys, and {strange}; set AUTH_USE_AUTH and AUTH_JWT_SECRET")
            return ADMIN
        if not (token := read_bearer(request.headers.get("authorization"))):
            raise Unauthorized("No access token provided")
        caller = await _read_token(token, server)
        await _refuse_merged(caller, server)
        if not await self._may_pass(caller, request, server):
            raise Unauthorized("JWT not permissioned for this resource")
        return caller

    async def _may_pass(self, caller: Caller, request: Request, server: Server) -> bool:
        path = request.path_params
        workspace = path.get("workspace_id")
        if caller.admin or (workspace is None and "any" in self._passes):
            return True
        if workspace is None or caller.workspace != workspace:
            return False
        if "any" in self._passes or (caller.peer is None and caller.session is None):
            return True
        if caller.session is not None:
            return bool(self._passes & {"session", "member"}) and path.get("session_id") == caller.session
        return await self._may_peer_pass(caller, path, server)

    async def _may_peer_pass(self, caller: Caller, path: dict[str, Any], server: Server) -> bool:
        peer, session = caller.peer or "", path.get("session_id")
        if "member" in self._passes and session is not None:
            if path.get("peer_id", peer) != peer:
                return False
            return await server.read(lambda tx: is_member(tx, path["workspace_id"], session, peer))
        return "peer" in self._passes and path.get("peer_id") == peer


async def _read_token(token: str, server: Server) -> Caller:
    """Return the caller of a key, or of a client's access token, which opens one workspace."""
    if not token.startswith(ACCESS):
        return read_key(token, server.options.jwt_secret, server.now())
    key, at = server.options.token_key, server.now()
    workspace = await server.read(lambda tx: find_workspace_of(tx, key, token, at))
    if workspace is None:
        raise InvalidToken("The access token is unknown, expired or revoked")
    return Caller(workspace=workspace)


async def _refuse_merged(caller: Caller, server: Server) -> None:
    """Refuse the key of a merged peer: its name now refers to another peer."""
    workspace, peer = caller.workspace, caller.only_peer
    if workspace is not None and peer is not None and await server.read(lambda tx: is_merged(tx, workspace, peer)):
        raise Unauthorized("This key belongs to a peer that was merged into another; use a key of that peer")


def require(allowed: bool) -> None:
    """Raise Unauthorized unless `allowed`, for rules that depend on more than the path."""
    if not allowed:
        raise Unauthorized("JWT not permissioned for this resource")


_HOLDER, _OWN_PEER, _OWN_SESSION = Gate(), Gate("peer"), Gate("session")
_MEMBER, _ANY = Gate("session", "member"), Gate("any")
# Each gate is listed twice: FastAPI uses the first, and the route, which checks before it reads the body, the second.
Admin = Annotated[Caller, Depends(_HOLDER), _HOLDER]
"""For paths without a workspace: only the admin key."""
WorkspaceCaller = Annotated[Caller, Depends(_HOLDER), _HOLDER]
"""For paths with a workspace: its key, or the admin key."""
OwnPeer = Annotated[Caller, Depends(_OWN_PEER), _OWN_PEER]
OwnSession = Annotated[Caller, Depends(_OWN_SESSION), _OWN_SESSION]
Member = Annotated[Caller, Depends(_MEMBER), _MEMBER]
AnyKey = Annotated[Caller, Depends(_ANY), _ANY]
REFUSED = {"detail": "This server's key is in server.json of its folder, for the owner of the folder alone"}


class StartKey:
    """An ASGI layer that requires the start key for every path except `/health`."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown = scope["type"] == "http" and self._holds(scope)
        scope[KEY_SHOWN] = shown
        if scope["type"] == "http" and scope["path"] != HEALTH and not shown:
            refusal = JsonResponse(
                REFUSED, UNAUTHORIZED_STATUS, headers={"WWW-Authenticate": "Bearer", "Connection": "close"}
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _holds(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and shows_key(given[0].decode("latin-1"), self._key)
