"""Failures of requests to a Honcho server, and the outcome of the entry for each.

Failure
├── Unreached     nothing was sent
│   ├── NoTime    too little time was left
│   └── SignedOut the sign-in has ended and could not be renewed
├── Refusal       an error status; nothing was written, unless the status leaves that open
├── Unready       the entry's session or peer could not be created; the entry itself was not sent
└── Unanswered    the request may have arrived: broken connection, timeout, or an invalid response
"""

from __future__ import annotations

from hermes.memory.provider import DeadLetter, Later
from hermes.redaction import hide_tokens

MAX_DETAIL_CHARS = 300
"""Length of a server's error text that is kept."""
UNAVAILABLE_STATUSES = frozenset({408, 429, 502, 503, 504})
UNAUTHORIZED_STATUS = 401
ACCESS_STATUSES = frozenset({UNAUTHORIZED_STATUS, 402, 403, 407})
"""Statuses that blame the key or the account instead of the request; a person can correct that."""
CONFLICT_STATUS = 409
"""Our server's status while it still handles an earlier request with the same idempotency key."""
NOT_FOUND_STATUS = 404


class Failure(Exception):
    """A failed request, with a readable reason."""

    may_have_arrived = False

    def __init__(self, reason: str) -> None:
        super().__init__(hide_tokens(reason))

    def outcome(self) -> Later | DeadLetter:
        """Return the outcome of the entry that the request was for."""
        return Later(str(self), everyone=True)


class Unreached(Failure):
    """The server could not be reached; nothing was sent."""


class NoTime(Unreached):
    """Too little time was left to send the request."""

    def outcome(self) -> Later | DeadLetter:
        return Later(str(self), after=0.1)


class Unanswered(Failure):
    """The request was sent, and its effect is unknown."""

    may_have_arrived = True


class SignedOut(Unreached):
    """The sign-in has ended and could not be renewed, or the server refuses its tokens; a person can correct that."""


class Refusal(Failure):
    """A response with an error status."""

    def __init__(self, status: int, detail: str, after: float | None = None) -> None:
        self.status = status
        self.after = after
        super().__init__(f"the server answered {status}: {detail[:MAX_DETAIL_CHARS]}")

    @property
    def may_have_arrived(self) -> bool:  # type: ignore[override]
        return self.status >= 500 or self.status == 408

    def outcome(self) -> Later | DeadLetter:
        """Return Later for server trouble and refused keys, which can pass; DeadLetter for requests that would be
        refused again."""
        if self.status in UNAVAILABLE_STATUSES:
            return Later(str(self), self.after, everyone=True)
        if self.status in ACCESS_STATUSES:
            return Later(f"{self}. Check `apiKey`", everyone=True)
        if self.status >= 500 or self.status == CONFLICT_STATUS or self.status < 400:
            return Later(str(self))
        return DeadLetter(str(self))


class Unready(Failure):
    """A workspace, session or peer could not be created; entries for it wait."""

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal
        super().__init__(f"its session or peer could not be created: {refusal}")

    def outcome(self) -> Later | DeadLetter:
        found = self._refusal.outcome()
        return found if isinstance(found, Later) else Later(str(self))
