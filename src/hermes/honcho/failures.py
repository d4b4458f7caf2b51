"""What can go wrong on the way to a Honcho server, and what that means for an entry.

Failure
├── Unreached     nothing was sent
│   ├── NoTime    because there was no time left for it
│   └── SignedOut because the sign-in has ended and could not be renewed
├── Refusal       the server said no; nothing was written, unless its status leaves that open
├── Unready       the session or peer that the entry needs could not be set up; the entry itself was not judged
└── Unanswered    it may have arrived: cut off, too late, or not the answer of a Honcho server
"""

from __future__ import annotations

from hermes.memory.provider import Later, Parked
from hermes.redaction import hide_tokens

LONGEST_DETAIL = 300
"""Characters of a server's own words that are kept."""
SERVER_IS_AWAY = frozenset({408, 429, 502, 503, 504})
KEY_REFUSED = 401
ACCESS_REFUSED = frozenset({KEY_REFUSED, 402, 403, 407})
"""The key or the account is refused, not what was sent: that can be put right."""
BUSY = 409
"""Our server's answer while it is still busy with the same key."""
NOT_FOUND = 404


class Failure(Exception):
    """A request that did not do what it should, in words."""

    may_have_arrived = False

    def __init__(self, reason: str) -> None:
        super().__init__(hide_tokens(reason))

    def outcome(self) -> Later | Parked:
        """What becomes of the entry that the request was for."""
        return Later(str(self), everyone=True)


class Unreached(Failure):
    """Nobody was there."""


class NoTime(Unreached):
    """The time was over before it was begun."""

    def outcome(self) -> Later | Parked:
        return Later(str(self), after=0.1)


class Unanswered(Failure):
    """The request was on its way, and nobody knows how far it came."""

    may_have_arrived = True


class SignedOut(Unreached):
    """The sign-in has ended and could not be renewed, or the server takes none of its tokens: that can be put right."""


class Refusal(Failure):
    """An answer with a status that is no success."""

    def __init__(self, status: int, detail: str, after: float | None = None) -> None:
        self.status = status
        self.after = after
        super().__init__(f"the server answered {status}: {detail[:LONGEST_DETAIL]}")

    @property
    def may_have_arrived(self) -> bool:  # type: ignore[override]
        return self.status >= 500 or self.status == 408

    def outcome(self) -> Later | Parked:
        """The server's troubles pass, and a key can be renewed or put right; what it refuses it will refuse again."""
        if self.status in SERVER_IS_AWAY:
            return Later(str(self), self.after, everyone=True)
        if self.status in ACCESS_REFUSED:
            return Later(f"{self}. Check `apiKey`", everyone=True)
        if self.status >= 500 or self.status == BUSY or self.status < 400:
            return Later(str(self))
        return Parked(str(self))


class Unready(Failure):
    """A workspace, session or peer that could not be set up: all that is to go there waits for it."""

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal
        super().__init__(f"it could not be set up there: {refusal}")

    def outcome(self) -> Later | Parked:
        found = self._refusal.outcome()
        return found if isinstance(found, Later) else Later(str(self))
