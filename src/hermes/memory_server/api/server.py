"""The state of one serving process, and the access of requests to it.

A limit on wrong codes typed on the sign-in pages. It counts all clients together, since addresses can be forged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from fastapi import Depends, Query, Request

from hermes.clock import Clock
from hermes.errors import StoreError, UsageError
from hermes.memory_server import limits, times
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.embedder import Embedder, SearchQuestion
from hermes.memory_server.engine.embedding import Refinement
from hermes.memory_server.engine.grants import TokenKey
from hermes.memory_server.engine.health import ServerHealth
from hermes.memory_server.engine.paging import PageRequest
from hermes.memory_server.engine.parsing import Parsers
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.words import without_names
from hermes.memory_server.engine.worker import JobWorker
from hermes.memory_server.engine.workspaces import workspace_id_of
from hermes.memory_server.model.door import ModelDoor

MAX_WRONG_CODES = 5
PER_MICROS = 60_000_000


class WrongCodes:
    """The wrong codes of the last minute, in memory."""

    def __init__(self) -> None:
        self._times: deque[int] = deque()

    def begin_try(self, at: int) -> int:
        """Count an attempt and return 0, or return for how many seconds attempts are refused. An attempt counts before
        the code is checked, since many may arrive at once; call `forgive` if the code was right."""
        while self._times and not at - PER_MICROS < self._times[0] <= at:  # also if the clock was set back
            self._times.popleft()
        if len(self._times) >= MAX_WRONG_CODES:
            return -(-(self._times[0] + PER_MICROS - at) // 1_000_000)
        self._times.append(at)
        return 0

    def forgive(self) -> None:
        """Remove the newest attempt."""
        if self._times:
            self._times.pop()


T = TypeVar("T")
ACCESS_SECONDS = 3600
ACCESS_SECONDS_RANGE = (1, 86_400)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the server. Honcho's own variables are accepted, so that existing keys stay valid."""

    use_auth: bool = False
    jwt_secret: str = ""
    webhook_secret: str = ""
    start_key: str = ""
    """The only key of a server that a program started; it replaces JWT keys."""
    start_id: str = ""
    """Secret by which this server proves its identity to programs that can read its folder."""
    dreams: bool = True
    """True if dreams are scheduled automatically."""
    public_url: str = ""
    """URL of the server for people, if it differs from the listening address; sign-in pages use it."""
    access_seconds: int = ACCESS_SECONDS
    """Lifetime of an access token."""
    show_code: Callable[[str], None] | None = None
    """Displays a line with a one-time code that only the owner may see; None without a terminal."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Options:
        """Read AUTH_USE_AUTH, AUTH_JWT_SECRET and WEBHOOK_SECRET; for sign-in AUTH_PUBLIC_URL and
        AUTH_ACCESS_SECONDS."""
        wanted = env.get("AUTH_USE_AUTH", "").strip().lower() in ("1", "true", "yes", "on")
        return cls(
            wanted,
            env.get("AUTH_JWT_SECRET", ""),
            env.get("WEBHOOK_SECRET", ""),
            public_url=_read_public_url(env.get("AUTH_PUBLIC_URL", "")),
            access_seconds=_read_access_seconds(env.get("AUTH_ACCESS_SECONDS", "")),
        )

    @property
    def token_key(self) -> TokenKey:
        """Key that creates and verifies the tokens of sign-ins."""
        return TokenKey(self.jwt_secret, self.access_seconds)


def _read_public_url(given: str) -> str:
    if not (url := given.strip().rstrip("/")):
        return ""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.netloc and not parts.path and "@" not in parts.netloc
    except ValueError:
        fits = False
    if not fits or parts.query or parts.fragment:
        raise UsageError(f"AUTH_PUBLIC_URL is {given!r}", hint="Give scheme and host alone: https://memory.example")
    usual = {"http": ":80", "https": ":443"}[parts.scheme]
    return url.lower().removesuffix(usual)  # browsers omit the default port in `Origin`


def _read_access_seconds(given: str) -> int:
    if not given.strip():
        return ACCESS_SECONDS
    least, most = ACCESS_SECONDS_RANGE
    if not given.strip().isdecimal() or not least <= int(given.strip()[:9]) <= most:
        raise UsageError(f"AUTH_ACCESS_SECONDS is {given!r}", hint=f"Give a whole number from {least} to {most}")
    return int(given)


@dataclass(slots=True)
class Server:
    """The open database, with the caches and workers around it."""

    database: Database
    clock: Clock
    options: Options
    embedder: Embedder
    vectors: VectorIndex
    health: ServerHealth
    parsers: Parsers
    models: ModelDoor
    refinement: Refinement | None = None
    worker: JobWorker | None = None
    wrong_codes: WrongCodes = field(default_factory=WrongCodes)

    def now(self) -> int:
        """Return the time in microseconds since 1970."""
        return times.now(self.clock)

    async def ask_fast(self, text: str) -> SearchQuestion:
        """Embed a question without the second embedder, for turns that must not wait."""
        [vector] = await self.embedder.embed([text])
        return SearchQuestion(text, vector, getattr(self.embedder, "direction", None))

    async def ask(self, workspace: str, text: str) -> SearchQuestion:
        """Embed a question in a workspace, also with the second embedder if its messages have such vectors."""
        question = await self.ask_fast(text)
        if self.refinement is None:
            return question
        bare = await self.read(lambda tx: without_names(tx, workspace_id_of(tx, workspace), text))
        return replace(question, finer=await self.refinement.ask(bare))

    async def read(self, run: Callable[[Tx], T]) -> T:
        """Run a function on a consistent snapshot."""
        try:
            return await self.database.read(run)
        except StoreError as error:
            self.health.note(error)
            raise

    async def write(self, run: Callable[[Tx], T], group: str | None = None) -> T:
        """Run a function in a transaction, committed to disk before this returns, and wake the worker."""
        try:
            result = await self.database.write(run, group)
        except StoreError as error:
            self.health.note(error)
            raise
        self.health.wrote()
        if self.worker is not None:
            self.worker.wake()
        if self.refinement is not None:
            self.refinement.wake()
        return result


async def get_server(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


PageNumber = Annotated[int, Query(ge=1, le=limits.MAX_PAGES)]
PageSize = Annotated[int, Query(ge=1, le=limits.PAGE_SIZE)]


async def get_page(page: PageNumber = 1, size: PageSize = 50, reverse: bool = False) -> PageRequest:
    return PageRequest(page, size, reverse)


async def get_forward_page(page: PageNumber = 1, size: PageSize = 50) -> PageRequest:
    """Return the requested page of a list that has only one order."""
    return PageRequest(page, size)


ServerDep = Annotated[Server, Depends(get_server)]
Paging = Annotated[PageRequest, Depends(get_page)]
ForwardPaging = Annotated[PageRequest, Depends(get_forward_page)]
