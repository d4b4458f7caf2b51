"""Features of our memory server beyond the Honcho API, announced by `/health`. Other Honcho servers have none."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from hermes.errors import ProviderError
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.failures import ACCESS_STATUSES, NOT_FOUND_STATUS, Failure, Refusal
from hermes.honcho.identity import Identities
from hermes.honcho.names import peer_path, workspace_path
from hermes.honcho.oauth import ERRNO
from hermes.honcho.renewal import LOGIN
from hermes.honcho.server import COMMAND_TIMEOUT_SECONDS, Machine, connect_server, make_auth
from hermes.honcho.wire import parse_response
from hermes.loopback import is_loopback_url
from hermes.redaction import hide_tokens
from hermes.types import Json

MERGE = "merge_peers"


class MergeCounts(Struct, frozen=True):
    """The size of a peer merge."""

    messages: int
    sessions: int
    conclusions: int


class Extensions:
    """A blocking client for the server's extensions, in the configured workspace unless another is given. Raises
    ProviderError with a readable message."""

    def __init__(self, config: HonchoConfiguration, machine: Machine, workspace: str | None = None) -> None:
        server = connect_server(config, machine)
        self.workspace = workspace_path(workspace or config.workspace)
        self._url = server.url
        self._server = server
        self._auth = make_auth(server, machine)
        self._client: httpx.Client | None = None

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Reuse one connection for all requests of the block."""
        is_plain = self._url.startswith("http://")
        trust = not is_loopback_url(self._url)
        with httpx.Client(
            auth=self._auth, timeout=COMMAND_TIMEOUT_SECONDS, verify=not is_plain, trust_env=trust
        ) as client:
            self._client = client
            try:
                yield
            finally:
                self._client = None

    def has(self, *extensions: str) -> bool:
        """Return True if the server has all of these extensions."""
        found = self.ask("GET", "/health", missing={})
        named = found.get("extensions") if isinstance(found, dict) else None
        return isinstance(named, list) and all(one in named for one in extensions)

    def preview_merge(self, peer: str, into: str) -> MergeCounts | None:
        """Return what a merge would move, or None if the server does not know the peer. Read-only."""
        found = self.ask("GET", self._merging(peer), missing={}, params={"into": into})
        if not found:
            return None
        try:
            return msgspec.convert(found, MergeCounts, strict=False)
        except msgspec.ValidationError as error:
            raise ProviderError("the server's preview of the merge is invalid", hint="") from error

    def merge(self, peer: str, into: str) -> None:
        """Start merging a peer into another, which is created if missing. The server finishes in the background."""
        self.ask("POST", f"{self.workspace}/peers", json={"id": into})
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        self.ask("POST", self._merging(peer), json={"into": into}, headers=headers)

    def _merging(self, peer: str) -> str:
        return f"{self.workspace}/ext/{peer_path(peer, 'merge')}"

    def ask(self, method: str, path: str, *, missing: Json = None, **given: Any) -> Json:
        """Send a request and return the response's value; `missing`, if given, for a 404. `given` goes to httpx."""
        if self._client is None:
            with self.connected():
                return self.ask(method, path, missing=missing, **given)
        try:
            answer = self._client.request(method, f"{self._url}{path}", **given)
            if answer.status_code == NOT_FOUND_STATUS and missing is not None:
                return missing
            return parse_response(answer.status_code, answer.content, answer.headers).value
        except Refusal as refusal:
            advice = "Check `apiKey`" if self._server.sign_in is None else LOGIN
            hint = advice if refusal.status in ACCESS_STATUSES else ""
            raise ProviderError(str(refusal), hint=hint) from refusal
        except (httpx.HTTPError, httpx.InvalidURL, Failure) as error:
            why = ERRNO.sub("", hide_tokens(str(error)))
            raise ProviderError(f"the request to the server failed: {why}", hint="") from error


PEERS_PER_PAGE, MAX_PEER_PAGES = 100, 10


class OwnersMerging:
    """Merges in one workspace. Raises ProviderError with a readable message."""

    def __init__(self, server: Extensions, who: Identities) -> None:
        self._server = server
        self._who = who

    def peers(self) -> Sequence[str]:
        """Return the owner, then peers that belong to nobody else; empty if the server cannot merge."""
        if not self._server.has(MERGE):
            return ()
        others = sorted(name for name in self._listed() if not self._is_others(name))
        return [self._who.owner, *(name for name in others if name != self._who.owner)]

    def preview(self, peer: str, into: str) -> str:
        """Describe what a merge would move. Read-only."""
        self._check(peer, into)
        found = self._server.preview_merge(peer, into)
        if found is None:
            raise ProviderError(f"the server knows no peer '{peer[:80]}'", hint="Reload the page")
        return (
            f"{found.messages:,} messages, {found.sessions:,} sessions and {found.conclusions:,} facts of {peer} "
            f"would become {into}'s"
        )

    def merge(self, peer: str, into: str) -> None:
        self._check(peer, into)
        self._server.merge(peer, into)

    def _check(self, peer: str, into: str) -> None:
        if peer == into or peer == self._who.owner or not {peer, into} <= set(self.peers()):
            raise ProviderError(
                f"'{peer[:80]}' cannot be merged into '{into[:80]}'", hint="Choose two names from the list"
            )

    def _is_others(self, name: str) -> bool:
        """Return True if a peer is an agent's, or another account's."""
        who = self._who
        if who.is_owners(name):
            return False
        return who.is_own(name) or name in who.guests.holders or name in who.aliases.values()

    def _listed(self) -> Sequence[str]:
        found: list[str] = []
        for page in range(1, MAX_PEER_PAGES + 1):
            path = f"{self._server.workspace}/peers/list?page={page}&size={PEERS_PER_PAGE}"
            rows: Json = self._server.ask("POST", path, json={}).get("items", [])
            found += [str(row["id"]) for row in rows]
            if len(rows) < PEERS_PER_PAGE:
                break
        return found
