"""Recognises a conversation that a client sends whole with each request (`api.memory: full`).

    the messages before the last one ─┬─ end with the last turn of a session: the new message is said there
                                      ├─ unknown, edited, or the session went on otherwise: a session of its own
    all of them known already ────────┴─ the reply is on its way or was lost: that one; it was taken: another one

A session stores what was said in it alone. What a client has said before, to another model or before an earlier message
was edited, is handed to the model with each request and stored nowhere.
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
from hermes.gateway.platforms.api_forms import find_memory_switch, split_documents
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

RETRY = "/retry"
RECENT_REPLIES = 4
"""The last replies of a session, one of which a client's shortened history must have."""


class History(Struct, frozen=True):
    """A request's messages as they are recognised. Every hash has in it who speaks: two people have none in common."""

    said: str
    """What the person says now."""
    documents: str
    messages: tuple[Draft, ...]
    places: tuple[int, ...]
    """Where the person's messages stand among `messages`; the last is the new one."""
    chain: str
    """Hash of all that was said."""
    before: str | None
    """The same up to the person's message before the new one."""
    words: str
    words_before: tuple[str, ...]
    """Hashes of the person's messages before the new one, the newest first."""
    since: tuple[tuple[str, str], ...]
    """Role and text of all that came after the person's message before."""

    @property
    def replies(self) -> list[str]:
        return [text for role, text in self.since if role == "assistant"]


def name_conversation(scope: Scope, user: str | None, messages: Sequence[Draft]) -> str:
    """A name for a conversation that is not kept, by who speaks and how it begins."""
    return _hash(_seed(scope, user), next((one.content or "" for one in messages if one.role == "user"), ""))


def _seed(scope: Scope, user: str | None) -> str:
    return _hash(scope.name, "" if user is None else f"={user}")


def read_history(scope: Scope, user: str | None, messages: Sequence[Draft]) -> History:
    """Read a request whose last message is the person's. It takes time with the length of its text."""
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
    """The recognised conversations of one store."""

    store: Store

    async def place(self, history: History, message: Inbound) -> Inbound | None:
        """The message as it is handed in: in which session, under which id and with what the model is to see before it.
        It may be `/retry`, where it was said and answered before. None where a reply in the middle of a session is
        wanted anew: that one is not kept. `message` has the client's own message id, or ""."""
        return await self.store.write(lambda tx: self._place(tx, history, message))

    def _place(self, tx: Tx, history: History, message: Inbound) -> Inbound | None:
        chain = history.chain
        turn, last = find_turn(tx, chain), find_turn(tx, history.before or "")
        if turn is None and last is None and (last := self._shortened(tx, history)) is not None:
            chain = _follow(last.chain, history.since)
            turn = find_turn(tx, chain)
        if turn is not None:
            return self._again(tx, turn, history, message)
        goes_on = last is not None and self._goes_on(tx, last, history, message)
        session_id = last.session_id if last is not None and goes_on else self._branch(tx, last, history)
        item = message.message_id or chain
        if self._find_item(tx, session_id, message) is None:  # else the id is another message's, which is refused
            add_turn(tx, chain, history.words, session_id, item)
        return self._said_in(tx, session_id, history, replace(message, message_id=item))

    def _shortened(self, tx: Tx, history: History) -> ApiTurn | None:
        """The turn before the new message, where a client has left out what came earlier: one with the same words and
        reply, after the same messages as far as the client and the session have them. Words and reply alone ("thanks",
        "you're welcome") may be those of another conversation."""
        before = history.words_before
        for turn in turns_with_words(tx, before[0]) if before and history.replies else ():
            replies = self.store.messages.last_replies(tx, turn.session_id, RECENT_REPLIES)
            spoken = self.store.messages.spoken_last(tx, turn.session_id)
            is_reply = history.replies[-1] in map(_plain, (spoken, *replies))
            if is_reply and all(map(eq, before, words_until(tx, turn, len(before)))):
                return turn
        return None

    def _goes_on(self, tx: Tx, last: ApiTurn, history: History, message: Inbound) -> bool:
        """Whether a session can go on with the new message: it ends with the message before, and its reply is what the
        client has, or the client has the beginning of it, or none."""
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
        """The id of a new session. It is incognito from its beginning where the chat was when it was left."""
        session_id = self.store.sessions.new_id(tx, self.store.clock.now())
        switch = find_memory_switch(history.messages[:-1])
        was_off = last is not None and self.store.incognito.is_on(tx, last.session_id)
        if switch == "off" or (switch is None and was_off):
            self.store.incognito.begin(tx, session_id)
        return session_id

    def _again(self, tx: Tx, turn: ApiTurn, history: History, message: Inbound) -> Inbound | None:
        """A message that was handed in before. Whoever waits for its reply, or never got it, gets that one; whoever got
        it wants another. The client's own message id goes before all of this."""
        placed = self._said_in(tx, turn.session_id, history, message)
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
        if not said and not is_last:  # a command, with which another chat begins too, or what was taken back
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
        """The inbox item of a message in a session, where the message has an id."""
        if not message.message_id:
            return None
        return queue_items.find(tx, INBOX, item_key_of(replace(message, session_id=session_id)))

    def _said_in(self, tx: Tx, session_id: str, history: History, message: Inbound) -> Inbound:
        """The message in a session, with what the model sees before the session's own messages: the client's
        instructions, what was said before the session began, and documents."""
        first = history.places[max(0, len(history.places) - extent_of(tx, session_id)[0])]
        seen = [
            (one.role, strip_fences(one.content or ""))
            for place, one in enumerate(history.messages)
            if _is_seen(one, place, first)
        ]
        documents = [("user", history.documents)] if history.documents else []
        chat = replace(message.chat, chat_id=session_id)
        return replace(message, chat=chat, session_id=session_id, text=history.said, earlier=(*seen, *documents))


def _is_seen(message: Draft, place: int, first: int) -> bool:
    is_said = message.role in ("user", "assistant") and place < first
    return bool((message.content or "").strip()) and (message.role == "system" or is_said)


def _text_of(item: Item) -> str:
    return "" if item.payload is None else str(item.payload["text"])


def _plain(text: str) -> str:
    """A text without what clients change on its way: white space."""
    return " ".join(text.split())


def _follow(chain: str, pairs: Iterable[tuple[str, str]]) -> str:
    for role, text in pairs:
        chain = _hash(chain, role, text)
    return chain


def _hash(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()
