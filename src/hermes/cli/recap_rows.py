"""The last exchange of a session as rows, as it was seen when it was said."""

from __future__ import annotations

from hermes.cli.own_name import advise
from hermes.cli.pastes import Pastes
from hermes.cli.recap import Recap
from hermes.cli.screen import Screen
from hermes.cli.talk import INDENT, PROMPT
from hermes.events import TextDelta

MOST_SAID, MOST_REPLIED = 4, 11
"""Rows of what the person said, and of the reply, that are shown at most."""
LONGEST = 2000
"""Characters of either: a row of code may be wider than the window."""
MORE = "… (`hermes sessions show {}` has all of it)"
UNANSWERED = "(It has no reply: `/retry` answers it.)"


def recap_rows(recap: Recap, screen: Screen) -> list[str]:
    """The rows; `screen` is made for this alone."""
    rows: list[str] = []
    for message in recap.exchange:
        whole, is_said = message.content or "", message.role == "user"
        text = whole[:LONGEST]
        if is_said:
            screen.said(PROMPT + Pastes().shorten(text).replace("\n", f"\n{INDENT}"))
        else:
            screen.show(TextDelta(text))
            screen.end_text()
        made, most = screen.take(), MOST_SAID if is_said else MOST_REPLIED
        if len(made) > most or text != whole:
            made = [*made[: most - 1], screen.dim(advise(MORE.format(message.session_id)))]
        rows += made
    return [*rows, screen.dim(UNANSWERED)] if recap.is_unanswered else rows
