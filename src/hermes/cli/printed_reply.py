"""The reply to a single question, printed at a terminal as it is streamed."""

from __future__ import annotations

import shutil
import sys

from hermes.app import App
from hermes.cli.output import use_color
from hermes.cli.screen import Screen
from hermes.events import Replied, TextDelta, TurnEvent
from hermes.settings import COLOR


class PrintedReply:
    """Prints a reply with rendered Markdown. Notices are printed elsewhere."""

    def __init__(self, app: App) -> None:
        colored = use_color(app.settings.get(COLOR), app.env)
        columns = shutil.get_terminal_size().columns
        self._screen = Screen(app.settings, lambda: columns, colored=colored, redraws=True)

    def show(self, event: TurnEvent) -> None:
        """Print the rows that became final."""
        if isinstance(event, TextDelta | Replied):
            self._screen.show(event)
        else:
            self._screen.end_text()
        if rows := self._screen.take():
            sys.stdout.write("".join(f"{row}\n" for row in rows))
            sys.stdout.flush()
