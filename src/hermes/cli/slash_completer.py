"""Tab completion for the live prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING

from hermes.cli.commands import AtTerminal
from hermes.cli.conversation import TerminalConversation
from hermes.slash.table import complete

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document


def make_completer(conversation: TerminalConversation) -> Completer:
    """Return a completer for slash commands and their arguments."""
    from prompt_toolkit.completion import Completer, Completion

    class SlashCompleter(Completer):
        def get_completions(self, _document: Document, _event: CompleteEvent) -> Iterable[Completion]:
            return ()  # only the asynchronous method is used

        async def get_completions_async(
            self, document: Document, _event: CompleteEvent
        ) -> AsyncGenerator[Completion, None]:
            typed = document.text_before_cursor
            word = typed.partition(" ")[2] if " " in typed else typed
            for text, meaning in await complete(AtTerminal(conversation, asyncio.Event()), typed):
                yield Completion(text, start_position=-len(word), display_meta=meaning)

    return SlashCompleter()
