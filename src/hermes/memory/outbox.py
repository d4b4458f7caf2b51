"""The outbox: what a provider is to be told, as rows of the durable queue, written in the commit of what they tell of.

    said (held for its reply) ── reply ── release ──> due ──> delivery

A row of what was said holds a reference and no text: it is read from the log when it is delivered, so that a message
that was deleted has nothing left to send. Rows are recorded per provider; those of one that is no longer active wait.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.lanes import busy_lanes, join_lanes, move_items
from hermes.db.queue import Item
from hermes.db.queue_items import find, items, made_since, withdraw
from hermes.memory.values import Address, Conversation, EntryKind, Notebook, Speaker
from hermes.store.memory_rows import EntryPlace, count_turn, find_place, set_place
from hermes.store.told import mark_told, unmark_told
from hermes.types import ECHO, Json, Message

HOLD_FOR_REPLY = 120.0
"""Seconds that a question waits for its reply, so that both go together; after a crash time lets it go."""
HOLD_AT_MOST = 3600.0
"""Seconds that anything is held back at most."""
UNADDRESSED = "?"
"""What a waiting lane begins with, and no lane of a provider does."""


def queue_name(provider: str) -> str:
    return f"memory:{provider}"


class Spot(Struct, frozen=True):
    """A place, its address where it is known in this process, and the messages of the turn that is under way there."""

    place: str
    about: Conversation | Notebook
    address: Address | None = None
    asked: tuple[int, ...] = ()

    @property
    def lane(self) -> str:
        return self.address.lane if self.address is not None else waiting_lane(self.place)

    @property
    def session_id(self) -> str | None:
        return self.about.session_id if isinstance(self.about, Conversation) else None

    def wants(self, kind: EntryKind) -> bool:
        """Whether the provider takes such entries. Until it has said so, they are kept for it."""
        return self.address is None or kind in self.address.wants


def waiting_lane(place: str) -> str:
    """The lane of entries whose provider has not said yet where they go."""
    return f"{UNADDRESSED}{place}"


def is_waiting_lane(lane: str) -> bool:
    """Whether the entries of a lane have no address yet."""
    return lane.startswith(UNADDRESSED)


class Outbox(Struct, frozen=True):
    """The rows of one provider. Every method runs inside the caller's transaction."""

    provider: str

    @property
    def queue(self) -> str:
        return queue_name(self.provider)

    def settle_spot(self, tx: Tx, spot: Spot, *, now: float) -> Spot:
        """Keep what is known of a place. The spot with its address: this process's, else the one that was kept.

        Entries that waited for the address get it, in their order. When it changed, what is being asked follows it, so
        that a question goes where its reply goes; what was asked before stays where it was to go.
        """
        known = find_place(tx, self.provider, spot.place)
        about = spot.about.to_json()
        if known is not None and known.about.get("directory"):
            about["directory"] = known.about["directory"]  # it began there, wherever it goes on
        address = None if spot.address is None else spot.address.to_json()
        if known is None or known.about != about or (address is not None and known.address != address):
            set_place(tx, self.provider, spot.place, about, address, address and address["data"])
        if known is None or spot.address is None or known.address == address:
            kept = None if known is None or known.address is None else Address.from_json(known.address)
            return replace(spot, address=spot.address or kept)
        if known.address is None:
            self.join_waiting(tx, spot, spot.address)
        else:
            queue.release(tx, self.queue, known.address["lane"], now=now)  # nobody else would
        keys, not_before = [f"said:{message}" for message in spot.asked], now + _hold(spot.address)
        self._leave_out(tx, (find(tx, self.queue, key) for key in keys), spot.address)
        patch = {"address": spot.address.data}
        move_items(tx, self.queue, keys, spot.address.lane, not_before=not_before, patch=patch)
        return spot

    def settle_known(self, tx: Tx, spot: Spot, *, now: float) -> Spot | None:
        """The same for a place that was recorded before; None when it is gone, because its session was deleted."""
        return None if find_place(tx, self.provider, spot.place) is None else self.settle_spot(tx, spot, now=now)

    def join_waiting(self, tx: Tx, spot: Spot, address: Address) -> None:
        """Give entries that waited for their address theirs; those that are not wanted there go."""
        lane = waiting_lane(spot.place)
        after = 0
        while page := items(tx, self.queue, "waiting", lane=lane, after_id=after):
            self._leave_out(tx, page, address)
            after = page[-1].id
        join_lanes(tx, self.queue, lane, address.lane, patch={"address": address.data})

    def unaddressed(self, tx: Tx) -> dict[str, EntryPlace]:
        """The places whose entries wait for an address."""
        lanes = busy_lanes(tx, self.queue, UNADDRESSED)
        found = {
            lane: find_place(tx, self.provider, lane) for lane in (name.removeprefix(UNADDRESSED) for name in lanes)
        }
        return {place: known for place, known in found.items() if known is not None}

    def said(self, tx: Tx, spot: Spot, messages: Sequence[tuple[Message, Speaker]], *, now: float) -> int:
        """Record what people said in a turn, each message for itself. Which turn it is, from 1."""
        spot = self._settle_for("said", tx, spot, now=now)
        turn = count_turn(tx, self.provider, spot.place, messages[-1][0].id)
        if spot.wants("said"):
            mark_told(tx, self.provider, [message.id for message, _ in messages])
            not_before = now + _hold(spot.address)
            for message, speaker in messages:
                self._enqueue_said(tx, spot, message, speaker, now=now, not_before=not_before)
        return turn

    def replied(
        self, tx: Tx, spot: Spot, message: Message, turn: int, *, now: float, agent: Speaker | None = None
    ) -> None:
        """Record a reply, to another agent where one is given, and release what the flush policy allows. Replies that
        only quote memory are skipped."""
        spot = self._settle_for("reply", tx, spot, now=now)
        if spot.wants("reply") and message.finish_reason != ECHO:
            mark_told(tx, self.provider, [message.id])
            self._enqueue_reply(tx, spot, message, now=now, not_before=now + HOLD_AT_MOST, agent=agent)
        self.let_go(tx, spot, turn, now=now)

    def take_in(self, tx: Tx, spot: Spot, messages: Sequence[tuple[Message, Speaker]], *, now: float) -> int:
        """Record what was said and replied earlier, behind all that waits; how many of the messages are new to the
        provider: it is told of the others already, or was."""
        spot = self.settle_spot(tx, spot, now=now)
        new = mark_told(tx, self.provider, [message.id for message, _ in messages])
        for message, speaker in messages:
            if message.id in new and message.role == "user":
                self._enqueue_said(tx, spot, message, speaker, now=now, not_before=now)
            elif message.id in new:
                self._enqueue_reply(tx, spot, message, now=now, not_before=now)
        return len(new)

    def turn_over(self, tx: Tx, spot: Spot, turn: int, *, now: float) -> None:
        """A turn has ended without a reply: let go what the pace allows."""
        if known := self.settle_known(tx, spot, now=now):
            self.let_go(tx, known, turn, now=now)

    def let_go(self, tx: Tx, spot: Spot, turn: int = 1, *, now: float) -> None:
        """Let go what the pace allows after so many turns."""
        address = spot.address
        if address is None or address.pace == "session" or (isinstance(address.pace, int) and turn % address.pace):
            return
        self.release(tx, spot, now=now)

    def put(
        self,
        tx: Tx,
        spot: Spot,
        kind: EntryKind,
        key: str,
        text: str,
        data: Json,
        speaker: Speaker | None,
        *,
        now: float,
    ) -> str | None:
        """Record an entry by value and let it go at once, with all that was held before it. Its ticket; None when the
        provider does not want such entries. The same key twice is one entry."""
        spot = self.settle_spot(tx, spot, now=now)
        if not spot.wants(kind):
            return None
        payload = {"text": text, "data": data, "speaker": None if speaker is None else speaker.to_json()}
        ticket = f"{kind}:{key}"
        self._enqueue(tx, spot, kind, ticket, payload, now=now, not_before=now)
        self.release(tx, spot, now=now)
        return ticket

    def forget(self, tx: Tx, session_id: str, *, now: float) -> bool:
        """Record the wish that the provider forgets a conversation, everywhere it was told of it and behind all that it
        was told there. Call it before the session is deleted; False when the provider does not take such wishes."""
        known = find_place(tx, self.provider, session_id)
        if known is None or known.address is None or "forget" not in known.address["wants"]:
            return False
        cause = f"{session_id}:{secrets.token_hex(8)}"
        begun = [item for item in made_since(tx, self.queue, session_id, "", 0.0) if item.state != "done"]
        data = {"session_id": session_id, "may_arrive": may_arrive(begun)}
        enqueue_wish(tx, self.provider, known, "forget", cause, data, now=now)
        return True

    def release(self, tx: Tx, spot: Spot, *, now: float) -> None:
        """Let everything go that was held back in the lane; what was tried keeps its time."""
        queue.release(tx, self.queue, spot.lane, now=now)

    def _settle_for(self, kind: EntryKind, tx: Tx, spot: Spot, *, now: float) -> Spot:
        """`settle_spot`; but what the kept address does not want waits until this process knows what is wanted now."""
        settled = self.settle_spot(tx, spot, now=now)
        return settled if spot.address is not None or settled.wants(kind) else spot

    def _leave_out(self, tx: Tx, entries: Iterable[Item | None], address: Address) -> None:
        """Take back entries that are not wanted: the provider counts as not told of them."""
        unwanted = [item for item in entries if item and item.payload and item.payload["kind"] not in address.wants]
        gone = withdraw(tx, unwanted)
        unmark_told(tx, self.provider, [item.payload["message"] for item in gone if "message" in item.payload])

    def _enqueue_said(
        self, tx: Tx, spot: Spot, message: Message, speaker: Speaker, *, now: float, not_before: float
    ) -> None:
        payload = {"message": message.id, "speaker": speaker.to_json()}
        self._enqueue(tx, spot, "said", f"said:{message.id}", payload, now=now, not_before=not_before)

    def _enqueue_reply(
        self,
        tx: Tx,
        spot: Spot,
        message: Message,
        *,
        now: float,
        not_before: float,
        agent: Speaker | None = None,
    ) -> None:
        data = {"stopped": True} if message.finish_reason == "stopped" else None
        payload: dict[str, Json] = {"message": message.id, "data": data}
        if agent is not None:
            payload["speaker"] = agent.to_json()
        self._enqueue(tx, spot, "reply", f"reply:{message.id}", payload, now=now, not_before=not_before)

    def _enqueue(
        self, tx: Tx, spot: Spot, kind: EntryKind, key: str, payload: dict[str, Json], *, now: float, not_before: float
    ) -> None:
        address = None if spot.address is None else spot.address.data
        whole = {**payload, "kind": kind, "key": secrets.token_hex(16), "address": address}
        queue.enqueue(tx, self.queue, spot.lane, key, whole, now=now, session_id=spot.session_id, not_before=not_before)


class QueuedWish(Struct, frozen=True):
    """An entry `forget` or `undo` that waits."""

    ticket: str
    lane: str


def may_arrive(entries: Iterable[Item]) -> dict[str, Json]:
    """When each of these was last tried, by its key: what was sent then may arrive though nobody waits for it."""
    return {item.payload["key"]: item.tried_at for item in entries if item.payload and item.tried_at is not None}


def enqueue_wish(
    tx: Tx, provider: str, known: EntryPlace, kind: EntryKind, cause: str, data: Json, *, now: float
) -> tuple[QueuedWish, ...]:
    """Queue one entry for each address that a conversation had, each behind all that was told there. They belong to no
    session: they stay when this one is deleted."""
    addresses = {(one["lane"], json.dumps(one["data"])): one["data"] for one in (*known.earlier, known.address)}
    queued = []
    for number, ((lane, _), address) in enumerate(addresses.items(), 1):
        ticket, key = f"{kind}:{cause}:{number}", secrets.token_hex(16)
        whole = {"text": "", "data": data, "kind": kind, "address": address, "key": key}
        queue.enqueue(tx, queue_name(provider), lane, ticket, whole, now=now)
        queued.append(QueuedWish(ticket, lane))
    return tuple(queued)


def _hold(address: Address | None) -> float:
    """Seconds that a question waits for its reply."""
    return HOLD_AT_MOST if address is not None and address.pace not in ("async", "turn") else HOLD_FOR_REPLY
