"""The connection to the server in force: one client per process, reopened when the server moves.

Creation of workspaces, sessions and peers on a server, once per link, also with concurrent callers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from hermes.clock import Clock
from hermes.embedded.connect import CONNECT_TIMEOUT_SECONDS as FINDING
from hermes.embedded.connect import connect
from hermes.errors import HermesError
from hermes.honcho.carrying import move_misfiled
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.failures import NOT_FOUND_STATUS, Failure, Refusal, Unanswered, Unreached, Unready
from hermes.honcho.guests import edit_guests, without_move
from hermes.honcho.http_client import HttpClient, NotConnected, open_client
from hermes.honcho.names import peer_path, session_path, workspace_path
from hermes.honcho.renewal import FixedCredentials, Renewal, RenewalTimings, SignInCredentials
from hermes.honcho.server import NO_KEY, HonchoServer, Machine, find_server
from hermes.honcho.wire import DeliveryTimeouts, Wire, WireResponse
from hermes.types import Json

log = logging.getLogger(__name__)
CREATED_STATUS, TOO_MANY_OBSERVERS_STATUS = 201, 400


class Observing(Struct, frozen=True):
    """Whether a member is reasoned about, and whether it keeps its own view of the others."""

    observe_me: bool
    observe_others: bool


class Members:
    """Workspaces, sessions and peers created over one link. Raises Failure; Unready after a refusal, which the next
    caller retries."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._setting_up: dict[tuple[str, ...], asyncio.Lock] = {}
        self._workspaces: set[str] = set()
        self._peers: set[tuple[str, str]] = set()
        self._sessions: dict[tuple[str, str], dict[str, Observing]] = {}

    async def join(
        self,
        workspace: str,
        session: str,
        members: Mapping[str, Observing],
        until: float,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Ensure that a session exists with these members and observation settings. `metadata` is for a new session."""
        async with self._lock(workspace, session):
            known = self._sessions.get((workspace, session))
            new = members if known is None else {name: how for name, how in members.items() if known.get(name) != how}
            if known is not None and not new:
                return
            with self._refused():
                await self._ensure_workspace(workspace, until)
                await self._join(workspace, session, new, until, metadata or {}, is_known=known is not None)
            self._sessions[(workspace, session)] = {**(known or {}), **members}

    async def ensure_peers(self, workspace: str, names: list[str], until: float) -> None:
        with self._refused():
            await self._ensure_workspace(workspace, until)
            for name in names:
                async with self._lock(workspace, "peer", name):
                    if (workspace, name) not in self._peers:
                        await self._wire.ask("POST", f"{workspace_path(workspace)}/peers", {"id": name}, until=until)
                        self._peers.add((workspace, name))

    def forget(self) -> None:
        """Forget what was created, so that it is created again."""
        self._workspaces.clear()
        self._peers.clear()
        self._sessions.clear()

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except Refusal as refusal:
            if refusal.status == NOT_FOUND_STATUS:
                self.forget()  # what it belongs to is not there any more
            raise Unready(refusal) from refusal

    async def _ensure_workspace(self, workspace: str, until: float) -> None:
        async with self._lock(workspace):
            if workspace not in self._workspaces:
                await self._wire.ask("POST", "/v3/workspaces", {"id": workspace}, until=until)
                self._workspaces.add(workspace)

    async def _join(
        self,
        workspace: str,
        session: str,
        new: Mapping[str, Observing],
        until: float,
        metadata: Mapping[str, str],
        *,
        is_known: bool,
    ) -> None:
        try:
            await self._add(workspace, session, new, until, metadata, is_known=is_known)
        except Refusal as refusal:
            if refusal.status != TOO_MANY_OBSERVERS_STATUS or not any(how.observe_others for how in new.values()):
                raise
            log.info("%s/%s has as many observers as it can have; the next ones observe nobody", workspace, session)
            fewer = {name: Observing(how.observe_me, observe_others=False) for name, how in new.items()}
            await self._add(workspace, session, fewer, until, metadata, is_known=is_known)

    async def _add(
        self,
        workspace: str,
        session: str,
        new: Mapping[str, Observing],
        until: float,
        metadata: Mapping[str, str],
        *,
        is_known: bool,
    ) -> None:
        """Add members, then set each one's observation: adding a peer that is a member already keeps its old
        settings."""
        root, wire = workspace_path(workspace), self._wire
        if is_known:
            await wire.ask("POST", f"{root}/{session_path(session, 'peers')}", new, until=until)
        else:
            body = {"id": session, "peers": new, **({"metadata": metadata} if metadata else {})}
            made = await wire.ask("POST", f"{root}/sessions", body, until=until)
            if made.status == CREATED_STATUS:
                return
        for name, how in new.items():
            await wire.ask("PUT", f"{root}/{session_path(session, peer_path(name, 'config'))}", how, until=until)

    def _lock(self, *named: str) -> asyncio.Lock:
        return self._setting_up.setdefault(named, asyncio.Lock())


KEYS, DELETES, NARROW, EDITS = "idempotency", "delete_messages", "narrow_answers", "edit_conclusion"
MOVES, EVIDENCE, VIEWS = "move_in_session", "evidence", "context_views"
"""Extensions in the `/health` response of our server, in order: idempotent writes by key; deletion of single
messages; answers limited to named sessions, without cards; correction of a conclusion in place, with history; moving
a peer's messages in one session to another peer; one request for all evidence; one request for several views."""


class Link:
    """A connection to a server, and the workspaces, sessions and peers created over it."""

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
    """Provides the current link, and a new one after the server was lost."""

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        configuration: Callable[[], HonchoConfiguration],
        timeouts: DeliveryTimeouts,
        timings: RenewalTimings,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._configuration = configuration
        self._timeouts = timeouts
        self._sign_in = SignInCredentials(Renewal(machine.places, machine.load, clock.now, timings), clock)
        self._finding = asyncio.Lock()
        self._meant: tuple[HonchoServer, DeliveryTimeouts] | None = None
        self._link: Link | None = None
        self._ended = False

    async def link(self, until: float) -> Link:
        """Return a link to the server in force. Raises Failure, or ProviderError for an invalid configuration."""
        async with self._finding:
            config = self._configuration()
            server, timeouts = find_server(config), replace(self._timeouts, timeout=config.request_seconds)
            if server.sign_in is not None:
                self._sign_in.adopt(server.sign_in)
            meant = server.without_tokens, timeouts
            if self._link is not None and meant == self._meant and not self._link.wire.is_lost:
                return self._link
            await self._close_link()
            if not self._ended:
                self._link, self._meant = await self._reach(server, timeouts, until), meant
            if self._ended or self._link is None:  # it may have ended meanwhile
                await self._close_link()
                raise Unreached("the provider has been shut down")
            return self._link

    @property
    def has_moved(self) -> bool:
        """Whether our own server was lost; a new link may find it at another address."""
        return self._link is not None and self._link.wire.is_lost and self._link.wire.server.kind == "embedded"

    async def close(self, seconds: float) -> None:
        """Close the link for good: hooks that still run cannot open another one."""
        self._ended = True
        await self._sign_in.settle(seconds)
        await self._close_link()

    async def _close_link(self) -> None:
        link, self._link, self._meant = self._link, None, None
        if link is not None:
            await link.wire.retire()

    async def _reach(self, meant: HonchoServer, timeouts: DeliveryTimeouts, until: float) -> Link:
        if meant.lacks_key:
            raise Unreached(f"Honcho ({meant.shown}) needs a key")
        server = await self._find_own(until) if meant.kind == "embedded" else meant
        credentials = FixedCredentials(server.key or NO_KEY) if server.sign_in is None else self._sign_in
        wire = Wire(server, await self._open_client(server, timeouts), credentials, self._clock, timeouts)
        try:
            link = Link(wire, await _ask_extensions(wire, until))
            await self._carry(link, until)
            return link
        except (Failure, asyncio.CancelledError):
            await wire.retire()
            raise

    async def _open_client(self, server: HonchoServer, timeouts: DeliveryTimeouts) -> HttpClient:
        try:
            return await asyncio.to_thread(open_client, server.url, timeouts.request)
        except NotConnected as error:
            raise Unreached(f"the server cannot be reached from here: {error}") from error

    async def _carry(self, link: Link, until: float) -> None:
        """Move messages that an earlier version misfiled to their speakers' peers, before anything is read."""
        config = self._configuration()
        for move in config.guests.moves if link.moves_in_session else ():
            await move_misfiled(link.wire, config.workspace, move, until)
            edit_guests(self._machine.places.guests, config.workspace, partial(without_move, done=move))

    async def _find_own(self, until: float) -> HonchoServer:
        """Return our own server, started if it does not run."""
        seconds = min(FINDING, max(1.0, until - self._clock.now() - 1.0))
        try:
            found = await asyncio.to_thread(connect, self._machine.memory, timeout=seconds)
        except HermesError as error:
            raise Unreached(error.line()) from error
        return HonchoServer("embedded", found.base_url, found.api_key)


async def _ask_extensions(wire: Wire, until: float) -> list[Json]:
    """Return the server's extensions; empty if `/health` is missing or foreign."""
    try:
        response: WireResponse = await wire.ask("GET", "/health", until=until)
    except (Refusal, Unanswered) as failure:
        if failure.may_have_arrived:
            raise
        return []
    found = response.value.get("extensions") if isinstance(response.value, dict) else None
    return found if isinstance(found, list) else []
