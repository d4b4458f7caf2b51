"""Where to cut: which messages leave the window and which stay. A pure function of the view and a budget.

Tool calls stay with their results. The first user message and the last turns stay whole where they fit; when they do
not, the oldest of them yields first and the newest user message last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hermes.llm.tokens import estimate_tokens
from hermes.types import LiveView, Message

PER_MESSAGE = 8


@dataclass(frozen=True, slots=True)
class Cut:
    """Messages up to `horizon_id` leave, but for `kept_ids`; `leaving` are those that left, in order."""

    horizon_id: int
    kept_ids: tuple[int, ...]
    leaving: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Messages that cannot be parted: a tool call and its results, or a single message."""

    messages: tuple[Message, ...]
    tokens: int

    @property
    def begins_turn(self) -> bool:
        return self.messages[0].role == "user"

    @property
    def last_id(self) -> int:
        return self.messages[-1].id


def choose_cut(view: LiveView, *, keep_turns: int, budget: int) -> Cut | None:
    """The gentlest cut after which the messages that stay have at most `budget` tokens; None when nothing can leave."""
    groups = list(_groups(view.tail))
    first = next((message for message in view.messages if message.role == "user"), None)
    starts = [place for place, group in enumerate(groups) if group.begins_turn]
    for start in starts[-keep_turns:]:
        staying = sum(group.tokens for group in groups[start:])
        opening = [] if first is None or first.id >= groups[start].messages[0].id else [first]
        for kept in (opening, []):
            if staying + sum(map(message_tokens, kept)) <= budget:
                return _cut(view, groups[:start], kept)
    return _cut_inside_turn(view, groups, starts, budget)


def _cut_inside_turn(view: LiveView, groups: list[_Group], starts: list[int], budget: int) -> Cut | None:
    """The last turn is too long by itself: keep its user message if it fits, and as much of its end as does."""
    turn = starts[-1] if starts else -1
    asked = groups[turn].messages[0] if starts else next((m for m in reversed(view.head) if m.role == "user"), None)
    kept = [asked] if asked is not None and message_tokens(asked) <= budget else []
    left = budget - sum(map(message_tokens, kept))
    place = len(groups)
    while place > turn + 1 and groups[place - 1].tokens <= left:
        place -= 1
        left -= groups[place].tokens
    return _cut(view, groups[:place], kept)


def _cut(view: LiveView, leaving: Sequence[_Group], kept: Sequence[Message]) -> Cut | None:
    kept_ids = {message.id for message in kept}
    gone = [message for message in view.head if message.id not in kept_ids]
    gone += [message for group in leaving for message in group.messages if message.id not in kept_ids]
    if not gone or not leaving:
        return None
    return Cut(leaving[-1].last_id, tuple(sorted(kept_ids)), tuple(gone))


def message_tokens(message: Message) -> int:
    """About how many tokens a message has in a request."""
    calls = sum(estimate_tokens(call.name) + estimate_tokens(call.arguments) for call in message.tool_calls)
    return PER_MESSAGE + estimate_tokens(message.content or "") + calls


def _groups(messages: Sequence[Message]) -> Iterator[_Group]:
    gathered: list[Message] = []
    for message in messages:
        if message.role != "tool" and gathered:
            yield _group(gathered)
            gathered = []
        gathered.append(message)
    if gathered:
        yield _group(gathered)


def _group(messages: list[Message]) -> _Group:
    return _Group(tuple(messages), sum(map(message_tokens, messages)))
