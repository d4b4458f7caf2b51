"""How long is waited for a Honcho server."""

from __future__ import annotations

from msgspec import Struct


class Patience(Struct, frozen=True):
    """Seconds."""

    request: float = 30.0
    """For one request."""
    look_after: float = 30.0
    """After a request was answered wrong or given up, until a look on the server says whether it arrived."""
    attempt: float = 45.0
    """From the beginning of an attempt until its last request may have begun: the host's deadline."""
