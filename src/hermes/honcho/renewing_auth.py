"""The key of a command's requests, which is renewed when it is the token of a sign-in and has ended."""

from __future__ import annotations

from collections.abc import Generator

import httpx

from hermes.honcho.failures import KEY_REFUSED
from hermes.honcho.renewal import Renewal


class RenewingAuth(httpx.Auth):
    """Sends a request whose token was refused once more with the next token. Raises what renewing raises."""

    def __init__(self, key: str, renewal: Renewal | None) -> None:
        self._key = key
        self._renewal = renewal

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._key}"
        response = yield request
        if response.status_code == KEY_REFUSED and self._renewal is not None:
            renewal, self._renewal = self._renewal, None
            self._key = renewal.renew(self._key).access_token
            request.headers["Authorization"] = f"Bearer {self._key}"
            yield request
