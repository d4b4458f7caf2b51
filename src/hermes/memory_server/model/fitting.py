"""Trimming messages to the model's window. Texts lose their middle, since instructions come first and questions
last."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.llm.tokens import estimate_request, estimate_tokens, keep_ends
from hermes.types import Json, ToolSpec

WINDOW_SHARE = 0.9
"""Share of the window that is used, because token counts are estimates."""
MAX_ANSWER_SHARE = 0.4
"""Largest share of the window that the answer may use."""
MIN_TEXT_TOKENS = 32
"""A text is not cut below this length while another one is longer."""
CUT_MARK = " […] "

ChatMessages = Sequence[dict[str, Json]]


def room_tokens(messages: ChatMessages, tools: Sequence[ToolSpec], window: int, answer: int) -> int:
    """Return the tokens of the window that remain for more text, besides the answer."""
    return max(0, int(window * WINDOW_SHARE) - answer - estimate_request(messages, tools))


def answer_tokens(window: int, wanted: int) -> int:
    """Return the number of tokens that an answer may have."""
    return max(1, min(wanted, int(window * MAX_ANSWER_SHARE)))


def fit_messages(messages: ChatMessages, tools: Sequence[ToolSpec], window: int, answer: int) -> list[dict[str, Json]]:
    """Return the messages that fit into a window besides the answer. The oldest exchanges are dropped first, then the
    longest texts lose their middles. System messages, the last question and the last exchange stay, shortened."""
    room = room_tokens((), tools, window, answer)
    groups = _groups(messages)
    last_question = max((at for at, group in enumerate(groups) if group[0].get("role") == "user"), default=0)
    kept = {at for at, group in enumerate(groups) if group[0].get("role") == "system"}
    kept |= {last_question, len(groups) - 1}
    sizes = [estimate_request(group) for group in groups]
    gone: set[int] = set()
    for at in range(len(groups)):
        if sum(size for number, size in enumerate(sizes) if number not in gone) <= room:
            break
        if at not in kept:
            gone.add(at)
    left = [message for at, group in enumerate(groups) if at not in gone for message in group]
    return _cut(left, room)


def _groups(messages: ChatMessages) -> list[list[dict[str, Json]]]:
    """Group a tool call with its results: endpoints refuse one without the other."""
    groups: list[list[dict[str, Json]]] = []
    for message in messages:
        if message.get("role") == "tool" and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def _cut(messages: list[dict[str, Json]], room: int) -> list[dict[str, Json]]:
    """Shorten the longest text repeatedly until all fit or none can be shortened."""
    sizes = [estimate_tokens(text) if isinstance(text := one.get("content"), str) else 0 for one in messages]
    texts = {at: messages[at]["content"] for at, size in enumerate(sizes) if size}
    over = estimate_request(messages) - room
    while over > 0 and texts:
        longest = max(texts, key=lambda at: sizes[at])
        second = max((sizes[at] for at in texts if at != longest), default=0)
        target = max(MIN_TEXT_TOKENS, sizes[longest] - over, min(second, sizes[longest] - 1))
        if target >= sizes[longest]:
            break
        cut = keep_ends(texts[longest], target, CUT_MARK)
        messages[longest] = {**messages[longest], "content": cut}
        over -= sizes[longest] - target
        sizes[longest] = target
    return messages
