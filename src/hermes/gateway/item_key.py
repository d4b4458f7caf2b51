"""What tells a message from every other: one that comes twice has one effect."""

from __future__ import annotations

import json
from collections.abc import Iterator

from hermes.db import queue_items
from hermes.db.engine import Tx
from hermes.db.queue import Item
from hermes.gateway.platform import Inbound
from hermes.store.store import Store

INBOX = "inbox"
"""The queue of what people said. Its lanes are conversations."""


def item_key_of(message: Inbound) -> str:
    """The key that a message is put into the inbox with: its id, within the name that its sender has for the place."""
    if message.session_id is not None:
        return _in_session(message, message.session_id)
    if message.session_key is not None:
        return _under_key(message, message.session_key)
    chat = message.chat
    return _join(chat.platform, chat.chat_type, chat.chat_id, message.message_id)


def find_item(tx: Tx, store: Store, message: Inbound) -> Item | None:
    """The inbox item that a message is already, also when it named the same session in another way then."""
    found = queue_items.find(tx, INBOX, item_key_of(message))
    if found is not None or (message.session_id is None and message.session_key is None):
        return found
    return next(_renamed(tx, store, message), None)


def _renamed(tx: Tx, store: Store, message: Inbound) -> Iterator[Item]:
    """Items with the same id in the session that a message means, by all its other names."""
    named = message.session_id or store.routes.lookup(tx, message.session_key or "")
    if named is None or not store.sessions.exists(tx, named):
        return
    lineage = store.sessions.lineage(tx, named)
    for session_id in lineage:
        if (item := queue_items.find(tx, INBOX, _in_session(message, session_id))) is not None:
            yield item
    keys = {key for one in lineage for key in store.routes.keys_of(tx, one)}
    for key in {*keys, message.session_key, store.sessions.get(tx, named).session_key} - {None}:
        item = queue_items.find(tx, INBOX, _under_key(message, key or ""))
        if item is not None and item.session_id in lineage:  # a key may have meant another session then
            yield item


def _in_session(message: Inbound, session_id: str) -> str:
    return _join(message.chat.platform, "session", session_id, message.message_id)


def _under_key(message: Inbound, key: str) -> str:
    return _join(message.chat.platform, "key", key, message.message_id)


def _join(*parts: str) -> str:
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
