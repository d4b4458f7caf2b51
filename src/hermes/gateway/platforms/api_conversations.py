"""Recognises the session of a client that sends the whole conversation with each request (`api.memory: full`).

    the messages before the last one ─┬─ end with the last turn of a session: the new message continues it
                                      ├─ unknown, edited, or the session continued otherwise: a new session
    all of them known already ────────┴─ the reply is pending or was lost: that one; it was received: a new reply

A session stores only the messages of its own turns. Earlier messages, said to another model or before an edit, are sent
to the model with each request and stored nowhere.

Recognises what chat programs add to messages: their own tasks, and documents around a message.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from hashlib import sha256
from operator import eq

from msgspec import Struct
from msgspec.structs import replace

from hermes.db import queue_items
from hermes.db.engine import Tx
from hermes.db.queue import Item
from hermes.events import Failed, Replied, Stopped
from hermes.fence import strip_fences
from hermes.gateway.inbox import INBOX, item_key_of
from hermes.gateway.inbox_record import recall_ending
from hermes.gateway.platform import Inbound
from hermes.scope import Scope
from hermes.store.api_turns import (
    ApiTurn,
    add_turn,
    answer_anew,
    drop_turn,
    extent_of,
    find_turn,
    turns_with_words,
    words_until,
)
from hermes.store.store import Store
from hermes.types import Draft

TASK = "### Task:"
HISTORY = "<chat_history>"
CONTEXT_END = "</context>"
OPEN_WEBUI = (
    "Query: History:\n",
    "You have been provided with a set of responses from various models to the latest user query:",
    "Your task is to reflect the speaker's likely facial expression through a fitting emoji",
)
LIBRECHAT = (
    "Provide a concise, 5-word-or-less title for the conversation",
    "Please generate a concise, 5-word-or-less title for the conversation",
    "Please generate a concise title (max 40 characters) for a conversation that starts with",
    "Analyze this conversation and provide:\n1. The detected language of the conversation",
    "Detect user language and write in the same language an extremely concise title for this conversation",
)


def is_task(text: str) -> bool:
    """Return True for a program's own request: a title, tags, follow-up questions, search queries, or a completion of
    typed text. It holds the conversation in a prompt, and is not a part of it."""
    begun = text.lstrip()
    if begun.startswith(TASK):
        return HISTORY in begun
    return begun.startswith((*OPEN_WEBUI, *LIBRECHAT))


def split_documents(text: str) -> tuple[str, str]:
    """Return the documents that Open WebUI put before a message, with its instructions, or ""; and the message."""
    if not text.lstrip().startswith(TASK):
        return "", text
    documents, end, words = text.rpartition(CONTEXT_END)
    return (documents + end, words.strip()) if words.strip() else ("", text)


def find_memory_switch(messages: Sequence[Draft]) -> str | None:
    """Return the argument of the last `/memory` command in a history, `on` or `off`; None without such a command."""
    for message in reversed(messages):
        words = (message.content or "")[:40].lower().split() if message.role == "user" else []
        if words in (["/memory", "on"], ["/memory", "off"]):
            return words[1]
    return None


RETRY = "/retry"
MAX_COMPARED_REPLIES = 4
"""Number of last replies of a session, one of which a client's shortened history must contain."""


class History(Struct, frozen=True):
    """A request's messages, parsed. Each hash includes the speaker, so two people never share one."""

    said: str
    """The new message without documents."""
    documents: str
    messages: tuple[Draft, ...]
    places: tuple[int, ...]
    """Indexes of the person's messages in `messages`; the last is the new one."""
    chain: str
    """Hash of all messages."""
    before: str | None
    """Hash of all messages up to the person's previous message; None for a first message."""
    words: str
    words_before: tuple[str, ...]
    """Hashes of the person's previous messages, the newest first."""
    since: tuple[tuple[str, str], ...]
    """Role and text of all messages after the person's previous one."""

    @property
    def replies(self) -> list[str]:
        return [text for role, text in self.since if role == "assistant"]


def name_conversation(scope: Scope, user: str | None, messages: Sequence[Draft]) -> str:
    """Return a name for a conversation that is not stored, derived from its speaker and first message."""
    return _hash(_seed(scope, user), next((one.content or "" for one in messages if one.role == "user"), ""))


def _seed(scope: Scope, user: str | None) -> str:
    return _hash(scope.name, "" if user is None else f"={user}")


def read_history(scope: Scope, user: str | None, messages: Sequence[Draft]) -> History:
    """Parse a request whose last message is the person's. Takes time in proportion to the length of the text."""
    documents, said = split_documents(messages[-1].content or "")
    own = [*messages[:-1], replace(messages[-1], content=said)]
    plain = [(place, one.role, _plain(one.content or "")) for place, one in enumerate(own)]
    spoken = [(place, role, text) for place, role, text in plain if role in ("user", "assistant") and text]
    people = [number for number, (_, role, _) in enumerate(spoken) if role == "user"]
    cut = people[-2] + 1 if len(people) > 1 else 0
    pairs = [(role, text) for _, role, text in spoken]
    seed = _seed(scope, user)
    before = _follow(seed, pairs[:cut]) if cut else None
    return History(
        said=said,
        documents=documents,
        messages=tuple(messages),
        places=tuple(spoken[number][0] for number in people),
        chain=_follow(before or seed, pairs[cut:]),
        before=before,
        words=_hash(seed, pairs[-1][1]),
        words_before=tuple(_hash(seed, pairs[number][1]) for number in reversed(people[:-1])),
        since=tuple(pairs[cut:]),
    )


class Conversations(Struct, frozen=True):
    """Finds the sessions of requests in one store."""

    store: Store

    async def place(self, history: History, message: Inbound) -> Inbound | None:
        """Return the message with its session, its id and the messages that the model sees before it.

        The text is `/retry` if the message was answered before. Returns None to answer again in the middle of a
        session, which is not stored. `message` has the client's own message id, or "".
        """
        return await self.store.write(lambda tx: self._place(tx, history, message))

    def _place(self, tx: Tx, history: History, message: Inbound) -> Inbound | None:
        chain = history.chain
        turn, last = find_turn(tx, chain), find_turn(tx, history.before or "")
        if turn is None and last is None and (last := self._turn_of_shortened(tx, history)) is not None:
            chain = _follow(last.chain, history.since)
            turn = find_turn(tx, chain)
        if turn is not None:
            return self._place_repeated(tx, turn, history, message)
        goes_on = last is not None and self._continues(tx, last, history, message)
        session_id = last.session_id if last is not None and goes_on else self._branch(tx, last, history)
        item = message.message_id or chain
        if (
            self._find_item(tx, session_id, message) is None
        ):  # otherwise the id belongs to another message: refused later
            add_turn(tx, chain, history.words, session_id, item)
        return self._place_in(tx, session_id, history, replace(message, message_id=item))

    def _turn_of_shortened(self, tx: Tx, history: History) -> ApiTurn | None:
        """Return the turn before the new message for a client that left out earlier messages.

        It has the same text and reply, and follows the same messages as far as both the client and the session have
        them. Text and reply alone ("thanks", "you're welcome") could belong to another conversation.
        """
        before = history.words_before
        for turn in turns_with_words(tx, before[0]) if before and history.replies else ():
            replies = self.store.messages.last_replies(tx, turn.session_id, MAX_COMPARED_REPLIES)
            spoken = self.store.messages.spoken_last(tx, turn.session_id)
            is_reply = history.replies[-1] in map(_plain, (spoken, *replies))
            if is_reply and all(map(eq, before, words_until(tx, turn, len(before)))):
                return turn
        return None

    def _continues(self, tx: Tx, last: ApiTurn, history: History, message: Inbound) -> bool:
        """Return True if the new message continues a session: the session ends with the previous message, and the
        client has its reply, a prefix of it, or none."""
        if extent_of(tx, last.session_id)[1] != last.id:
            return False
        item = self._find_item(tx, last.session_id, replace(message, message_id=last.item))
        if item is None:
            ours = next(iter(self.store.messages.last_replies(tx, last.session_id, 1)), None)
        else:
            ending = recall_ending(tx, self.store, item)
            ours = ending.text if isinstance(ending, Replied | Stopped) else None
        spoken = self.store.messages.spoken_last(tx, last.session_id)
        theirs = " ".join(history.replies)
        return ours is None or any(_plain(text).startswith(theirs) for text in (ours, spoken))

    def _branch(self, tx: Tx, last: ApiTurn | None, history: History) -> str:
        """Create a session and return its id. It starts incognito if the chat was incognito at that point."""
        session_id = self.store.sessions.new_id(tx, self.store.clock.now())
        switch = find_memory_switch(history.messages[:-1])
        was_off = last is not None and self.store.incognito.is_on(tx, last.session_id)
        if switch == "off" or (switch is None and was_off):
            self.store.incognito.begin(tx, session_id)
        return session_id

    def _place_repeated(self, tx: Tx, turn: ApiTurn, history: History, message: Inbound) -> Inbound | None:
        """Return the message for a repeated request. A client whose reply is pending or was lost gets that reply; one
        that received it gets another. The client's own message id takes precedence."""
        placed = self._place_in(tx, turn.session_id, history, message)
        if (own := self._find_item(tx, turn.session_id, message)) is not None:
            return replace(placed, text=_text_of(own))
        placed = replace(placed, message_id=turn.item)
        if (item := self._find_item(tx, turn.session_id, placed)) is not None:
            ending = recall_ending(tx, self.store, item)
            if ending is None or not (turn.is_delivered or isinstance(ending, Failed)):
                return replace(placed, text=_text_of(item))
        messages = self.store.messages
        said = messages.find_said(tx, turn.session_id, strip_fences(history.said))
        is_last = extent_of(tx, turn.session_id)[1] == turn.id
        if not said and not is_last:  # a command, which may begin another chat too, or a retracted message
            drop_turn(tx, turn)
            return self._place(tx, history, message)
        if not is_last or (said and said != messages.last_said(tx, turn.session_id)):
            return None
        if item is None and not said:
            return placed
        anew = message.message_id or secrets.token_hex(16)
        answer_anew(tx, turn, anew)
        return replace(placed, message_id=anew, text=RETRY if said else history.said)

    def _find_item(self, tx: Tx, session_id: str, message: Inbound) -> Item | None:
        """Return the inbox item of a message in a session, if the message has an id."""
        if not message.message_id:
            return None
        return queue_items.find(tx, INBOX, item_key_of(replace(message, session_id=session_id)))

    def _place_in(self, tx: Tx, session_id: str, history: History, message: Inbound) -> Inbound:
        """Return the message in a session, with what the model sees before the session's own messages: the client's
        instructions, messages from before the session, and documents."""
        first = history.places[max(0, len(history.places) - extent_of(tx, session_id)[0])]
        seen = [
            (one.role, strip_fences(one.content or ""))
            for place, one in enumerate(history.messages)
            if _is_context(one, place, first)
        ]
        documents = [("user", history.documents)] if history.documents else []
        chat = replace(message.chat, chat_id=session_id)
        return replace(message, chat=chat, session_id=session_id, text=history.said, earlier=(*seen, *documents))


def _is_context(message: Draft, place: int, first: int) -> bool:
    is_said = message.role in ("user", "assistant") and place < first
    return bool((message.content or "").strip()) and (message.role == "system" or is_said)


def _text_of(item: Item) -> str:
    return "" if item.payload is None else str(item.payload["text"])


def _plain(text: str) -> str:
    """Return a text with white space normalised, which clients change."""
    return " ".join(text.split())


def _follow(chain: str, pairs: Iterable[tuple[str, str]]) -> str:
    for role, text in pairs:
        chain = _hash(chain, role, text)
    return chain


def _hash(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()
