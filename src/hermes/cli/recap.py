"""The recap of a resumed session."""

from __future__ import annotations

from msgspec import Struct

from hermes.cli.output import printable
from hermes.store.store import Store
from hermes.types import Message, Session


class Recap(Struct, frozen=True):
    """A resumed session's heading and last exchange: a message and its reply, if any."""

    headline: str
    exchange: tuple[Message, ...] = ()

    @property
    def is_unanswered(self) -> bool:
        """True if the last message has no reply."""
        return bool(self.exchange) and self.exchange[-1].role == "user"


async def recap(store: Store, session: Session) -> Recap:
    """Return the recap of a session."""
    view = await store.read(lambda tx: store.compressions.view(tx, session.id))
    said = [message for message in view.messages if message.role in ("user", "assistant") and message.content]
    asked = next((number for number in reversed(range(len(said))) if said[number].role == "user"), len(said))
    exchange = [*said[asked : asked + 1], *said[asked + 1 :][-1:]]
    title = f" “{printable(session.title)}”" if session.title else ""
    count = "1 message" if session.message_count == 1 else f"{session.message_count} messages"
    return Recap(f"Resuming {session.id}{title} ({count}).", tuple(exchange or said[-1:]))
