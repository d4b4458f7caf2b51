"""Who keeps a record of a turn beside the conversation: a gateway settles its inbox with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hermes.db.engine import Tx
from hermes.types import Message


class TurnRecord(Protocol):
    """Told of a turn's two commits, inside them."""

    def accepted(self, tx: Tx, messages: Sequence[Message]) -> None:
        """Runs in the transaction that stores what was said."""
        ...

    async def concluding(self) -> None:
        """Runs when the reply is whole and about to be stored."""
        ...

    def replied(self, tx: Tx, message: Message) -> None:
        """Runs in the transaction that stores the reply."""
        ...


class NoRecord:
    """Nobody keeps one."""

    def accepted(self, tx: Tx, messages: Sequence[Message]) -> None:
        pass

    async def concluding(self) -> None:
        pass

    def replied(self, tx: Tx, message: Message) -> None:
        pass
