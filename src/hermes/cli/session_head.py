"""The line that says which session is shown."""

from __future__ import annotations

from hermes.cli.output import printable, show_time
from hermes.types import Session


def session_head(session: Session) -> str:
    """Id, where it takes place, when it began, title."""
    title = printable(session.title or "(no title)")
    return f"{session.id} · {session.source} · {show_time(session.started_at)} · {title}"
