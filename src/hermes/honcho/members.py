"""Creation of workspaces, sessions and peers on a server, once per link, also with concurrent callers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from hermes.honcho.failures import NOT_FOUND_STATUS, Refusal, Unready
from hermes.honcho.names import peer_path, session_path, workspace_path
from hermes.honcho.wire import Wire

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
