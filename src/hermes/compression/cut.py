"""The cut: which messages leave the window and which stay. A pure function of the view and a budget.

Tool calls stay with their results. The first user message and the last turns stay whole if they fit. Otherwise the
oldest of them leaves first, and the newest user message last. Consecutive user messages without an answer between them
form one turn.

Thresholds and budgets of compression, computed from the model's window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from msgspec import Struct

from hermes.llm.tokens import message_tokens
from hermes.types import LiveView, Message


class Cut(Struct, frozen=True):
    """A cut: messages up to `horizon_id` leave, except `kept_ids`; `leaving` are the leaving ones, in order."""

    horizon_id: int
    kept_ids: tuple[int, ...]
    leaving: tuple[Message, ...]

    @property
    def tokens(self) -> int:
        return sum(map(message_tokens, self.leaving))


class _Group(Struct, frozen=True):
    """Messages that stay together: a tool call with its results and everything between them, or a single message."""

    messages: tuple[Message, ...]
    tokens: int

    @property
    def is_asking(self) -> bool:
        return self.messages[0].role == "user"


def choose_cut(view: LiveView, *, keep_turns: int, budget: int, ceiling: int | None = None) -> Cut | None:
    """Return the smallest cut after which the staying messages have at most `budget` tokens; None if nothing can leave.

    The newest turn's user messages stay beyond the budget, up to `ceiling` tokens.
    """
    groups = list(_groups(view.tail))
    first = next((message for message in view.messages if message.role == "user"), None)
    asks = [group.is_asking for group in groups]
    starts = [place for place, asking in enumerate(asks) if asking and not (place and asks[place - 1])]
    for number, start in enumerate(starts[-keep_turns:]):
        staying = sum(group.tokens for group in groups[start:])
        may_open = number == 0 and first is not None and first.id < groups[start].messages[0].id
        for kept in ([first], []) if may_open and first is not None else ([],):
            if staying + sum(map(message_tokens, kept)) <= budget:
                return _cut(view, groups[:start], kept)
    return _cut_inside_turn(view, groups, starts, budget, max(budget, ceiling or 0))


def _cut_inside_turn(view: LiveView, groups: list[_Group], starts: list[int], budget: int, ceiling: int) -> Cut | None:
    """Cut inside a last turn that is too long: keep its user messages and as much of its end as fits."""
    turn = starts[-1] if starts else 0
    asking = list(takewhile(lambda group: group.is_asking, groups[turn:]))
    asked = [group.messages[0] for group in asking] or [m for m in view.head if m.role == "user"][-1:]
    kept = list(_newest_that_fit(asked, ceiling))
    left = budget - sum(map(message_tokens, kept))
    place = len(groups)
    while place > turn + len(asking) and groups[place - 1].tokens <= left:
        place -= 1
        left -= groups[place].tokens
    if asking and place == turn + len(asking):  # all that follows the question stays, so it keeps its place
        return _cut(view, groups[: place - len(kept)], [])
    return _cut(view, groups[:place], kept)


def _newest_that_fit(messages: Sequence[Message], tokens: int) -> Iterator[Message]:
    for message in reversed(messages):
        tokens -= message_tokens(message)
        if tokens < 0:
            return
        yield message


def _cut(view: LiveView, leaving: Sequence[_Group], kept: Sequence[Message]) -> Cut | None:
    kept_ids = {message.id for message in kept}
    gone = [message for message in view.head if message.id not in kept_ids]
    gone += [message for group in leaving for message in group.messages if message.id not in kept_ids]
    if not gone or not view.tail:
        return None
    # The tail stays, but messages kept by an earlier compression leave: the horizon does not move.
    horizon_id = leaving[-1].messages[-1].id if leaving else view.tail[0].id - 1
    return Cut(horizon_id, tuple(sorted(kept_ids)), tuple(gone))


def _groups(messages: Sequence[Message]) -> Iterator[_Group]:
    """Yield the messages in groups between which a cut is allowed."""
    origins = _origins(messages)
    needed = end = len(messages)
    found: list[_Group] = []
    for place in range(len(messages) - 1, -1, -1):
        needed = min(needed, origins[place])
        if needed >= place:
            part = messages[place:end]
            found.append(_Group(tuple(part), sum(map(message_tokens, part))))
            end = place
    yield from reversed(found)


def _origins(messages: Sequence[Message]) -> list[int]:
    """Return for each message the index that it must stay with: a tool result's call, otherwise its own index."""
    called: dict[str, int] = {}
    origins = list(range(len(messages)))
    for place, message in enumerate(messages):
        called |= {call.id: place for call in message.tool_calls}
        if message.role == "tool":
            origins[place] = called.get(message.tool_call_id or "", place)
    return origins


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
