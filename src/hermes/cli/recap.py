"""What a person sees of a session that is gone on with."""

from __future__ import annotations

import shutil

from hermes.cli.output import printable
from hermes.cli.rows import head
from hermes.cli.talk import PROMPT
from hermes.store.store import Store
from hermes.types import Session


async def recap(store: Store, session: Session) -> str:
    """Which session it is and what was said in it last."""
    view = await store.read(lambda tx: store.compressions.view(tx, session.id))
    room = shutil.get_terminal_size().columns - len(PROMPT)
    said = [message for message in view.messages if message.role in ("user", "assistant") and message.content]
    last = [f"{PROMPT if m.role == 'user' else ''}{head(printable(m.content or ''), room)}" for m in said[-2:]]
    called = f" “{printable(session.title)}”" if session.title else ""
    count = "1 message" if session.message_count == 1 else f"{session.message_count} messages"
    return "\n".join([f"Going on with {session.id}{called} ({count}).", *last])
