"""One attempt to deliver: the server it talks with, who is who now, and what may have arrived before."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hermes.honcho.addresses import EntryTarget
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.doubts import Doubts
from hermes.honcho.failures import Failure
from hermes.honcho.identity import find_peer
from hermes.honcho.links import Link
from hermes.honcho.members import Observing
from hermes.honcho.wire import WireAnswer
from hermes.memory.provider import Entry, Host, Later, Speaker
from hermes.types import Json

KEYS_LAST = 6 * 86_400.0
"""Seconds for which our own server remembers a key. For an older row we look whether it arrived, as on any server."""


class Attempt(Struct, frozen=True):
    """What all writing functions of one delivery share."""

    link: Link
    config: HonchoConfiguration
    doubts: Doubts
    host: Host
    until: float

    async def ask(self, method: str, path: str, body: Json = None) -> WireAnswer:
        """One request. Raises Failure."""
        return await self.link.wire.ask(method, path, body, until=self.until)

    async def write(self, entries: Sequence[Entry], path: str, body: Json) -> WireAnswer:
        """One request that writes these entries. Raises Failure; whether they may be there is remembered."""
        self.doubts.sending(entries)
        try:
            return await self.ask("POST", path, body)
        except Failure as failure:
            if failure.may_have_arrived:
                self.doubts.given_up(entries)
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

    def peer_of(self, target: EntryTarget, speaker: Speaker | None) -> str:
        """The peer of a speaker, by the settings of this moment."""
        return find_peer(self.config.identities, speaker, target.session_key or target.session).name

    def observing(self, target: EntryTarget, peer: str) -> Observing:
        """What a peer observes in a session."""
        settings = self.config.observation["ai" if peer == target.ai_peer else "user"]
        return Observing(settings["observeMe"], settings["observeOthers"])

    def observer_of(self, target: EntryTarget, observed: str) -> str:
        """Whose view of a peer a conclusion belongs to: the agent's where it has one, else the peer's own."""
        if self.config.observation["ai"]["observeOthers"]:
            return target.ai_peer
        return observed
