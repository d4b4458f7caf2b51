"""The connection to the server in force: one client per process, which is opened again when the server has moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from msgspec.structs import replace

from hermes.clock import Clock
from hermes.embedded.connect import PATIENCE as FINDING
from hermes.embedded.connect import connect
from hermes.errors import HermesError
from hermes.honcho.carrying import file_under_speaker
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.credentials import FixedCredentials, SignInCredentials
from hermes.honcho.failures import Failure, Refusal, Unanswered, Unreached
from hermes.honcho.guests import edit_guests, without_move
from hermes.honcho.http_client import HttpClient, NotConnected, open_client
from hermes.honcho.members import Members
from hermes.honcho.renewal import Renewal, RenewalTerms
from hermes.honcho.server import NO_KEY, HonchoServer, Machine, find_server
from hermes.honcho.wire import DeliveryPatience, Wire, WireAnswer
from hermes.types import Json

KEYS, DELETES, NARROW, EDITS = "idempotency", "delete_messages", "narrow_answers", "edit_conclusion"
MOVES, EVIDENCE, VIEWS = "move_in_session", "evidence", "context_views"
"""What `/health` of our server names: it writes what carries a key once, however often it is sent; it deletes messages
one by one; a question that names sessions is answered from them alone, without cards; a conclusion can be corrected in
place, with what it said before; what a peer said in one session can become another's; one request finds all
evidence for a question; and one reads all that several views hold."""


class Link:
    """A connection to a server, which remembers what was set up there over it."""

    def __init__(self, wire: Wire, extensions: Collection[Json]) -> None:
        self.wire = wire
        self.takes_keys = KEYS in extensions
        self.deletes_messages = DELETES in extensions
        self.answers_narrowly = NARROW in extensions
        self.edits_conclusions = EDITS in extensions
        self.moves_in_session = MOVES in extensions
        self.finds_evidence = EVIDENCE in extensions
        self.reads_views = VIEWS in extensions
        self.members = Members(wire)


class Links:
    """`link` gives the one link, and another when the server that it led to was lost."""

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        configuration: Callable[[], HonchoConfiguration],
        patience: DeliveryPatience,
        terms: RenewalTerms,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._configuration = configuration
        self._patience = patience
        self._sign_in = SignInCredentials(Renewal(machine.places, machine.load, clock.now, terms), clock)
        self._finding = asyncio.Lock()
        self._meant: tuple[HonchoServer, DeliveryPatience] | None = None
        self._link: Link | None = None
        self._ended = False

    async def link(self, until: float) -> Link:
        """The server that the configuration means now. Raises Failure, or ProviderError for a broken configuration."""
        async with self._finding:
            config = self._configuration()
            server, patience = find_server(config), replace(self._patience, timeout=config.request_seconds)
            if server.sign_in is not None:
                self._sign_in.adopt(server.sign_in)
            meant = server.without_tokens, patience
            if self._link is not None and meant == self._meant and not self._link.wire.is_lost:
                return self._link
            await self._let_go()
            if not self._ended:
                self._link, self._meant = await self._reach(server, patience, until), meant
            if self._ended or self._link is None:  # it may have ended meanwhile
                await self._let_go()
                raise Unreached("it has ended")
            return self._link

    @property
    def has_moved(self) -> bool:
        """Whether our own server was lost: it may be found elsewhere at once."""
        return self._link is not None and self._link.wire.is_lost and self._link.wire.server.kind == "embedded"

    async def close(self, seconds: float) -> None:
        """Let the link go, and open no other: hooks that still run are not to leave one behind."""
        self._ended = True
        await self._sign_in.settle(seconds)
        await self._let_go()

    async def _let_go(self) -> None:
        link, self._link, self._meant = self._link, None, None
        if link is not None:
            await link.wire.retire()

    async def _reach(self, meant: HonchoServer, patience: DeliveryPatience, until: float) -> Link:
        if meant.lacks_key:
            raise Unreached(f"Honcho ({meant.shown}) needs a key")
        server = await self._find_own(until) if meant.kind == "embedded" else meant
        credentials = FixedCredentials(server.key or NO_KEY) if server.sign_in is None else self._sign_in
        wire = Wire(server, await self._open_client(server, patience), credentials, self._clock, patience)
        try:
            link = Link(wire, await _ask_extensions(wire, until))
            await self._carry(link, until)
            return link
        except (Failure, asyncio.CancelledError):
            await wire.retire()
            raise

    async def _open_client(self, server: HonchoServer, patience: DeliveryPatience) -> HttpClient:
        try:
            return await asyncio.to_thread(open_client, server.url, patience.request)
        except NotConnected as error:
            raise Unreached(f"the server cannot be reached from here: {error}") from error

    async def _carry(self, link: Link, until: float) -> None:
        """File what an earlier version mixed under who said it, before anything is read."""
        config = self._configuration()
        for move in config.guests.moves if link.moves_in_session else ():
            await file_under_speaker(link.wire, config.workspace, move, until)
            edit_guests(self._machine.places.guests, config.workspace, partial(without_move, done=move))

    async def _find_own(self, until: float) -> HonchoServer:
        """Our own server, which is started where it does not run."""
        seconds = min(FINDING, max(1.0, until - self._clock.now() - 1.0))
        try:
            found = await asyncio.to_thread(connect, self._machine.memory, patience=seconds)
        except HermesError as error:
            raise Unreached(error.line()) from error
        return HonchoServer("embedded", found.base_url, found.api_key)


async def _ask_extensions(wire: Wire, until: float) -> list[Json]:
    """What the server can do beyond the API: nothing where it has no such page, or one of its own."""
    try:
        told: WireAnswer = await wire.ask("GET", "/health", until=until)
    except (Refusal, Unanswered) as failure:
        if failure.may_have_arrived:
            raise
        return []
    found = told.value.get("extensions") if isinstance(told.value, dict) else None
    return found if isinstance(found, list) else []
