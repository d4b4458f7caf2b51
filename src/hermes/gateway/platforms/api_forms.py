"""What chat programs send beside what a person says: tasks of their own, and documents around a message."""

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
    """Whether a program asks on its own behalf: for a title, tags, follow-up questions, search queries, a completion of
    what is being typed. Such a request holds the conversation in a prompt, and is no part of it."""
    begun = text.lstrip()
    if begun.startswith(TASK):
        return HISTORY in begun
    return begun.startswith((*OPEN_WEBUI, *LIBRECHAT))


def split_documents(text: str) -> tuple[str, str]:
    """The documents that Open WebUI put before a message, with its own words about them, or ""; and the message."""
    if not text.lstrip().startswith(TASK):
        return "", text
    documents, end, words = text.rpartition(CONTEXT_END)
    return (documents + end, words.strip()) if words.strip() else ("", text)


def find_memory_switch(messages: Sequence[Draft]) -> str | None:
    """What a person last said with `/memory` in a history: `on` or `off`; None where they said neither."""
    for message in reversed(messages):
        words = (message.content or "")[:40].lower().split() if message.role == "user" else []
        if words in (["/memory", "on"], ["/memory", "off"]):
            return words[1]
    return None
