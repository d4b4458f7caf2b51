"""Everything a request can be refused for. A fault carries its reason; `api.faults` maps each kind to HTTP."""

from __future__ import annotations


class Fault(Exception):
    """A request that is refused, with the reason that the caller reads."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Missing(Fault):
    """A workspace, peer, session … by that name does not exist."""

    def __init__(self, kind: str, name: str, workspace: str | None = None) -> None:
        where = "" if workspace is None else f" in workspace {workspace}"
        super().__init__(f"{kind} {name} not found{where}")


class Conflict(Fault):
    """The state of things does not allow it."""


class Invalid(Fault):
    """The request says something that cannot be."""


class Refused(Fault):
    """A rule of the workspace or session forbids it."""


class Unauthorized(Fault):
    """No key, a bad key, or a key that may not do this."""


class InvalidToken(Unauthorized):
    """An access token that is unknown, expired or revoked: its client should refresh it."""


class Stranger(Fault):
    """Nobody has a key here, and this does not come from a program of this machine."""


class SwitchedOff(Fault):
    """The feature is not in use on this server."""


class TooLarge(Fault):
    """A file above the limit."""


class UnknownFileType(Fault):
    """A file that we cannot read."""


class TooMany(Fault):
    """As much of this kind is under way as can be; later it will do."""
