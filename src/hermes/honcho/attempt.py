"""One attempt to deliver to one place: the server it talks with, who is who now, and what may have arrived before:
entries whose last attempt got no answer, and from when on a look can tell."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from hermes.clock import Clock
from hermes.honcho.addresses import EntryTarget
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.failures import NOT_FOUND, Failure, Refusal
from hermes.honcho.identity import find_peer
from hermes.honcho.links import Link
from hermes.honcho.members import Observing
from hermes.honcho.names import workspace_path
from hermes.honcho.wire import DeliveryPatience, WireAnswer
from hermes.memory.provider import Entry, Host, Later, Speaker
from hermes.types import Json

KEYS_LAST = 6 * 86_400.0
"""Seconds for which our own server remembers a key. For an older row we look whether it arrived, as on any server."""
REMEMBERED = 20_000
"""Entries of which this process knows how their last attempt ended."""


class _Known(Struct, frozen=True):
    at: float
    doubt: float | None


class Doubts:
    """What this process knows of the attempts it made. Of those that another process made it assumes the worst."""

    def __init__(self, clock: Clock, patience: DeliveryPatience) -> None:
        self._clock = clock
        self._patience = patience
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def wait(self, entry: Entry) -> float | None:
        """Seconds until a look can tell whether the entry arrived, 0 when it can now; None when it surely did not."""
        doubt = self._doubt(entry.key, entry.tried_at)
        return None if doubt is None else max(0.0, doubt + self._patience.look_after - self._clock.now())

    def wait_for_all(self, tried: Mapping[str, float]) -> float:
        """The same for entries that were tried then, by key: seconds until none of them can arrive any more."""
        doubts = [doubt for key, at in tried.items() if (doubt := self._doubt(key, at)) is not None]
        return max(0.0, max(doubts, default=0.0) + self._patience.look_after - self._clock.now())

    def taken(self, entries: Iterable[Entry]) -> None:
        """This process has taken these entries: what it knows of their earlier attempts stays valid."""
        for entry in entries:
            self._set(entry.key, self._doubt(entry.key, entry.tried_at))

    def sending(self, entries: Iterable[Entry]) -> None:
        """A request with these entries is being sent; from now on it may arrive."""
        for entry in entries:
            self._set(entry.key, self._clock.now())

    def absent(self, entries: Iterable[Entry]) -> None:
        """The server surely does not have these entries."""
        for entry in entries:
            self._set(entry.key, None)

    def _doubt(self, key: str, tried_at: float | None) -> float | None:
        if tried_at is None:
            return None
        known = self._known.get(key)
        if known is None or known.at < tried_at:
            return tried_at + self._patience.attempt
        return known.doubt

    def _set(self, key: str, doubt: float | None) -> None:
        self._known[key] = _Known(self._clock.now(), doubt)
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


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
        key = self.target.session_key or self.target.session
        return find_peer(self.config.identities, speaker, key, self.target.came_by).name

    def observing(self, peers: set[str]) -> dict[str, Observing]:
        """What peers observe in a session. Nothing is concluded from what agents say to each other."""
        if self.target.talk_of is not None:
            return dict.fromkeys(sorted(peers), Observing(observe_me=False, observe_others=False))
        settings = {peer: self.config.observation["ai" if peer == self.target.ai_peer else "user"] for peer in peers}
        return {peer: Observing(settings[peer]["observeMe"], settings[peer]["observeOthers"]) for peer in sorted(peers)}

    def observer_of(self, observed: str) -> str:
        """Whose view of a peer a conclusion belongs to: the agent's where it has one, else the peer's own."""
        return self.target.ai_peer if self.config.observation["ai"]["observeOthers"] else observed
