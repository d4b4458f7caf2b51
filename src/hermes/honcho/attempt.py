"""One attempt to deliver entries to one destination, and the record of earlier attempts whose outcome is unknown."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from hermes.clock import Clock
from hermes.honcho.addresses import EntryTarget
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.failures import NOT_FOUND_STATUS, Failure, Refusal
from hermes.honcho.identity import find_peer
from hermes.honcho.links import Link, Observing
from hermes.honcho.names import workspace_path
from hermes.honcho.wire import DeliveryTimeouts, WireResponse
from hermes.memory.provider import Entry, Host, Later, Speaker
from hermes.types import Json

KEY_LIFETIME_SECONDS = 6 * 86_400.0
"""How long our own server remembers an idempotency key. Older entries are searched for, as on any other server."""
MAX_REMEMBERED_ENTRIES = 20_000
"""Entries whose last outcome this process remembers."""


class _Known(Struct, frozen=True):
    at: float
    doubt: float | None


class Doubts:
    """Outcomes of this process's attempts. An attempt by another process counts as possibly arrived."""

    def __init__(self, clock: Clock, timeouts: DeliveryTimeouts) -> None:
        self._clock = clock
        self._timeouts = timeouts
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def seconds_to_certainty(self, entry: Entry) -> float | None:
        """Return the seconds until a search can tell whether the entry arrived, 0 if now; None if it surely did not."""
        doubt = self._doubt(entry.key, entry.tried_at)
        return None if doubt is None else max(0.0, doubt + self._timeouts.look_after - self._clock.now())

    def seconds_for_all(self, tried: Mapping[str, float]) -> float:
        """Return the seconds until none of these entries can arrive any more. `tried` maps keys to the time of the
        last attempt."""
        doubts = [doubt for key, at in tried.items() if (doubt := self._doubt(key, at)) is not None]
        return max(0.0, max(doubts, default=0.0) + self._timeouts.look_after - self._clock.now())

    def mark_taken(self, entries: Iterable[Entry]) -> None:
        """Record that this process took these entries; its knowledge of their earlier attempts stays valid."""
        for entry in entries:
            self._set(entry.key, self._doubt(entry.key, entry.tried_at))

    def mark_sending(self, entries: Iterable[Entry]) -> None:
        """Record that a request with these entries is on its way and may arrive."""
        for entry in entries:
            self._set(entry.key, self._clock.now())

    def mark_absent(self, entries: Iterable[Entry]) -> None:
        """Record that the server does not have these entries."""
        for entry in entries:
            self._set(entry.key, None)

    def _doubt(self, key: str, tried_at: float | None) -> float | None:
        if tried_at is None:
            return None
        known = self._known.get(key)
        if known is None or known.at < tried_at:
            return tried_at + self._timeouts.attempt
        return known.doubt

    def _set(self, key: str, doubt: float | None) -> None:
        self._known[key] = _Known(self._clock.now(), doubt)
        self._known.move_to_end(key)
        while len(self._known) > MAX_REMEMBERED_ENTRIES:
            self._known.popitem(last=False)


class Attempt(Struct, frozen=True):
    """The context shared by all writing functions of one delivery. Paths are relative to the workspace."""

    link: Link
    config: HonchoConfiguration
    doubts: Doubts
    host: Host
    until: float
    target: EntryTarget

    async def ask(self, method: str, path: str, body: Json = None) -> WireResponse:
        """Send one request. Raises Failure."""
        whole = f"{workspace_path(self.target.workspace)}/{path}"
        return await self.link.wire.ask(method, whole, body, until=self.until)

    async def ask_if_there(self, method: str, path: str, body: Json = None) -> WireResponse | None:
        """Send one request; return None if its object does not exist (404). Raises Failure."""
        try:
            return await self.ask(method, path, body)
        except Refusal as refusal:
            if refusal.status != NOT_FOUND_STATUS:
                raise
            return None

    async def write(self, entries: Sequence[Entry], path: str, body: Json) -> WireResponse:
        """Send one request that writes these entries, and record whether they may have arrived. Raises Failure."""
        self.doubts.mark_sending(entries)
        try:
            return await self.ask("POST", path, body)
        except Failure as failure:
            if failure.may_have_arrived:
                self.doubts.mark_sending(entries)  # until now: the server may still be busy with it
            else:
                self.doubts.mark_absent(entries)
            raise

    def must_look(self, entry: Entry) -> bool | Later:
        """Return True if the entry must be searched for before it is written; Later if a search could not tell yet."""
        wait = self.doubts.seconds_to_certainty(entry)
        since = entry.at if entry.queued_at is None else entry.queued_at
        if wait is None or (self.link.takes_keys and self.host.clock.now() - since < KEY_LIFETIME_SECONDS):
            return False
        return True if wait == 0 else Later("it may have arrived, which can be seen in a while", after=wait)

    def peer_of(self, speaker: Speaker | None) -> str:
        """Return the peer of a speaker under the current settings."""
        key = self.target.session_key or self.target.session
        return find_peer(self.config.identities, speaker, key, self.target.came_by).name

    def observing(self, peers: set[str]) -> dict[str, Observing]:
        """Return the observation settings of these peers in the session; agents talking to each other observe
        nothing."""
        if self.target.talk_of is not None:
            return dict.fromkeys(sorted(peers), Observing(observe_me=False, observe_others=False))
        settings = {peer: self.config.observation["ai" if peer == self.target.ai_peer else "user"] for peer in peers}
        return {peer: Observing(settings[peer]["observeMe"], settings[peer]["observeOthers"]) for peer in sorted(peers)}

    def observer_of(self, observed: str) -> str:
        """Return the peer whose view a conclusion belongs to: the agent if it observes others, else the observed
        peer."""
        return self.target.ai_peer if self.config.observation["ai"]["observeOthers"] else observed
