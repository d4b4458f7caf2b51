"""When to compress, and how much may stay: numbers from numbers."""

from __future__ import annotations

from msgspec import Struct

REPLY_RESERVE = 4096
"""Tokens kept free for the reply, where the window allows."""


class CompressionPolicy(Struct, frozen=True):
    """For a model's window of `window` tokens. `threshold` is the part of it that a request may use.

    `overhead` are the tokens of a request that no compression can take away: prompt, tools, what was recalled.
    """

    window: int
    threshold: float = 0.5
    keep_turns: int = 4
    overhead: int = 0

    @property
    def limit(self) -> int:
        """A request of more tokens than this starts a compression."""
        return int(self.window * self.threshold)

    @property
    def hard_limit(self) -> int:
        """A request of more tokens than this cannot be sent."""
        return self.window - min(REPLY_RESERVE, self.window // 4)

    @property
    def room(self) -> int:
        """Tokens that the conversation may have. Beside a huge prompt it gets a quarter of the limit, if that fits."""
        return max(self.limit - self.overhead, min(self.limit // 4, self.hard_limit - self.overhead), 0)

    @property
    def summary_budget(self) -> int:
        """Tokens that a summary may have."""
        return max(128, min(4000, self.room // 4))

    @property
    def staying_budget(self) -> int:
        """Tokens of messages that may stay beside the summary; what is left of the room is there to go on."""
        return max(64, int(self.room * 0.6) - self.summary_budget)

    @property
    def ceiling(self) -> int:
        """Tokens that the newest user message may have and still stay whole, since the window allows it."""
        return max(self.staying_budget, self.hard_limit - self.overhead - self.summary_budget)

    @property
    def least_gain(self) -> int:
        """Fewer tokens than this are not worth a compression, as long as the request can be sent."""
        return self.limit // 10


def backoff_seconds(failures: int) -> float:
    """How long automatic compression waits after that many failures in a row: a minute, doubling up to an hour."""
    return min(3600.0, 60.0 * 2.0 ** min(failures - 1, 10)) if failures else 0.0
