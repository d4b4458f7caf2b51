"""What the HTTP API is told when it is opened. Kept apart, so that reading the settings needs no web server."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hermes.agent.loop import Responder
from hermes.scope import Scope


class ApiTerms(Struct, frozen=True):
    """Where the API listens, who may use it, and what answers a request without a session."""

    host: str
    port: int
    key: str
    model_name: str
    drain: float
    patience: float
    connections: int
    user_guests: bool
    """Whether each `user` is a guest of its own; else all that is asked is asked by the owner."""
    speaker: Callable[[Scope], Responder]
    prompt: Callable[[Scope], str]
