"""Thresholds and budgets of compression, computed from the model's window."""

from __future__ import annotations

from msgspec import Struct

REPLY_RESERVE_TOKENS = 4096
"""Number of tokens kept free for the reply, if the window is large enough."""


class CompressionPolicy(Struct, frozen=True):
    """Sizes for a model's window of `window` tokens. `threshold` is the share of it that a request may use.

    `overhead` is the number of request tokens that no compression can remove: prompt, tools, recalled memory.
    """

    window: int
    threshold: float = 0.5
    keep_turns: int = 4
    overhead: int = 0

    @property
    def limit(self) -> int:
        """Number of request tokens above which compression starts."""
        return int(self.window * self.threshold)

    @property
    def hard_limit(self) -> int:
        """Number of request tokens above which a request cannot be sent."""
        return self.window - min(REPLY_RESERVE_TOKENS, self.window // 4)

    @property
    def room(self) -> int:
        """Number of tokens for the conversation. Beside a huge prompt it gets a quarter of the limit, if that fits."""
        return max(self.limit - self.overhead, min(self.limit // 4, self.hard_limit - self.overhead), 0)

    @property
    def summary_budget(self) -> int:
        """Maximum number of tokens of a summary."""
        return max(128, min(4000, self.room // 4))

    @property
    def staying_budget(self) -> int:
        """Maximum number of message tokens that stay beside the summary; the rest of the room is for new messages."""
        return max(64, int(self.room * 0.6) - self.summary_budget)

    @property
    def ceiling(self) -> int:
        """Maximum number of tokens with which the newest user message still stays whole."""
        return max(self.staying_budget, self.hard_limit - self.overhead - self.summary_budget)

    @property
    def least_gain(self) -> int:
        """Minimum number of tokens that a compression must remove, as long as the request can be sent without it."""
        return self.limit // 10


def backoff_seconds(failures: int) -> float:
    """Return the seconds that automatic compression waits after consecutive failures: one minute, doubling up to an
    hour."""
    return min(3600.0, 60.0 * 2.0 ** min(failures - 1, 10)) if failures else 0.0
