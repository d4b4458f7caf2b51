"""How long is waited for a Honcho server."""

from __future__ import annotations

from msgspec import Struct


class DeliveryPatience(Struct, frozen=True):
    """Seconds."""

    request: float = 30.0
    """For one request."""
    look_after: float = 30.0
    """After a request that got no good answer, so long it may still arrive: only then can a look tell."""
    attempt: float = 45.0
    """The host's deadline for one delivery: later than this after its beginning no request is begun."""
