"""Options of the HTTP API, apart from its code: reading settings loads no web server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from hermes.agent.loop import Responder
from hermes.scope import Scope
from hermes.store.store import Store

ApiMemory: TypeAlias = Literal["off", "recall", "full"]
"""Memory of a request without a session: none; recalled for the request; or a session that stores the conversation."""
MODES: tuple[ApiMemory, ...] = get_args(ApiMemory)


class ApiOptions(Struct, frozen=True):
    """Options of the HTTP API: address, access, limits, and the model for requests without a session."""

    host: str
    port: int
    key: str
    model_name: str
    drain: float
    timeout_seconds: float
    connections: int
    user_guests: bool
    """True if each `user` is a separate guest; otherwise every request is the owner's."""
    memory: ApiMemory
    """Memory of a request without a session whose model name does not choose one."""
    store: Store
    speaker: Callable[[Scope, bool], Responder]
    """Return the responder for requests that are not stored, with or without tools and answers from memory."""
    prompt: Callable[[Scope], str]
    """Return the system prompt without memory."""
