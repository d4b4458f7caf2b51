"""Asking a Honcho server about one workspace: answers are checked for their shape, a 404 is None, everything else a
ProviderError. Of the answers of a server without a model not all is kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from hermes.clock import SystemClock
from hermes.errors import HermesError, ProviderError
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.links import Link, Links, ask_health
from hermes.honcho.names import workspace_path
from hermes.honcho.server import COMMAND_PATIENCE, Machine
from hermes.honcho.wire import DeliveryPatience
from hermes.types import Json

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds for finding the server and for one request. A turn with less time goes on without the answer."""
THINKING = 110.0
"""Seconds for an answer that a model thinks about: nobody waits for it, but the host ends preparing after 120."""
PAGE = 100
"""Items of one page of a list."""


class ListPage(Struct, Generic[T], frozen=True):
    items: list[T]
    total: int = 0


class SummaryPart(Struct, frozen=True):
    content: str


class Context(Struct, frozen=True):
    """What a session's context has of a person."""

    summary: SummaryPart | None = None
    peer_representation: str | None = None
    peer_card: list[str] | None = None


class RecalledRepresentation(Struct, frozen=True):
    representation: str


class Card(Struct, frozen=True):
    peer_card: list[str] | None = None


class ChatAnswer(Struct, frozen=True):
    content: str | None = None


class Named(Struct, frozen=True):
    """A session or a peer."""

    id: str


class RecalledMessage(Struct, frozen=True):
    content: str
    peer_id: str
    created_at: str


class RecalledConclusion(Struct, frozen=True):
    id: str
    content: str


class RecallReader:
    """Asks the server in force about one workspace."""

    def __init__(self, links: Links, now: Callable[[], float], workspace: str) -> None:
        self._links = links
        self.now = now
        self._workspace = workspace
        self._root = workspace_path(workspace)
        self._asked: Link | None = None
        self._is_floor: bool | None = None

    @property
    def has_model(self) -> bool:
        """Whether a model is known to answer there; nothing is asked."""
        return self._is_floor is False

    async def link(self) -> Link:
        """The connection to the server, which tells what it can do."""
        return await self._links.link(self.now() + PATIENCE)

    async def get(self, shape: type[T], path: str, **query: str | int | None) -> T | None:
        """Read something; None where the server does not know it."""
        given = {name: value for name, value in query.items() if value is not None}
        return await self._ask(shape, "GET", f"{path}?{urlencode(given)}" if given else path, None)

    async def post(
        self, shape: type[T], path: str, body: Json, longest: float | None = None, **query: str | int
    ) -> T | None:
        """The same with a body; it may take `longest` seconds, where that is given."""
        return await self._ask(shape, "POST", f"{path}?{urlencode(query)}" if query else path, body, longest)

    async def listed(self, shape: type[ListPage[T]], path: str, filters: Json, most_pages: int) -> AsyncIterator[T]:
        """Every item of a list, up to so many pages of it; none where the server does not know what it is of."""
        for page in range(1, most_pages + 1):
            found = await self.post(shape, path, {"filters": filters}, page=page, size=PAGE)
            for item in found.items if found is not None else ():
                yield item
            if found is None or len(found.items) < PAGE:
                return

    async def write(self, method: str, path: str, body: Json) -> None:
        """Change something. What the server does not know is a failure too."""
        wire = (await self.link()).wire
        await wire.ask(method, f"{self._root}/{path}", body, until=self.now() + PATIENCE)

    async def delete(self, path: str) -> None:
        """Delete something; what is gone already is fine."""
        wire = (await self.link()).wire
        await wire.ask_if_there("DELETE", f"{self._root}/{path}", until=self.now() + PATIENCE)

    async def have_peers(self, *names: str) -> None:
        """Have the workspace, with these peers."""
        link = await self.link()
        await link.members.have_peers(self._workspace, list(names), self.now() + PATIENCE)

    async def is_floor(self) -> bool:
        """Whether what answers there is no model but the floor of our own server. Asked once for each server."""
        link = await self.link()
        if self._is_floor is None or link is not self._asked:
            health = await ask_health(link.wire, self.now() + PATIENCE)
            self._is_floor = "extensions" in health and health.get("model", "") is None
            self._asked = link
        return self._is_floor

    async def _ask(self, shape: type[T], method: str, path: str, body: Json, longest: float | None = None) -> T | None:
        until = self.now() + max(PATIENCE, longest or 0.0)
        wire = (await self._links.link(until)).wire
        told = await wire.ask_if_there(method, f"{self._root}/{path}", body, until=until, longest=longest)
        try:
            return None if told is None else msgspec.convert(told.value, shape)
        except msgspec.ValidationError as error:
            raise ProviderError("the server's answer is none that Honcho gives", hint="") from error


def ask_server(config: HonchoConfiguration, machine: Machine, ask: Callable[[RecallReader], Awaitable[T]]) -> T:
    """Let a command ask the server, which is started where it is our own and does not run. Blocks."""

    async def run() -> T:
        clock = SystemClock()
        links = Links(machine, clock, lambda: config, DeliveryPatience(request=COMMAND_PATIENCE))
        try:
            return await ask(RecallReader(links, clock.now, config.workspace))
        finally:
            await links.close()

    return asyncio.run(run())


def try_server(config: HonchoConfiguration, machine: Machine) -> str:
    """Reach the server and its workspace, which is made if it is not there; "" when that went well, else why not."""
    try:
        ask_server(config, machine, RecallReader.have_peers)
    except HermesError as error:
        return error.line()
    return ""


NOTICE = "No model is configured; this is what memory holds that fits the question."
"""How such an answer begins."""
SAID = "Said:"
WORD = re.compile(r"\w+")
SHORTEST = 4
"""Letters of a word that says what a question is about."""
STEM = 5
"""Letters by which two forms of a word are taken for one."""


def is_floor_answer(answer: str) -> bool:
    """Whether no model gave this answer."""
    return answer.startswith(NOTICE)


def keep_what_fits(answer: str, question: str) -> str:
    """The answer without its notice. Conclusions were chosen by the server for the question; of what was said only
    lines that share a word with it are kept, and the question itself is not."""
    about = _stems(question)
    asked = " ".join(question.lower().split())
    kept: list[str] = []
    in_said = False
    for line in answer.removeprefix(NOTICE).strip().splitlines():
        in_said = in_said or line.strip() == SAID
        is_quote = in_said and line.startswith("- ")
        if not is_quote or (about & _stems(line) and asked not in " ".join(line.lower().split())):
            kept.append(line)
    return "\n".join(kept).strip()


def _stems(text: str) -> set[str]:
    return {word[:STEM] for word in WORD.findall(text.lower()) if len(word) >= SHORTEST or not word.isascii()}
