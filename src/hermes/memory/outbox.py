"""The outbox: what a provider is to be told, as rows of the durable queue, written in the commit of what they tell of.

    said (held for its reply) ── reply ── release ──> due ──> delivery

A row of what was said holds a reference and no text: it is read from the log when it is delivered, so that a message
that was deleted has nothing left to send. Rows are recorded per provider; those of one that is no longer active wait.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.lanes import join_lanes
from hermes.errors import ProviderError
from hermes.memory.values import Address, Conversation, Kind, Notebook, Speaker
from hermes.store.memory_rows import count_turn, find_place, set_place
from hermes.types import Json, Message

HOLD_FOR_REPLY = 120.0
"""Seconds that a question waits for its reply, so that both go together; after a crash time lets it go."""
HOLD_AT_MOST = 3600.0
"""Seconds that anything is held back at most."""
LONGEST_VALUE = 64_000
"""Characters of an entry that is kept by value."""


def queue_name(provider: str) -> str:
    """The queue of a provider's entries."""
    return f"memory:{provider}"


@dataclass(frozen=True, slots=True)
class Spot:
    """A place, and its address where it is known in this process."""

    place: str
    about: Conversation | Notebook
    address: Address | None = None

    @property
    def lane(self) -> str:
        return self.address.lane if self.address is not None else waiting_lane(self.place)

    @property
    def session_id(self) -> str | None:
        return self.about.session_id if isinstance(self.about, Conversation) else None

    def wants(self, kind: Kind) -> bool:
        """Whether the provider takes such entries. Until it has said so, they are kept for it."""
        return self.address is None or kind in self.address.wants


def waiting_lane(place: str) -> str:
    """The lane of entries whose provider has not said yet where they go."""
    return f"?{place}"


def is_waiting_lane(lane: str) -> bool:
    """Whether the entries of a lane have no address yet."""
    return lane.startswith("?")


@dataclass(frozen=True, slots=True)
class Outbox:
    """The rows of one provider. Every method runs inside the caller's transaction."""

    provider: str

    @property
    def queue(self) -> str:
        return queue_name(self.provider)

    def settle_spot(self, tx: Tx, spot: Spot) -> Spot:
        """Keep what is known of a place. The spot with its address: this process's, else the one that was kept.

        Entries that waited for the address get it, in their order.
        """
        known = find_place(tx, self.provider, spot.place)
        about = spot.about.to_json()
        address = None if spot.address is None else spot.address.to_json()
        if known is None or known.about != about or (address is not None and known.address != address):
            set_place(tx, self.provider, spot.place, about, address, address and address["data"])
        if address is None and known is not None and known.address is not None:
            return Spot(spot.place, spot.about, Address.from_json(known.address))
        if spot.address is not None and (known is None or known.address is None):
            self._address_waiting(tx, spot, spot.address)
        return spot

    def said(self, tx: Tx, spot: Spot, messages: Sequence[tuple[Message, Speaker]], *, now: float) -> int:
        """Record what people said in a turn, each message for itself. Which turn it is, from 1."""
        spot = self.settle_spot(tx, spot)
        turn = count_turn(tx, self.provider, spot.place, messages[-1][0].id)
        if spot.wants("said"):
            hold = (
                HOLD_FOR_REPLY if spot.address is not None and spot.address.pace in ("async", "turn") else HOLD_AT_MOST
            )
            for message, speaker in messages:
                payload = {"message": message.id, "speaker": speaker.to_json()}
                self._enqueue(tx, spot, "said", f"said:{message.id}", payload, now=now, not_before=now + hold)
        return turn

    def replied(self, tx: Tx, spot: Spot, message: Message, turn: int, *, now: float) -> None:
        """Record a reply, and let go what the pace allows."""
        spot = self.settle_spot(tx, spot)
        if spot.wants("reply"):
            data = {"stopped": True} if message.finish_reason == "stopped" else None
            payload = {"message": message.id, "data": data}
            not_before = now + HOLD_AT_MOST
            self._enqueue(tx, spot, "reply", f"reply:{message.id}", payload, now=now, not_before=not_before)
        self.let_go(tx, spot, turn, now=now)

    def turn_over(self, tx: Tx, spot: Spot, turn: int, *, now: float) -> None:
        """A turn has ended without a reply: let go what the pace allows."""
        self.let_go(tx, self.settle_spot(tx, spot), turn, now=now)

    def let_go(self, tx: Tx, spot: Spot, turn: int = 1, *, now: float) -> None:
        """Let go what the pace allows after so many turns."""
        address = spot.address
        if address is None or address.pace == "session" or (isinstance(address.pace, int) and turn % address.pace):
            return
        self.release(tx, spot, now=now)

    def put(
        self, tx: Tx, spot: Spot, kind: Kind, key: str, text: str, data: Json, speaker: Speaker | None, *, now: float
    ) -> str | None:
        """Record an entry by value and let it go at once, with all that was held before it. Its ticket; None when the
        provider does not want such entries. The same key twice is one entry."""
        spot = self.settle_spot(tx, spot)
        if not spot.wants(kind):
            return None
        payload = {"text": text, "data": data, "speaker": None if speaker is None else speaker.to_json()}
        ticket = f"{kind}:{key}"
        if len(repr(payload)) > LONGEST_VALUE:
            raise ProviderError(f"an entry for memory has more than {LONGEST_VALUE} characters", hint="Shorten it")
        self._enqueue(tx, spot, kind, ticket, payload, now=now, not_before=now)
        self.release(tx, spot, now=now)
        return ticket

    def release(self, tx: Tx, spot: Spot, *, now: float) -> None:
        """Let everything go that was held back in the lane; what was tried keeps its time."""
        queue.release(tx, self.queue, spot.lane, now=now)

    def _enqueue(
        self, tx: Tx, spot: Spot, kind: Kind, key: str, payload: dict[str, Json], *, now: float, not_before: float
    ) -> None:
        address = None if spot.address is None else spot.address.data
        whole = {**payload, "kind": kind, "key": secrets.token_hex(16), "address": address}
        queue.enqueue(tx, self.queue, spot.lane, key, whole, now=now, session_id=spot.session_id, not_before=not_before)

    def _address_waiting(self, tx: Tx, spot: Spot, address: Address) -> None:
        """Entries that waited for their address follow it; the delivery leaves out kinds that turn out unwanted."""
        join_lanes(tx, self.queue, waiting_lane(spot.place), address.lane, patch={"address": address.data})
