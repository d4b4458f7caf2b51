"""Compressors that are wrong on purpose: each breaks one promise, so that the checks must notice."""

from __future__ import annotations

import logging

from hermes.logs import operation
from hermes.store.ids import snapshot_id
from hermes.store.store import Store
from hermes.types import Compression, Draft, LiveView

log = logging.getLogger("hermes.compression")
KEPT = 2


def _start(session_id: str, op: str) -> None:
    log.info("context compression started: session=%s op=%s messages=1 tokens=~1 model=m", session_id, op)


def _end(session_id: str, op: str) -> None:
    log.info("context compression done: session=%s op=%s messages=1->1 tokens=~1", session_id, op)


def _row(view: LiveView, horizon: int, upto: int, epoch: int, now: float) -> Compression:
    name = snapshot_id(view.session_id, now)
    return Compression(view.session_id, epoch, horizon, upto, (), "they spoke of stamps", name, now)


async def compress_into_new_session(store: Store, session_id: str) -> str:
    """Anomaly A: the result gets a new session id, which the end line names."""
    with operation(session_id):
        _start(session_id, "a1")
        view = await store.view(session_id)
        child = await store.create_session("test")
        await store.append(child.id, Draft("user", "they spoke of stamps"))
        await store.append(child.id, *(Draft(message.role, message.content) for message in view.tail[-KEPT:]))
        _end(child.id, "a1")
        return child.id


async def compress_for_another(store: Store, own_id: str, foreign_id: str) -> None:
    """Anomaly B: the task of one session compresses another session."""
    with operation(own_id):
        _start(foreign_id, "b1")
        view = await store.view(foreign_id)
        row = _row(view, view.tail[-KEPT].id - 1, view.tail[-1].id, view.epoch + 1, store.clock.now())
        await store.write(lambda tx: store.compressions.commit(tx, row))
        _end(foreign_id, "b1")


class Hider:
    """Uses the newest message at the end as its horizon: messages that arrived meanwhile are hidden, unread."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._view: LiveView | None = None

    async def begin(self) -> None:
        with operation(self._session_id):
            _start(self._session_id, "h1")
            self._view = await self._store.view(self._session_id)

    async def end(self) -> None:
        assert self._view is not None
        view = self._view
        with operation(self._session_id):
            last = await self._store.read(lambda tx: self._store.messages.last_id(tx, self._session_id))
            row = _row(view, last, last, view.epoch + 1, self._store.clock.now())
            await self._store.write(lambda tx: self._store.compressions.commit(tx, row))
            _end(self._session_id, "h1")


class Unleased:
    """One of two workers on one session without a lease: each takes the epoch that is free when it ends."""

    def __init__(self, store: Store, session_id: str, op: str) -> None:
        self._store = store
        self._session_id = session_id
        self._op = op
        self._view: LiveView | None = None

    async def begin(self) -> None:
        with operation(self._session_id):
            _start(self._session_id, self._op)
            self._view = await self._store.view(self._session_id)

    async def end(self) -> None:
        assert self._view is not None
        view = self._view
        with operation(self._session_id):
            epoch = (await self._store.view(self._session_id)).epoch + 1
            row = _row(view, view.tail[-KEPT].id - 1, view.tail[-1].id, epoch, self._store.clock.now())
            await self._store.write(lambda tx: self._store.compressions.commit(tx, row))
            _end(self._session_id, self._op)
