"""What a person is told of a session that is gone on with."""

from __future__ import annotations

from msgspec import Struct

from hermes.cli.output import printable
from hermes.store.store import Store
from hermes.types import Message, Session


class Recap(Struct, frozen=True):
    """Which session it is, and its last exchange: what a person said and, unless it has none, the reply."""

    headline: str
    exchange: tuple[Message, ...] = ()

    @property
    def is_unanswered(self) -> bool:
        """Whether what was said last has no reply."""
        return bool(self.exchange) and self.exchange[-1].role == "user"


async def recap(store: Store, session: Session) -> Recap:
    """Which session it is and what was said in it last."""
    view = await store.read(lambda tx: store.compressions.view(tx, session.id))
    said = [message for message in view.messages if message.role in ("user", "assistant") and message.content]
    asked = next((number for number in reversed(range(len(said))) if said[number].role == "user"), len(said))
    exchange = [*said[asked : asked + 1], *said[asked + 1 :][-1:]]
    called = f" “{printable(session.title)}”" if session.title else ""
    count = "1 message" if session.message_count == 1 else f"{session.message_count} messages"
    return Recap(f"Going on with {session.id}{called} ({count}).", tuple(exchange or said[-1:]))
