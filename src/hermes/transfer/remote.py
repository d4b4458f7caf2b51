"""A client for one workspace of a Honcho server. Repeatable requests are retried; others report an unknown outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from hermes.errors import TransferError
from hermes.loopback import is_loopback_url

REQUEST_TIMEOUT_SECONDS = 60.0
MAX_ATTEMPTS = 6
FIRST_RETRY_DELAY_SECONDS = 0.2
TEMPORARY_STATUSES = frozenset({429, 502, 503, 504})
"""Statuses of temporary failures."""
MAX_REPLY_CHARS = 300
PAGE_ITEMS = 100


class RefusedError(Exception):
    """The server refused the request."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class UnheardError(Exception):
    """The server may or may not have executed the request."""


class Remote:
    """A client of one server. Paths are relative to the workspace unless they begin with a slash."""

    def __init__(
        self,
        url: str,
        key: str | None,
        workspace: str,
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(
            base_url=url.rstrip("/"),
            headers=headers,
            timeout=REQUEST_TIMEOUT_SECONDS,
            transport=transport,
            trust_env=not is_loopback_url(url),
        )
        self.url = url.rstrip("/")
        self.workspace = workspace

    def close(self) -> None:
        self._client.close()

    def extensions(self) -> frozenset[str]:
        """Return the names of the server's extensions to Honcho; empty for other servers."""
        try:
            told = self.ask("GET", "/health")
        except RefusedError:
            return frozenset()
        named = told.get("extensions") if isinstance(told, dict) else None
        return frozenset(str(name) for name in named) if isinstance(named, list) else frozenset()

    def ask(self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> Any:
        """Return the response to a request that may safely be repeated."""
        problem = ""
        for attempt in range(MAX_ATTEMPTS):
            try:
                return self._send(method, path, body, query, {})
            except UnheardError as error:
                problem = str(error)
            except RefusedError as error:
                if error.status not in TEMPORARY_STATUSES:
                    raise
                problem = error.reason
            self.pause(attempt)
        raise TransferError(f"{self.url} does not respond: {problem}", hint="Run the same command again to resume")

    def send_once(self, path: str, body: Any, key: str) -> Any:
        """POST a request that must not be executed twice. Our own server recognizes the key; with others the caller
        must check."""
        try:
            return self._send("POST", path, body, None, {"Idempotency-Key": key})
        except RefusedError as error:
            if error.status in TEMPORARY_STATUSES:
                raise UnheardError(error.reason) from error
            raise

    def pause(self, attempt: int) -> None:
        time.sleep(FIRST_RETRY_DELAY_SECONDS * 2**attempt)

    def total(self, path: str, filters: Mapping[str, Any] | None = None) -> int:
        told = self.ask("POST", path, {"filters": filters} if filters else {}, {"page": 1, "size": 1})
        return int(told["total"])

    def _send(
        self, method: str, path: str, body: Any, query: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> Any:
        at = path if path.startswith("/") else f"/v3/workspaces/{quote(self.workspace, safe='')}/{path}"
        try:
            answer = self._client.request(method, at, json=body, params=query, headers=headers)
        except httpx.TransportError as error:
            raise UnheardError(str(error) or type(error).__name__) from error
        except (httpx.InvalidURL, UnicodeError) as error:
            raise TransferError(f"{self.url} is not an address: {error}") from error
        if answer.status_code >= 400:
            raise RefusedError(answer.status_code, _reason(answer))
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            raise TransferError(f"{self.url}{at} is not a Honcho server: its response is not JSON") from error


def segment(name: str) -> str:
    """Return a name quoted as part of a path."""
    return quote(name, safe="")


def _reason(answer: httpx.Response) -> str:
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = answer.text
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        detail = detail[0].get("msg", detail[0])
    return f"{answer.status_code} {' '.join(str(detail).split())}"[:MAX_REPLY_CHARS]
