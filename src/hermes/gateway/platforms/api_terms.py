"""What the HTTP API is told when it is opened. Kept apart, so that reading the settings needs no web server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from hermes.agent.loop import Responder
from hermes.scope import Scope
from hermes.store.store import Store

ApiMemory: TypeAlias = Literal["off", "recall", "full"]
"""What a request without a session has of memory: nothing; what is recalled for it; or it is a session of its own."""
MODES: tuple[ApiMemory, ...] = get_args(ApiMemory)


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
    memory: ApiMemory
    """What a request without a session has that does not choose by its model's name."""
    store: Store
    speaker: Callable[[Scope, bool], Responder]
    """What answers where nothing is kept, with or without tools and answers of its own from memory."""
    prompt: Callable[[Scope], str]
    """The system prompt without memory."""
