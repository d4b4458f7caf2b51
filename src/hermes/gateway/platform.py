"""What a platform is to the gateway: something that translates. One adapter is one file in `platforms/`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import asdict, astuple

from hermes.types import Json

ChatType = Literal["dm", "group", "channel", "api"]


class Chat(Struct, frozen=True):
    """Where messages go: a chat of a platform, or a thread in it."""

    platform: str
    chat_type: ChatType
    chat_id: str
    thread_id: str | None = None


class Inbound(Struct, frozen=True):
    """A message as a platform gave it. `message_id` is the platform's own: the same one twice has one effect."""

    chat: Chat
    message_id: str
    text: str
    author_id: str | None = None
    author_name: str | None = None
    author_alt: str | None = None
    """Another id of the same person, such as a user name."""
    author_is_agent: bool = False
    """Whether another program speaks: an agent that the owner allowed."""
    session_key: str | None = None
    """A client's own key, instead of the one that is made of the chat."""
    session_id: str | None = None
    """A client's own session."""
    earlier: tuple[tuple[str, str], ...] = ()
    """Role and text of what the model is to see before the session's own messages. None of it is stored as said."""

    @property
    def typed(self) -> str:
        """The text where commands are looked for: those of other agents are text."""
        return "" if self.author_is_agent else self.text

    def to_json(self) -> Json:
        """As it lies in the inbox."""
        return {**asdict(self), "chat": astuple(self.chat)}

    @classmethod
    def from_json(cls, value: Json) -> Inbound:
        earlier = tuple((role, text) for role, text in value.get("earlier", ()))
        return cls(**{**value, "chat": Chat(*value["chat"]), "earlier": earlier})


class Moved(Struct, frozen=True):
    """A chat got another id on its platform. Nobody said anything, and it is the same conversation."""

    old: Chat
    new: Chat


class SendLater(Exception):
    """The platform cannot take it now: `wait` seconds, or None for as long as seems right."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class SendNever(Exception):
    """The platform will never take it: the chat is gone, the bot was blocked, the message is not allowed."""


class MessageGone(SendNever):
    """The message that should be edited is not there any more, or may not be edited; a new one can be sent."""


class Intake(Protocol):
    """Where a platform hands in what it received."""

    async def receive(self, message: Inbound) -> None:
        """Take a message. When this returns, the platform may be told that it arrived. Raises when it may not."""

    async def move(self, moved: Moved) -> None:
        """Take note that a chat has another id. When this returns it is known for good; told again, nothing happens."""

    async def read_positions(self) -> dict[str, str]:
        """Return how far each place of this platform was read, as `write_positions` stored it."""

    async def write_positions(self, positions: Mapping[str, str | None]) -> None:
        """Store how far places were read, for a platform that repeats nothing; None forgets a place."""

    async def report(self, part: str, state: str, detail: str) -> None:
        """Tell how the platform is; loud when it changes."""


class Platform(Protocol):
    """One messaging platform. Methods but `run` may raise SendLater and SendNever."""

    @property
    def name(self) -> str:
        """As it stands in session keys."""

    @property
    def longest_message(self) -> int:
        """UTF-16 units that one message may have (`outbound.py` counts them)."""

    @property
    def can_edit(self) -> bool:
        """Whether a reply can be shown while it grows."""

    async def run(self, intake: Intake) -> None:
        """Receive until cancelled. Comes back by itself from anything that passes; raises only what never will."""

    async def send(self, chat: Chat, text: str, key: str = "") -> str:
        """Send one message; the id that `edit` finds it by. Sent again with the same `key` it is the same message,
        where the platform can tell."""

    async def was_sent(self, chat: Chat, key: str, since: float) -> bool:
        """Return True if an earlier `send` with this key had its effect, where only the chat's history since then can
        tell. Asked before a message is sent again."""

    async def edit(self, chat: Chat, message_id: str, text: str) -> None:
        """Replace the text of a message we sent. Raises MessageGone when it can only be sent anew."""

    async def show_typing(self, chat: Chat) -> None:
        """Show that a reply is coming."""

    async def close(self) -> None:
        """Let go of what it holds. Comes after the last send."""
