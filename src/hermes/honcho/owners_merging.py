"""Merging two names under which a server knows the owner. Peers of guests and agents are not offered."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.errors import ProviderError
from hermes.honcho.extensions import MERGE, Extensions
from hermes.honcho.identity import Identities
from hermes.types import Json

PAGE, MAX_PAGES = 100, 10


class OwnersMerging:
    """Works in one workspace. Raises ProviderError, in words."""

    def __init__(self, server: Extensions, who: Identities) -> None:
        self._server = server
        self._who = who

    def peers(self) -> Sequence[str]:
        """The owner first, then names that are nobody else's; none where the server cannot merge."""
        if not self._server.has(MERGE):
            return ()
        others = sorted(name for name in self._listed() if not self._is_others(name))
        return [self._who.owner, *(name for name in others if name != self._who.owner)]

    def preview(self, peer: str, into: str) -> str:
        """What would become the other's. Nothing is changed."""
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
            raise ProviderError(f"'{peer[:80]}' cannot become '{into[:80]}'", hint="Choose two names of the list")

    def _is_others(self, name: str) -> bool:
        """Whether a name is an agent's, or an account of someone else has it."""
        who = self._who
        if who.is_owners(name):
            return False
        return who.is_own(name) or name in who.guests.holders or name in who.aliases.values()

    def _listed(self) -> Sequence[str]:
        found: list[str] = []
        for page in range(1, MAX_PAGES + 1):
            path = f"{self._server.workspace}/peers/list?page={page}&size={PAGE}"
            rows: Json = self._server.ask("POST", path, json={}).get("items", [])
            found += [str(row["id"]) for row in rows]
            if len(rows) < PAGE:
                break
        return found
