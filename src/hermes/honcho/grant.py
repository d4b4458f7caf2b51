"""A sign-in: the tokens of one OAuth grant, their form in honcho.json, and the parsing of token responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from hermes.errors import SettingsError
from hermes.honcho import keys
from hermes.honcho.config_file import Block, Edit
from hermes.types import Json

ACCESS_PREFIX = "hch-at-"
"""Prefix of access tokens. Any other value of `apiKey` is an API key, which is never renewed."""
CLOUD = "https://api.honcho.dev"
CLIENT_ID, SCOPE = "hermes-agent", "write"
RENEW_AHEAD_SECONDS = 120.0
"""How long before its expiry a token is renewed."""
MAX_TOKEN_CHARS = 8_192
MAX_LIFE_SECONDS = 10 * 365 * 86_400
MAX_TIME_SECONDS = 1e11
SEEDED = (
    *(keys.PEER_NAME, keys.AI_PEER, keys.WORKSPACE, keys.RECALL_MODE, keys.OBSERVATION_MODE),
    *(keys.WRITE_FREQUENCY, keys.SESSION_STRATEGY, keys.CONTEXT_TOKENS),
)
"""Keys that the `config` of a grant may suggest. It may not name the owner or a server."""


class TokenResponse(Struct, frozen=True):
    """A token response. A missing `refresh_token` is "", a missing `life_seconds` None."""

    access_token: str
    refresh_token: str
    life_seconds: float | None
    scope: str
    config: Mapping[str, Any]

    def __repr__(self) -> str:
        return "TokenResponse(…)"


class SignIn(Struct, frozen=True):
    """One grant. `server` is the URL that it was made for; "" in files of earlier versions."""

    access_token: str
    refresh_token: str
    expires_at: float | None
    client_id: str
    token_endpoint: str
    server: str
    granted_at: float | None = None
    scope: str = SCOPE

    def __repr__(self) -> str:
        return f"SignIn({self.client_id!r}, expires_at={self.expires_at})"

    @property
    def made_for(self) -> str:
        """The server that the token may be sent to; "" if unknown."""
        return self.server or (CLOUD if self.token_endpoint.startswith(f"{CLOUD}/") else "")

    def is_due(self, now: float) -> bool:
        """Return True if the token expires soon. A token without expiry is renewed after a refusal."""
        return self.expires_at is not None and self.expires_at - now <= RENEW_AHEAD_SECONDS

    def has_ended(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def renewed(self, answer: TokenResponse, now: float) -> SignIn:
        """Return the sign-in with the tokens of a response; without a new refresh token the old one stays."""
        return replace(
            self,
            access_token=answer.access_token,
            refresh_token=answer.refresh_token or self.refresh_token,
            expires_at=None if answer.life_seconds is None else int(now + answer.life_seconds),
            scope=answer.scope or self.scope,
        )

    def as_keys(self) -> dict[str, Any]:
        """Return the sign-in as keys of honcho.json."""
        grant = {
            "refreshToken": self.refresh_token,
            "expiresAt": self.expires_at,
            "clientId": self.client_id,
            "tokenEndpoint": self.token_endpoint,
            "scope": self.scope,
            "tokenType": "Bearer",
            "server": self.server,
            "grantedAt": self.granted_at,
        }
        kept = {name: value for name, value in grant.items() if value not in (None, "")}
        return {keys.API_KEY.key: self.access_token, keys.OAUTH.key: kept}


def is_access_token(key: object) -> TypeGuard[str]:
    return isinstance(key, str) and key.startswith(ACCESS_PREFIX)


def read_sign_in(block: Mapping[str, Any]) -> SignIn | None:
    """Return the sign-in in a host block or root; None without one."""
    token, grant = block.get(keys.API_KEY.key), block.get(keys.OAUTH.key)
    if not is_access_token(token) or not isinstance(grant, Mapping):
        return None
    texts = {name: value for name, value in grant.items() if isinstance(value, str)}
    if not (refresh_token := texts.get("refreshToken", "")):
        return None
    return SignIn(
        *(token.strip(), refresh_token, read_time(grant.get("expiresAt")), texts.get("clientId") or CLIENT_ID),
        *(texts.get("tokenEndpoint", ""), texts.get("server", ""), read_time(grant.get("grantedAt"))),
        scope=texts.get("scope") or SCOPE,
    )


def put_sign_in(sign_in: SignIn, *, at_root: bool) -> Edit:
    """Return an edit that stores a sign-in and keeps foreign keys of its grant."""

    def edit(block: Block, root: Block) -> None:
        target, given = root if at_root else block, sign_in.as_keys()
        before = target.get(keys.OAUTH.key)
        known = dict(before) if isinstance(before, Mapping) else {}
        if sign_in.expires_at is None:
            known.pop("expiresAt", None)
        target.update({**given, keys.OAUTH.key: {**known, **given[keys.OAUTH.key]}})

    return edit


def parse_token_response(value: Json) -> TokenResponse:
    """Return the token response in a JSON value. Raises ValueError with a readable message."""
    if not isinstance(value, Mapping):
        raise ValueError("it is not an object")
    if str(value.get("token_type", "bearer")).lower() != "bearer":
        raise ValueError("its tokens are not bearer tokens")
    config, access_token = value.get("config"), _token(value, "access_token")
    if not is_access_token(access_token):  # stored in `apiKey`, it would be taken for an API key
        raise ValueError(f"it has no access_token that begins with {ACCESS_PREFIX}")
    return TokenResponse(
        access_token,
        _token(value, "refresh_token") if value.get("refresh_token") is not None else "",
        _life(value.get("expires_in")),
        str(value.get("scope") or "")[:200],
        config if isinstance(config, Mapping) else {},
    )


def suggested(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid keys that a grant's `config` may and does suggest."""
    found: dict[str, Any] = {}
    for row in SEEDED:
        try:
            if row.key in config and (value := row.parse(config[row.key], "the sign-in")):
                found[row.key] = value
        except SettingsError:
            continue
    return found


def _token(value: Mapping[str, Any], name: str) -> str:
    token = value.get(name)
    if not isinstance(token, str) or not 0 < len(token) <= MAX_TOKEN_CHARS:
        raise ValueError(f"it has no {name}")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"its {name} cannot be sent in a header")
    return token


def _life(given: object) -> float | None:
    text = str(given) if isinstance(given, int | float | str) and not isinstance(given, bool) else ""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return min(seconds, MAX_LIFE_SECONDS) if seconds > 0 else None


def read_time(given: object) -> float | None:
    """Return a grant's timestamp in seconds since 1970; None if it is invalid, such as milliseconds."""
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return given if is_number and 0 <= given < MAX_TIME_SECONDS else None  # type: ignore[operator, return-value]
