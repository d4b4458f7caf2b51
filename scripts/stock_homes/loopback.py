"""Loopback services of a stock Hermes: a model and an IRC server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

GROW = "grow"
"""A word that makes the model call a tool and report that its window is nearly full."""
NOTE = "remember that "
"""A prefix; the model stores the rest of the line with the tool `memory`."""
FULL, LITTLE = 400_000, 1_000
WINDOW_TOKENS = 600_000
TALK = "/chat/completions"
SUMMARY_SECONDS = 0.06
"""Time that a summary takes."""
MEETING_TIMEOUT_SECONDS = 40.0
"""Longest wait of simultaneous requests for each other."""


class Model:
    """An OpenAI-compatible model that answers at once. `requests` keeps what each conversation's request held, and
    `summarising` is set while it is asked for a summary. Its replies are numbered from `first` on."""

    def __init__(self, first: int = 1) -> None:
        self.requests: list[list[dict[str, Any]]] = []
        self.summarising = asyncio.Event()
        self._first = first
        self._meeting: asyncio.Barrier | None = None

    def meet(self, parties: int) -> None:
        """Answer the next `count` requests to grow at the same moment, or none; 1 means each separately."""
        self._meeting = asyncio.Barrier(parties) if parties > 1 else None

    async def think(self, body: dict[str, Any]) -> None:
        """Wait as long as an answer takes."""
        if not body.get("tools"):
            self.summarising.set()
            await asyncio.sleep(SUMMARY_SECONDS)
        elif self._meeting is not None and asks_to_grow(body["messages"]):
            with suppress(TimeoutError):
                async with asyncio.timeout(MEETING_TIMEOUT_SECONDS):
                    await self._meeting.wait()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return message and usage for one request."""
        messages = body.get("messages") or []
        number = len(self.requests) + self._first
        if not body.get("tools"):
            return {"message": {"role": "assistant", "content": f"summary {number} of {len(messages)}"}, "used": LITTLE}
        self.requests.append(messages)
        last = messages[-1]
        text = str(last.get("content")) if last["role"] == "user" else ""
        if asks_to_grow(messages):
            return {"message": _calling(number, "todo", {}), "used": FULL}
        if NOTE in text:
            noted = {"action": "add", "target": "user", "content": text[text.index(NOTE) :].splitlines()[0]}
            return {"message": _calling(number, "memory", noted), "used": LITTLE}
        return {"message": {"role": "assistant", "content": f"reply {number}"}, "used": LITTLE}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(v) for k, v in _headers(head) if k == "content-length"), 0)
                body = json.loads(await reader.readexactly(length) or b"{}")
                path = head.split()[1]
                if path.endswith(TALK):
                    await self.think(body)
                kind, data = self._reply(path, body)
                writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n".encode())
                writer.write(data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # who asked is gone, or the server ends while it answers
        finally:
            writer.close()

    def _reply(self, path: str, body: dict[str, Any]) -> tuple[str, bytes]:
        if not path.endswith(TALK):
            data = {"object": "list", "data": [{"id": "loop", "object": "model", "context_length": WINDOW_TOKENS}]}
            return "application/json", json.dumps(data).encode()
        made = self.answer(body)
        usage = {"prompt_tokens": made["used"], "completion_tokens": 5, "total_tokens": made["used"] + 5}
        message, base = made["message"], {"id": "c", "created": 0, "model": "loop"}
        finish = "tool_calls" if "tool_calls" in message else "stop"
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
            return "application/json", json.dumps(whole).encode()
        calls = [{**call, "index": place} for place, call in enumerate(message.get("tool_calls", []))]
        delta = {**message, **({"tool_calls": calls} if calls else {})}
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage},
        ]
        lines = [json.dumps({**base, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
        return "text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()


class Irc:
    """An IRC server for one bot. The bot's messages are in `heard`, by recipient."""

    def __init__(self) -> None:
        self.joined = asyncio.Event()
        self.heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._bot: asyncio.StreamWriter | None = None

    def say(self, nick: str, target: str, text: str) -> None:
        """Send a person's message to the bot or a room."""
        assert self._bot is not None, "the bot has joined"
        self._bot.write(f":{nick}!u@h PRIVMSG {target} :{text}\r\n".encode())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the bot's connection; a restarted bot opens a new one."""
        self._bot = writer
        try:
            while line := (await reader.readline()).decode().strip():
                command, _, rest = line.partition(" ")
                if command == "NICK":
                    writer.write(f":server 001 {rest} :welcome\r\n".encode())
                elif command == "JOIN":
                    self.joined.set()
                elif command == "PRIVMSG":
                    target, _, text = rest.partition(" :")
                    self.heard.put_nowait((target, text))
        except ConnectionError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def serving(part: Model | Irc) -> AsyncIterator[int]:
    """Run the server on a free port."""
    server = await asyncio.start_server(part.serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def asks_to_grow(messages: list[dict[str, Any]]) -> bool:
    """Return True if the last message contains GROW."""
    return messages[-1]["role"] == "user" and GROW in str(messages[-1].get("content"))


def _calling(number: int, tool: str, arguments: dict[str, str]) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": f"call{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": "a moment", "tool_calls": [call]}


def _headers(head: str) -> list[tuple[str, str]]:
    lines = (line.partition(":") for line in head.split("\r\n")[1:] if line)
    return [(name.strip().lower(), value.strip()) for name, _, value in lines]
