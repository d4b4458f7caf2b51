"""Batches: the waiting items of a lane that one turn answers together."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hermes.db.queue import Item
from hermes.gateway.platform import Inbound
from hermes.slash.here import Again
from hermes.slash.table import TypedCommand, find_command
from hermes.types import Draft


class Batch(Struct, frozen=True):
    """Inbox items that are handled together: the messages of one turn, or one command."""

    items: tuple[Item, ...]
    messages: tuple[Inbound, ...]
    command: TypedCommand | None = None
    again: Again | None = None
    """Set when the command asks for the last turn to be answered again."""

    @property
    def first(self) -> Inbound:
        return self.messages[0]

    @property
    def keys(self) -> list[str]:
        return [item.key for item in self.items]


def next_batch(items: Sequence[Item]) -> Batch:
    """Return the next batch of a lane: all messages up to a command on chat platforms, one request over the API."""
    messages = [Inbound.from_json(item.payload) for item in items]
    first = messages[0]
    if (command := find_command("chat", first.typed)) is not None:
        return Batch((items[0],), (first,), command)
    count = 1
    if first.chat.chat_type != "api" and _is_for_model(first):
        while count < len(items) and _joins(first, messages[count]):
            count += 1
    return Batch(tuple(items[:count]), tuple(messages[:count]))


def _joins(first: Inbound, other: Inbound) -> bool:
    """Return True if a message joins the turn of an earlier one. People and agents never share a turn."""
    same_kind = (first.author_is_agent, first.author_id if first.author_is_agent else None) == (
        other.author_is_agent,
        other.author_id if other.author_is_agent else None,
    )
    return other.chat == first.chat and same_kind and _is_for_model(other)


def is_stop(text: str) -> bool:
    """Return True for `/stop`, which acts before the messages that wait. Leading blanks are ignored."""
    typed = find_command("chat", text.lstrip())
    return typed is not None and typed.command.overtakes


def _is_for_model(message: Inbound) -> bool:
    """Return True if a message is for the model. Commands are not, and neither is `/stop` after blanks."""
    typed = find_command("chat", message.typed.lstrip())
    return typed is None or (message.text[:1].isspace() and not typed.command.overtakes)


def draft_of(message: Inbound, *, is_owner: bool) -> Draft:
    """Return a message as it is stored, with its author; in groups with the author's name, which the model reads."""
    named = message.author_name if message.chat.chat_type in ("group", "channel") else None
    return Draft(
        "user",
        message.text,
        platform_message_id=message.message_id,
        author_id=message.author_id,
        author_name=named,
        author_alt=message.author_alt,
        author_is_owner=is_owner,
        author_is_agent=message.author_is_agent or None,
    )
