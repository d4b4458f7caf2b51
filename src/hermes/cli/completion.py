"""What Tab offers: slash commands, and what goes after one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING

from hermes.cli.conversation import COMMANDS, Conversation
from hermes.cli.rows import head

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document


async def offers(conversation: Conversation, typed: str) -> list[tuple[str, str]]:
    """What may stand in place of the last word of `typed`, each with what it means. Nothing for a plain message."""
    if not typed.startswith("/") or "\n" in typed:
        return []
    name, space, word = typed.partition(" ")
    if not space:
        return [(f"/{known}", command.help) for known, command in COMMANDS.items() if f"/{known}".startswith(name)]
    if name == "/memory":
        known = [("on", "Recall, note and send again."), ("off", "Incognito from here on.")]
    elif name == "/resume":
        known = [
            (entry.session.id, head(entry.session.title or entry.preview, 40)) for entry in await conversation.recent()
        ]
    else:
        known = []
    return [(text, meaning) for text, meaning in known if text.startswith(word)]


def make_completer(conversation: Conversation) -> Completer:
    """`offers` as prompt_toolkit wants it."""
    from prompt_toolkit.completion import Completer, Completion

    class SlashCompleter(Completer):
        def get_completions(self, _document: Document, _event: CompleteEvent) -> Iterable[Completion]:
            return ()  # only the asynchronous door is used

        async def get_completions_async(
            self, document: Document, _event: CompleteEvent
        ) -> AsyncGenerator[Completion, None]:
            typed = document.text_before_cursor
            word = typed.partition(" ")[2] if " " in typed else typed
            for text, meaning in await offers(conversation, typed):
                yield Completion(text, start_position=-len(word), display_meta=meaning)

    return SlashCompleter()
