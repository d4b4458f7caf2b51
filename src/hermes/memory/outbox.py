"""The outbox: entries for a provider, as rows of the durable queue, written in the commit of their cause.

    said (held for its reply) ── reply ── release ──> due ──> delivery

A row for a message holds a reference instead of text. The text is read when it is delivered, so that a deleted message
leaves nothing to send. Rows belong to one provider; those of an inactive provider wait.
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
from hermes.store.synced import mark_synced, unmark_synced
from hermes.types import ECHO, Json, Message

REPLY_WAIT_SECONDS = 120.0
"""How long a question is held for its reply, so that both are delivered together; also the limit after a crash."""
MAX_HOLD_SECONDS = 3600.0
"""The longest time that any entry is held."""
UNADDRESSED = "?"
"""The prefix of waiting lanes; lanes of a provider must not start with it."""


def queue_name(provider: str) -> str:
    return f"memory:{provider}"


class Destination(Struct, frozen=True):
    """A place, its address if this process knows it, and the messages of the turn that is running there."""

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
        """Return True if the provider accepts such entries. Until that is known, they are kept."""
        return self.address is None or kind in self.address.wants


def waiting_lane(place: str) -> str:
    """Return the lane of entries whose provider has not given an address yet."""
    return f"{UNADDRESSED}{place}"


def is_waiting_lane(lane: str) -> bool:
    """Return True if the entries of a lane have no address yet."""
    return lane.startswith(UNADDRESSED)


class Outbox(Struct, frozen=True):
    """The outbox of one provider. All methods run inside the caller's transaction."""

    provider: str

    @property
    def queue(self) -> str:
        return queue_name(self.provider)

    def settle_destination(self, tx: Tx, destination: Destination, *, now: float) -> Destination:
        """Store a place and its address, and return the destination with an address: this process's, or the stored one.

        Entries that waited for the address get it, in order. If it changed, the current question moves to the new
        address, where its reply will go; earlier entries keep the old one.
        """
        known = find_place(tx, self.provider, destination.place)
        about = destination.about.to_json()
        if known is not None and known.about.get("directory"):
            about["directory"] = known.about["directory"]  # the directory in which it began, wherever it continues
        address = None if destination.address is None else destination.address.to_json()
        if known is None or known.about != about or (address is not None and known.address != address):
            set_place(tx, self.provider, destination.place, about, address, address and address["data"])
        if known is None or destination.address is None or known.address == address:
            kept = None if known is None or known.address is None else Address.from_json(known.address)
            return replace(destination, address=destination.address or kept)
        if known.address is None:
            self.join_waiting(tx, destination, destination.address)
        else:
            queue.release(tx, self.queue, known.address["lane"], now=now)  # nothing else releases the old lane
        keys, not_before = [f"said:{message}" for message in destination.asked], now + _hold(destination.address)
        self._withdraw_unwanted(tx, (find(tx, self.queue, key) for key in keys), destination.address)
        patch = {"address": destination.address.data}
        move_items(tx, self.queue, keys, destination.address.lane, not_before=not_before, patch=patch)
        return destination

    def settle_known(self, tx: Tx, destination: Destination, *, now: float) -> Destination | None:
        """Do the same for a place that is already stored. Return None if it was deleted with its session."""
        return (
            None
            if find_place(tx, self.provider, destination.place) is None
            else self.settle_destination(tx, destination, now=now)
        )

    def join_waiting(self, tx: Tx, destination: Destination, address: Address) -> None:
        """Give waiting entries their address, and drop those that the provider does not want."""
        lane = waiting_lane(destination.place)
        after = 0
        while page := items(tx, self.queue, "waiting", lane=lane, after_id=after):
            self._withdraw_unwanted(tx, page, address)
            after = page[-1].id
        join_lanes(tx, self.queue, lane, address.lane, patch={"address": address.data})

    def unaddressed(self, tx: Tx) -> dict[str, EntryPlace]:
        """Return the places whose entries wait for an address."""
        lanes = busy_lanes(tx, self.queue, UNADDRESSED)
        found = {
            lane: find_place(tx, self.provider, lane) for lane in (name.removeprefix(UNADDRESSED) for name in lanes)
        }
        return {place: known for place, known in found.items() if known is not None}

    def said(self, tx: Tx, destination: Destination, messages: Sequence[tuple[Message, Speaker]], *, now: float) -> int:
        """Queue the messages of people in a turn, one row each. Return the number of the turn, from 1."""
        destination = self._settle_for("said", tx, destination, now=now)
        turn = count_turn(tx, self.provider, destination.place, messages[-1][0].id)
        if destination.wants("said"):
            mark_synced(tx, self.provider, [message.id for message, _ in messages])
            not_before = now + _hold(destination.address)
            for message, speaker in messages:
                self._enqueue_said(tx, destination, message, speaker, now=now, not_before=not_before)
        return turn

    def replied(
        self, tx: Tx, destination: Destination, message: Message, turn: int, *, now: float, agent: Speaker | None = None
    ) -> None:
        """Queue a reply, to another agent if one is given, and release what the flush policy allows. Replies that only
        quote memory are skipped."""
        destination = self._settle_for("reply", tx, destination, now=now)
        if destination.wants("reply") and message.finish_reason != ECHO:
            mark_synced(tx, self.provider, [message.id])
            self._enqueue_reply(tx, destination, message, now=now, not_before=now + MAX_HOLD_SECONDS, agent=agent)
        self.release_by_pace(tx, destination, turn, now=now)

    def take_in(
        self, tx: Tx, destination: Destination, messages: Sequence[tuple[Message, Speaker]], *, now: float
    ) -> int:
        """Queue earlier messages and replies after all pending rows. Return how many of them are new to the
        provider."""
        destination = self.settle_destination(tx, destination, now=now)
        new = mark_synced(tx, self.provider, [message.id for message, _ in messages])
        for message, speaker in messages:
            if message.id in new and message.role == "user":
                self._enqueue_said(tx, destination, message, speaker, now=now, not_before=now)
            elif message.id in new:
                self._enqueue_reply(tx, destination, message, now=now, not_before=now)
        return len(new)

    def turn_over(self, tx: Tx, destination: Destination, turn: int, *, now: float) -> None:
        """End a turn without a reply: release what the flush policy allows."""
        if known := self.settle_known(tx, destination, now=now):
            self.release_by_pace(tx, known, turn, now=now)

    def release_by_pace(self, tx: Tx, destination: Destination, turn: int = 1, *, now: float) -> None:
        """Release held rows if the flush policy (`pace`) allows it after this turn."""
        address = destination.address
        if address is None or address.pace == "session" or (isinstance(address.pace, int) and turn % address.pace):
            return
        self.release(tx, destination, now=now)

    def put(
        self,
        tx: Tx,
        destination: Destination,
        kind: EntryKind,
        key: str,
        text: str,
        data: Json,
        speaker: Speaker | None,
        *,
        now: float,
    ) -> str | None:
        """Queue an entry by value, and release it and all rows held before it. Return its ticket, or None if the
        provider does not want such entries. Repeating a key has no effect."""
        destination = self.settle_destination(tx, destination, now=now)
        if not destination.wants(kind):
            return None
        payload = {"text": text, "data": data, "speaker": None if speaker is None else speaker.to_json()}
        ticket = f"{kind}:{key}"
        self._enqueue(tx, destination, kind, ticket, payload, now=now, not_before=now)
        self.release(tx, destination, now=now)
        return ticket

    def forget(self, tx: Tx, session_id: str, *, now: float) -> bool:
        """Queue deletions of a conversation at every address that it had, after all earlier rows there. Call it before
        the session is deleted. Return False if the provider does not accept deletions."""
        known = find_place(tx, self.provider, session_id)
        if known is None or known.address is None or "forget" not in known.address["wants"]:
            return False
        cause = f"{session_id}:{secrets.token_hex(8)}"
        begun = [item for item in made_since(tx, self.queue, session_id, "", 0.0) if item.state != "done"]
        data = {"session_id": session_id, "may_arrive": may_arrive(begun)}
        enqueue_wish(tx, self.provider, known, "forget", cause, data, now=now)
        return True

    def release(self, tx: Tx, destination: Destination, *, now: float) -> None:
        """Release all held rows of the lane; rows that were tried keep their time."""
        queue.release(tx, self.queue, destination.lane, now=now)

    def _settle_for(self, kind: EntryKind, tx: Tx, destination: Destination, *, now: float) -> Destination:
        """Do `settle_destination`, but keep entries that the stored address does not want until this process knows the
        current address."""
        settled = self.settle_destination(tx, destination, now=now)
        return settled if destination.address is not None or settled.wants(kind) else destination

    def _withdraw_unwanted(self, tx: Tx, entries: Iterable[Item | None], address: Address) -> None:
        """Withdraw entries that the provider does not want, and mark their messages as unsent."""
        unwanted = [item for item in entries if item and item.payload and item.payload["kind"] not in address.wants]
        gone = withdraw(tx, unwanted)
        unmark_synced(tx, self.provider, [item.payload["message"] for item in gone if "message" in item.payload])

    def _enqueue_said(
        self, tx: Tx, destination: Destination, message: Message, speaker: Speaker, *, now: float, not_before: float
    ) -> None:
        payload = {"message": message.id, "speaker": speaker.to_json()}
        self._enqueue(tx, destination, "said", f"said:{message.id}", payload, now=now, not_before=not_before)

    def _enqueue_reply(
        self,
        tx: Tx,
        destination: Destination,
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
        self._enqueue(tx, destination, "reply", f"reply:{message.id}", payload, now=now, not_before=not_before)

    def _enqueue(
        self,
        tx: Tx,
        destination: Destination,
        kind: EntryKind,
        key: str,
        payload: dict[str, Json],
        *,
        now: float,
        not_before: float,
    ) -> None:
        address = None if destination.address is None else destination.address.data
        row = {**payload, "kind": kind, "key": secrets.token_hex(16), "address": address}
        queue.enqueue(
            tx,
            self.queue,
            destination.lane,
            key,
            row,
            now=now,
            session_id=destination.session_id,
            not_before=not_before,
        )


class QueuedWish(Struct, frozen=True):
    """A queued `forget` or `undo` entry."""

    ticket: str
    lane: str


def may_arrive(entries: Iterable[Item]) -> dict[str, Json]:
    """Return the last attempt of each entry by its key: what was sent then may still arrive."""
    return {item.payload["key"]: item.tried_at for item in entries if item.payload and item.tried_at is not None}


def enqueue_wish(
    tx: Tx, provider: str, known: EntryPlace, kind: EntryKind, cause: str, data: Json, *, now: float
) -> tuple[QueuedWish, ...]:
    """Queue one deletion for each address of a conversation, after all earlier rows there. The rows belong to no
    session, so they outlive this one."""
    addresses = {(one["lane"], json.dumps(one["data"])): one["data"] for one in (*known.earlier, known.address)}
    queued = []
    for number, ((lane, _), address) in enumerate(addresses.items(), 1):
        ticket, key = f"{kind}:{cause}:{number}", secrets.token_hex(16)
        whole = {"text": "", "data": data, "kind": kind, "address": address, "key": key}
        queue.enqueue(tx, queue_name(provider), lane, ticket, whole, now=now)
        queued.append(QueuedWish(ticket, lane))
    return tuple(queued)


def _hold(address: Address | None) -> float:
    """Return the seconds that a question is held for its reply."""
    return MAX_HOLD_SECONDS if address is not None and address.pace not in ("async", "turn") else REPLY_WAIT_SECONDS
