"""Recognises what chat programs add to messages: their own tasks, and documents around a message."""

from __future__ import annotations

from collections.abc import Sequence

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
