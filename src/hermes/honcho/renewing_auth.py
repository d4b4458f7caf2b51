"""The key of a command's requests, renewed if it is an expired token of a sign-in."""

from __future__ import annotations

from collections.abc import Generator

import httpx

from hermes.honcho.failures import UNAUTHORIZED_STATUS
from hermes.honcho.renewal import Renewal


class RenewingAuth(httpx.Auth):
    """Repeats a request once with a renewed token after a refusal. Raises the errors of `Renewal.renew`."""

    def __init__(self, key: str, renewal: Renewal | None) -> None:
        self._key = key
        self._renewal = renewal

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._key}"
        response = yield request
        if response.status_code == UNAUTHORIZED_STATUS and self._renewal is not None:
            renewal, self._renewal = self._renewal, None
            self._key = renewal.renew(self._key).access_token
            request.headers["Authorization"] = f"Bearer {self._key}"
            yield request
