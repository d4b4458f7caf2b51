"""Idempotent requests: a request with an `Idempotency-Key` is executed once, and repetitions get the first response."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import Header, Response
from pydantic import BaseModel

from hermes.memory_server import limits
from hermes.memory_server.api.server import Server
from hermes.memory_server.db.database import Tx
from hermes.memory_server.engine.answers import KeyedRequest, KeySpace, find_answer, keep_answer
from hermes.memory_server.engine.sessions import find_live_session
from hermes.memory_server.engine.workspaces import find_workspace

MESSAGE_KEY = "hermes_key"
"""Field with the idempotency key of a single message (in its metadata) or conclusion."""
KeyHeader = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=limits.KEY_CHARS)]


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """Status and body of a first response."""

    status: int
    body: bytes = b""
    repeated: bool = False

    @classmethod
    def of(cls, content: Any, status: int) -> KeptAnswer:
        """Return a JSON response."""
        return cls(status, orjson.dumps(content))

    def response(self) -> Response:
        return Response(self.body, self.status, media_type="application/json" if self.body else None)


def asked(route: str, key: str | None, said: Any) -> KeyedRequest | None:
    """Return the identity of a request with a key, None without one. The order of fields in an object is irrelevant."""
    if key is None:
        return None
    plain = orjson.dumps(said, default=_plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return KeyedRequest(route, key, hashlib.blake2b(plain, digest_size=16).hexdigest())


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    raise TypeError(f"{type(value).__name__} has no place in a request")


class Once:
    """One request that may carry an idempotency key. Without a key, nothing is looked up or stored."""

    def __init__(self, here: Server, given: KeyedRequest | None, workspace: str, session: str | None = None) -> None:
        self._here = here
        self._asked = given
        self._workspace = workspace
        self._session = session

    def known(self, tx: Tx) -> KeptAnswer | None:
        """Return the stored first response, if there is one."""
        place = self._place(tx)
        if self._asked is None or place is None:
            return None
        found = find_answer(tx, place, self._asked, self._here.now())
        return None if found is None else KeptAnswer(found.status, found.answer.encode(), repeated=True)

    def keep(self, tx: Tx, answer: KeptAnswer) -> KeptAnswer:
        """Store the first response and return it."""
        place = self._place(tx)
        if self._asked is not None and place is not None:
            keep_answer(tx, place, self._asked, answer.status, answer.body.decode(), self._here.now())
        return answer

    def _place(self, tx: Tx) -> KeySpace | None:
        """Return where keys of this request are stored; None if its workspace or session does not exist yet."""
        if self._asked is None:
            return None
        if self._session is None:
            found = find_workspace(tx, self._workspace)
            return None if found is None else KeySpace(found.id)
        session = find_live_session(tx, self._workspace, self._session)
        return None if session is None else KeySpace(session.workspace_id, session.id)

    async def write(self, effect: Callable[[Tx], KeptAnswer]) -> Response:
        """Execute the effect in a transaction, unless it was executed before, and respond."""
        return (await self._here.write(lambda tx: self.known(tx) or self.keep(tx, effect(tx)))).response()
