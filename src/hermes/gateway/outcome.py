"""What came of an inbox item, kept as a note with it: a client that asks again is told the same."""

from __future__ import annotations

import json

from hermes.db.engine import Tx
from hermes.db.outcomes import Done
from hermes.db.queue import Item
from hermes.events import GONE, Failed, Replied, Stopped
from hermes.llm.assemble import CUT
from hermes.store.store import Store

Ending = Replied | Stopped | Failed
FORGOTTEN = "the message was handled, but its reply is gone"


def done_with(ending: Ending) -> Done:
    """The outcome of an item whose turn ended so. A stored reply is pointed to, never copied."""
    match ending:
        case Replied(message_id=message_id) if message_id:
            return Done(json.dumps({"reply": message_id}))
        case Replied(text=text):
            return Done(json.dumps({"said": text}, ensure_ascii=False))
        case Stopped(text=text):
            return Done(json.dumps({"stopped": text}, ensure_ascii=False))
        case Failed(kind=kind, message=message):
            return Done(json.dumps({"failed": kind, "message": message}, ensure_ascii=False))


def recall_ending(tx: Tx, store: Store, item: Item) -> Ending | None:
    """How the turn of an item ended, or None while it has not."""
    session_id = item.session_id or ""
    if item.state == "waiting":
        return None
    if item.state == "dead":
        return Failed(session_id, "host", item.reason or "it was given up")
    if item.session_id is None:
        return Failed("", "gone", GONE)
    note = json.loads(item.reason or "{}")
    if "reply" in note:
        message = store.messages.get(tx, note["reply"])
        if message is not None:
            cut = message.finish_reason == CUT
            return Replied(message.session_id, message.id, message.content or "", None, message.token_count, cut)
    if "said" in note:
        return Replied(session_id, 0, note["said"])
    if "stopped" in note:
        return Stopped(session_id, note["stopped"])
    return Failed(session_id, note.get("failed", "host"), note.get("message", FORGOTTEN))
