"""One attempt to deliver to one place: the server it talks with, who is who now, and what may have arrived before."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hermes.honcho.addresses import EntryTarget
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.doubts import Doubts
from hermes.honcho.failures import NOT_FOUND, Failure, Refusal
from hermes.honcho.identity import find_peer
from hermes.honcho.links import Link
from hermes.honcho.members import Observing
from hermes.honcho.names import workspace_path
from hermes.honcho.wire import WireAnswer
from hermes.memory.provider import Entry, Host, Later, Speaker
from hermes.types import Json

KEYS_LAST = 6 * 86_400.0
"""Seconds for which our own server remembers a key. For an older row we look whether it arrived, as on any server."""


class Attempt(Struct, frozen=True):
    """What all writing functions of one delivery share. Paths are those below the workspace."""

    link: Link
    config: HonchoConfiguration
    doubts: Doubts
    host: Host
    until: float
    target: EntryTarget

    async def ask(self, method: str, path: str, body: Json = None) -> WireAnswer:
        """One request. Raises Failure."""
        whole = f"{workspace_path(self.target.workspace)}/{path}"
        return await self.link.wire.ask(method, whole, body, until=self.until)

    async def ask_if_there(self, method: str, path: str, body: Json = None) -> WireAnswer | None:
        """The same; None where what it is about is gone."""
        try:
            return await self.ask(method, path, body)
        except Refusal as refusal:
            if refusal.status != NOT_FOUND:
                raise
            return None

    async def write(self, entries: Sequence[Entry], path: str, body: Json) -> WireAnswer:
        """One request that writes these entries. Raises Failure; whether they may be there is remembered."""
        self.doubts.sending(entries)
        try:
            return await self.ask("POST", path, body)
        except Failure as failure:
            if failure.may_have_arrived:
                self.doubts.sending(entries)  # until now: the server may still be busy with it
            else:
                self.doubts.absent(entries)
            raise

    def must_look(self, entry: Entry) -> bool | Later:
        """Whether it must be looked for before it is written; Later while a look could not tell yet."""
        wait = self.doubts.wait(entry)
        since = entry.at if entry.queued_at is None else entry.queued_at
        if wait is None or (self.link.takes_keys and self.host.clock.now() - since < KEYS_LAST):
            return False
        return True if wait == 0 else Later("it may have arrived, which can be seen in a while", after=wait)

    def peer_of(self, speaker: Speaker | None) -> str:
        """The peer of a speaker, by the settings of this moment."""
        return find_peer(self.config.identities, speaker, self.target.session_key or self.target.session).name

    def observing(self, peers: set[str]) -> dict[str, Observing]:
        """What peers observe in a session."""
        settings = {peer: self.config.observation["ai" if peer == self.target.ai_peer else "user"] for peer in peers}
        return {peer: Observing(settings[peer]["observeMe"], settings[peer]["observeOthers"]) for peer in sorted(peers)}

    def observer_of(self, observed: str) -> str:
        """Whose view of a peer a conclusion belongs to: the agent's where it has one, else the peer's own."""
        return self.target.ai_peer if self.config.observation["ai"]["observeOthers"] else observed
