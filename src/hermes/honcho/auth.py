"""By what the server lets us in, in words: a key, or the token of a sign-in. The secret itself is never shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hermes.honcho import keys
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.server import find_server

MINUTE = 60


def describe_auth(config: HonchoConfiguration, now: float) -> str:
    """What is sent to the server in force, in words."""
    server = find_server(config)
    if server.kind == "embedded":
        return "a key of its own, made at each start"
    if not server.key:
        return "none"
    return "API key" if config.grant is None else describe_grant(config.grant, now)


def describe_grant(grant: Mapping[str, object], now: float) -> str:
    """Who signed in, and for how long that holds."""
    minutes = _minutes_left(grant, now)
    validity = "token of unknown age" if minutes is None else f"token valid {minutes}m" if minutes > 0 else "expired"
    return f"OAuth ({grant.get('clientId', 'unknown client')}, {validity})"


def auth_remarks(config: HonchoConfiguration, now: float) -> Iterator[str]:
    """A sign-in that is not used, and one that is used but no longer holds."""
    if find_server(config).kind == "embedded":
        return
    if config.get(keys.OAUTH) is not None and config.grant is None:
        where = config.settings.where
        yield f"{where(keys.OAUTH)}: the sign-in is not used: apiKey comes from {where(keys.API_KEY)}"
    minutes = None if config.grant is None else _minutes_left(config.grant, now)
    if minutes is not None and minutes <= 0:
        yield "the sign-in has expired and is not renewed by this version; `hermes memory setup honcho` takes a key"


def _minutes_left(grant: Mapping[str, object], now: float) -> int | None:
    expires = grant.get("expiresAt")
    return int((expires - now) / MINUTE) if isinstance(expires, int | float) else None
