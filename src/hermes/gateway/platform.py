"""The platform interface. An adapter translates between one platform and the gateway; it is one module in
`platforms/`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import asdict, astuple

from hermes.types import Json

ChatType = Literal["dm", "group", "channel", "api"]


class Chat(Struct, frozen=True):
    """A destination of messages: a chat of a platform, or a thread in it."""

    platform: str
    chat_type: ChatType
    chat_id: str
    thread_id: str | None = None


class Inbound(Struct, frozen=True):
    """A received message. `message_id` is the platform's: a message that arrives twice has one effect."""

    chat: Chat
    message_id: str
    text: str
    author_id: str | None = None
    author_name: str | None = None
    author_alt: str | None = None
    """Another id of the author, such as a user name."""
    author_is_agent: bool = False
    """True if the author is another program, an agent that the owner allowed."""
    session_key: str | None = None
    """The session key that a client chose; None to derive it from the chat."""
    session_id: str | None = None
    """The session that a client chose."""
    earlier: tuple[tuple[str, str], ...] = ()
    """Role and text of messages that the model sees before those of the session. They are not stored as messages."""

    @property
    def typed(self) -> str:
        """The text in which commands are looked for; "" for other agents, whose messages are never commands."""
        return "" if self.author_is_agent else self.text

    def to_json(self) -> Json:
        """Return the inbox payload."""
        return {**asdict(self), "chat": astuple(self.chat)}

    @classmethod
    def from_json(cls, value: Json) -> Inbound:
        earlier = tuple((role, text) for role, text in value.get("earlier", ()))
        return cls(**{**value, "chat": Chat(*value["chat"]), "earlier": earlier})


class Moved(Struct, frozen=True):
    """A chat has another id on its platform. It stays the same conversation."""

    old: Chat
    new: Chat


class SendLater(Exception):
    """The platform cannot send now. `wait` is in seconds; None leaves it to the retry policy."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class SendNever(Exception):
    """The platform will never send this: the chat is gone, the bot was blocked, or the message is not allowed."""


class MessageGone(SendNever):
    """The message to edit is gone or may not be edited; a new message can be sent."""


class Intake(Protocol):
    """The gateway as an adapter sees it."""

    async def receive(self, message: Inbound) -> None:
        """Store a message. After the return the platform may acknowledge it. Raises if it was not stored."""

    async def move(self, moved: Moved) -> None:
        """Record that a chat has another id. Committed on return; idempotent."""

    async def read_positions(self) -> dict[str, str]:
        """Return the read position of each channel of this platform, as `write_positions` stored it."""

    async def write_positions(self, positions: Mapping[str, str | None]) -> None:
        """Store read positions, for a platform that does not repeat missed messages. None deletes a position."""

    async def report(self, part: str, state: str, detail: str) -> None:
        """Report the state of a part of the platform. A change is logged and printed."""


class Platform(Protocol):
    """One messaging platform. Methods but `run` may raise SendLater and SendNever."""

    @property
    def name(self) -> str:
        """The platform's name in session keys."""

    @property
    def longest_message(self) -> int:
        """Maximum length of a message in UTF-16 units; see `outbound.count_units`."""

    @property
    def can_edit(self) -> bool:
        """True if sent messages can be edited, so that a reply can be shown while it grows."""

    async def run(self, intake: Intake) -> None:
        """Receive until cancelled. Recovers from passing failures; raises only for permanent ones."""

    async def send(self, chat: Chat, text: str, key: str = "") -> str:
        """Send one message and return the id that `edit` takes. Sending again with the same `key` has no second effect,
        where the platform can tell."""

    async def was_sent(self, chat: Chat, key: str, since: float) -> bool:
        """Return True if an earlier `send` with this key had its effect and only the chat's history since then can
        tell. Called before a message is sent again."""

    async def edit(self, chat: Chat, message_id: str, text: str) -> None:
        """Replace the text of a sent message. Raises MessageGone if only a new message can be sent."""

    async def show_typing(self, chat: Chat) -> None:
        """Show that a reply is coming."""

    async def close(self) -> None:
        """Release all resources. Called after the last send."""
