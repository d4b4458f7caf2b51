"""What may be written in the same commits as a turn: the gateway settles its inbox so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hermes.db.engine import Tx
from hermes.types import Message


class TurnRecord(Protocol):
    """Told of a turn's two commits, inside them."""

    @property
    def reminder(self) -> str:
        """What the model is told after what was said, beside the conversation; nothing of it is stored."""
        ...

    def accepted(self, tx: Tx, messages: Sequence[Message]) -> Sequence[Message]:
        """Runs in the transaction that stores what was said. Returns all messages that the turn answers, including
        those that were stored before."""
        ...

    async def concluding(self) -> None:
        """Runs when the reply is whole and about to be stored."""
        ...

    def replied(self, tx: Tx, message: Message) -> None:
        """Runs in the transaction that stores the reply."""
        ...


class NoRecord:
    """Nobody keeps one."""

    reminder = ""

    def accepted(self, tx: Tx, messages: Sequence[Message]) -> Sequence[Message]:  # noqa: ARG002 - the shape
        return messages

    async def concluding(self) -> None:
        pass

    def replied(self, tx: Tx, message: Message) -> None:
        pass
