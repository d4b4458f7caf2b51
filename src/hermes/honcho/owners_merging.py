"""Merging two peers of the owner. Peers of guests and agents are not offered."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.errors import ProviderError
from hermes.honcho.extensions import MERGE, Extensions
from hermes.honcho.identity import Identities
from hermes.types import Json

PEERS_PER_PAGE, MAX_PAGES = 100, 10


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
        for page in range(1, MAX_PAGES + 1):
            path = f"{self._server.workspace}/peers/list?page={page}&size={PEERS_PER_PAGE}"
            rows: Json = self._server.ask("POST", path, json={}).get("items", [])
            found += [str(row["id"]) for row in rows]
            if len(rows) < PEERS_PER_PAGE:
                break
        return found
