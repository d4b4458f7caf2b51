"""OAuth for clients: metadata (RFC 8414), device authorization (RFC 8628), tokens (RFC 6749, 7636), revocation (7009).
`consent` has the pages for people. These routes exist only if the server requires keys.

The pages for people are in `consent`. All of it is there only while keys are asked for.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from hermes.memory_server import limits
from hermes.memory_server.api.bodies import JsonResponse
from hermes.memory_server.api.server import Server, ServerDep
from hermes.memory_server.api.sign_in_pages import FormFields, find_site, read_form
from hermes.memory_server.db.database import Tx
from hermes.memory_server.engine.grants import IssuedTokens, OAuthRefusal, find_client, refresh, revoke
from hermes.memory_server.engine.sign_ins import (
    INTERVAL_SECONDS,
    REQUEST_LIFETIME_SECONDS,
    begin_on_device,
    exchange_code,
    poll,
)
from hermes.memory_server.faults import Fault, TooMany

router = APIRouter(include_in_schema=False)
METADATA = "/.well-known/oauth-authorization-server"
AUTHORIZE, DEVICE = "/authorize", "/device"
TOKEN, DEVICE_AUTHORIZATION, REVOKE = "/oauth/token", "/oauth/device_authorization", "/oauth/revoke"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
SCOPE = "write"
"""The only scope: read and write one workspace."""
UNKNOWN_CLIENT = "This client_id is unknown; `hermes memory clients add` adds one"
NOT_STORED = {"Cache-Control": "no-store", "Pragma": "no-cache"}
VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
SOURCE = re.compile(r"[A-Za-z0-9._-]{0,40}")
Exchange = Callable[[Tx], IssuedTokens | OAuthRefusal]


@router.get(METADATA)
async def show_metadata(request: Request, here: ServerDep) -> Response:
    """Return the endpoints and supported features (RFC 8414)."""
    site = find_site(request, here.options)
    return JsonResponse(
        {
            "issuer": site,
            "authorization_endpoint": site + AUTHORIZE,
            "token_endpoint": site + TOKEN,
            "device_authorization_endpoint": site + DEVICE_AUTHORIZATION,
            "revocation_endpoint": site + REVOKE,
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token", DEVICE_GRANT],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "scopes_supported": [SCOPE],
        }
    )


@router.post(DEVICE_AUTHORIZATION)
async def authorize_device(request: Request, here: ServerDep) -> Response:
    """Start the sign-in of a program without a browser (RFC 8628)."""

    async def begin(form: FormFields, client: str) -> Response:
        if (problem := find_problem(form)) is not None:
            return _refuse(problem)
        site, key, at = find_site(request, here.options), here.options.token_key, here.now()
        address, source = read_address(request), form.get("source", "")
        codes = await here.write(lambda tx: begin_on_device(tx, key, client, source, address, at))
        told = {
            "device_code": codes.device,
            "user_code": codes.user,
            "verification_uri": site + DEVICE,
            "verification_uri_complete": f"{site}{DEVICE}?user_code={codes.user}",
            "expires_in": REQUEST_LIFETIME_SECONDS,
            "interval": INTERVAL_SECONDS,
        }
        return JsonResponse(told, headers=NOT_STORED)

    return await _answer(request, here, begin)


@router.post(TOKEN)
async def give_tokens(request: Request, here: ServerDep) -> Response:
    """Exchange a code, a device code or a refresh token for a pair of tokens."""

    async def give(form: FormFields, client: str) -> Response:
        exchange = _exchange(here, form, client)
        result = exchange if isinstance(exchange, OAuthRefusal) else await here.write(exchange)
        return _refuse(result) if isinstance(result, OAuthRefusal) else JsonResponse(_say(result), headers=NOT_STORED)

    return await _answer(request, here, give)


@router.post(REVOKE)
async def revoke_token(request: Request, here: ServerDep) -> Response:
    """Revoke the grant of a token. An unknown token is not an error (RFC 7009, 2.2)."""

    async def end(form: FormFields, client: str) -> Response:
        if not (token := form.get("token", "")):
            return _refuse(OAuthRefusal("invalid_request", "token is missing"))
        await here.write(lambda tx: revoke(tx, here.options.token_key, client, token))
        return Response(headers=NOT_STORED)

    return await _answer(request, here, end)


def find_problem(form: FormFields) -> OAuthRefusal | None:
    """Return the error in the requested scope or source, if any."""
    if form.get("scope", SCOPE) not in (SCOPE, ""):
        return OAuthRefusal("invalid_scope", f"The only scope is {SCOPE}")
    if SOURCE.fullmatch(form.get("source", "")) is None:
        return OAuthRefusal("invalid_request", "source may have 40 letters, digits, '.', '_' and '-'")
    return None


def read_address(request: Request) -> str:
    """Return the address of the client. A proxy may have taken it from a header, which can hold any text."""
    try:
        return "unknown" if request.client is None else str(ipaddress.ip_address(request.client.host))
    except ValueError:
        return "unknown"


async def _answer(request: Request, here: Server, answer: Callable[[FormFields, str], Awaitable[Response]]) -> Response:
    """Answer a known client. Errors have the form of RFC 6749, 5.2."""
    try:
        form = await read_form(request)
        name = form.get("client_id", "")[: limits.NAME_CHARS]
        if await here.read(lambda tx: find_client(tx, name)) is None:
            return _refuse(OAuthRefusal("invalid_client", UNKNOWN_CLIENT))
        return await answer(form, name)
    except Fault as fault:
        error = "temporarily_unavailable" if isinstance(fault, TooMany) else "invalid_request"
        return _refuse(OAuthRefusal(error, fault.reason))


def _exchange(here: Server, form: FormFields, client: str) -> Exchange | OAuthRefusal:
    key, at = here.options.token_key, here.now()
    grant_type = form.get("grant_type", "")
    needed = {"authorization_code": ("code", "redirect_uri", "code_verifier"), DEVICE_GRANT: ("device_code",)}
    needed["refresh_token"] = ("refresh_token",)
    if grant_type not in needed:
        return OAuthRefusal("unsupported_grant_type", f"grant_type is one of {', '.join(needed)}")
    if missing := [name for name in needed[grant_type] if not form.get(name)]:
        return OAuthRefusal("invalid_request", f"{', '.join(missing)} is missing")
    given = [form[name] for name in needed[grant_type]]
    if grant_type == DEVICE_GRANT:
        return lambda tx: poll(tx, key, client, given[0], at)
    if grant_type == "refresh_token":
        return lambda tx: refresh(tx, key, client, given[0], at)
    if VERIFIER.fullmatch(given[2]) is None:
        return OAuthRefusal("invalid_grant", "The code verifier does not fit (PKCE)")
    code, redirect_uri, verifier = given
    return lambda tx: exchange_code(tx, key, client, code, redirect_uri, verifier, at)


def _say(issued: IssuedTokens) -> dict[str, Any]:
    told: dict[str, Any] = {
        "access_token": issued.access,
        "refresh_token": issued.refresh,
        "token_type": "Bearer",
        "expires_in": issued.expires_in_seconds,
        "scope": SCOPE,
    }
    if issued.workspace:  # what the person chose at consent
        chosen = {"peerName": issued.person, "workspace": issued.workspace}
        told["config"] = {name: value for name, value in chosen.items() if value}
    return told


def _refuse(refusal: OAuthRefusal) -> Response:
    status = {"invalid_client": 401, "temporarily_unavailable": 429}.get(refusal.error, 400)
    told = {"error": refusal.error, "error_description": refusal.reason}
    return JsonResponse(told, status, headers=NOT_STORED)
