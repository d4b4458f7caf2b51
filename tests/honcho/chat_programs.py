"""Requests as chat programs send them: the whole conversation each time, without a session, and the program's
background tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.gateway.asking import chunks, streamed_text
from tests.plain_http import PLAIN

HISTORY = "### Chat History:\n<chat_history>\nUSER: {}\nASSISTANT: {}\n</chat_history>"
OPEN_WEBUI_TASKS = {
    "title": "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n"
    f'### Output:\nJSON format: {{ "title": "your concise title here" }}\n{HISTORY}',
    "tags": "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history, along with 1-3 more "
    f"specific subtopic tags.\n\n### Guidelines:\n{HISTORY}",
    "follow-ups": "### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might naturally ask "
    f"next in this conversation as a **user**, based on the chat history.\n{HISTORY}",
    "queries": "### Task:\nAnalyze the chat history to determine the necessity of generating search queries, in the "
    f"given language.\n{HISTORY}",
    "completion": f"### Task:\nYou are an autocompletion system. Continue the text in `<text>`.\n{HISTORY}",
    "merged reply": "You have been provided with a set of responses from various models to the latest user query: "
    '"{}"\n\nYour task is to synthesize these responses into a single, high-quality response.\n\n"""{}"""',
    "tool choice": 'Query: History:\nUSER: """{}"""\nASSISTANT: """{}"""\nQuery: and then?',
}
LIBRECHAT_TASKS = {
    "title": "Provide a concise, 5-word-or-less title for the conversation, using title case conventions. Only return "
    "the title itself.\n\nConversation:\nUser: {}\nAI: {}",
    "title with language": "Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A "
    "concise title in the detected language (5 words or less, no punctuation or quotation)\n\nUser: {}\nAI: {}",
    "older title": "Please generate a concise, 5-word-or-less title for the conversation, using its same language, "
    'with no punctuation.\n\n||>User:\n"{}"\n||>Response:\n"{}"',
}
TASKS = {
    **{f"Open WebUI {name}": text for name, text in OPEN_WEBUI_TASKS.items()},
    **{f"LibreChat {name}": text for name, text in LIBRECHAT_TASKS.items()},
}
LIBRECHAT = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "stream_options": {"include_usage": True}}
OPEN_WEBUI: dict[str, Any] = {}


@dataclass
class ChatProgram:
    """One chat in a program that stores it and sends all of it."""

    url: str
    model: str = "hermes:full"
    more: Mapping[str, Any] = field(default_factory=dict)
    system: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)
    session_id: str = ""
    """The session that the last response named; "" for none."""

    def say(self, text: str) -> str:
        """Send a message and return the reply."""
        self.messages.append({"role": "user", "content": text})
        return self.send()

    def regenerate(self) -> str:
        """Request another reply to the last message."""
        self.messages.pop()
        return self.send()

    def edit(self, place: int, text: str) -> str:
        """Change a message and send the chat up to it."""
        self.messages = [*self.messages[:place], {"role": "user", "content": text}]
        return self.send()

    def send(self) -> str:
        answer = self.post(self.messages)
        self.session_id = answer.headers.get("x-hermes-session-id", "")
        text = streamed_text(chunks(answer.text))
        self.messages.append({"role": "assistant", "content": text})
        return text

    def post(self, messages: list[dict[str, str]], **headers: str) -> httpx.Response:
        """Post these messages, and read the reply as a stream."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        body = {"model": self.model, "stream": True, "messages": [*system, *messages], **self.more}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = httpx.post(f"{self.url}/chat/completions", json=body, headers=named, timeout=120, verify=PLAIN)
        assert answer.status_code == 200, answer.text
        return answer

    def run_task(self, template: str) -> str:
        """Send a background request, as the program does after a reply."""
        said, replied = (message["content"] for message in self.messages[-2:])
        task = {"role": "user", "content": template.replace("{}", said, 1).replace("{}", replied, 1)}
        body = {"model": self.model, "messages": [task], "stream": False, "max_completion_tokens": 1000}
        answer = httpx.post(f"{self.url}/chat/completions", json=body, timeout=120, verify=PLAIN)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])
