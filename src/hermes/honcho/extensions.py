"""What our own memory server can do beyond the Honcho API. `/health` names it; other Honcho servers have none of it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from hermes.errors import ProviderError
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.failures import ACCESS_REFUSED, NOT_FOUND, Failure, Refusal
from hermes.honcho.names import peer_path, workspace_path
from hermes.honcho.renewal import LOGIN
from hermes.honcho.server import PATIENCE, Machine, make_auth, reachable
from hermes.honcho.token_requests import ERRNO
from hermes.honcho.wire import understand
from hermes.loopback import is_loopback_url
from hermes.redaction import hide_tokens
from hermes.types import Json

MERGE = "merge_peers"


class MergeCounts(Struct, frozen=True):
    """How much of a peer would become another's."""

    messages: int
    sessions: int
    conclusions: int


class Extensions:
    """Asks one server, in the workspace of the configuration unless another is given. Raises ProviderError, in
    words."""

    def __init__(self, config: HonchoConfiguration, machine: Machine, workspace: str | None = None) -> None:
        server = reachable(config, machine)
        self.workspace = workspace_path(workspace or config.workspace)
        self._url = server.url
        self._server = server
        self._auth = make_auth(server, machine)
        self._client: httpx.Client | None = None

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Keep a connection while the block runs, for who asks much."""
        is_plain = self._url.startswith("http://")
        trust = not is_loopback_url(self._url)
        with httpx.Client(auth=self._auth, timeout=PATIENCE, verify=not is_plain, trust_env=trust) as client:
            self._client = client
            try:
                yield
            finally:
                self._client = None

    def has(self, *extensions: str) -> bool:
        """Whether the server can do all of this beyond the API."""
        found = self.ask("GET", "/health", missing={})
        named = found.get("extensions") if isinstance(found, dict) else None
        return isinstance(named, list) and all(one in named for one in extensions)

    def preview_merge(self, peer: str, into: str) -> MergeCounts | None:
        """What would become the other's, or None when the server knows no such peer. Nothing is changed."""
        found = self.ask("GET", self._merging(peer), missing={}, params={"into": into})
        if not found:
            return None
        try:
            return msgspec.convert(found, MergeCounts, strict=False)
        except msgspec.ValidationError as error:
            raise ProviderError("the server did not say what a merge would move", hint="") from error

    def merge(self, peer: str, into: str) -> None:
        """Let a peer become a part of another, which is made where it is missing; the server goes on with it by
        itself."""
        self.ask("POST", f"{self.workspace}/peers", json={"id": into})
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        self.ask("POST", self._merging(peer), json={"into": into}, headers=headers)

    def _merging(self, peer: str) -> str:
        return f"{self.workspace}/ext/{peer_path(peer, 'merge')}"

    def ask(self, method: str, path: str, *, missing: Json = None, **given: Any) -> Json:
        """The server's answer; `missing` for a 404 where that is an answer too. `given` is as httpx takes it."""
        if self._client is None:
            with self.connected():
                return self.ask(method, path, missing=missing, **given)
        try:
            answer = self._client.request(method, f"{self._url}{path}", **given)
            if answer.status_code == NOT_FOUND and missing is not None:
                return missing
            return understand(answer.status_code, answer.content, answer.headers).value
        except Refusal as refusal:
            advice = "Check `apiKey`" if self._server.sign_in is None else LOGIN
            hint = advice if refusal.status in ACCESS_REFUSED else ""
            raise ProviderError(str(refusal), hint=hint) from refusal
        except (httpx.HTTPError, httpx.InvalidURL, Failure) as error:
            why = ERRNO.sub("", hide_tokens(str(error)))
            raise ProviderError(f"the server did not answer well: {why}", hint="") from error
