"""The reasons for which the API refuses a request. `api.faults` maps each class to an HTTP status."""

from __future__ import annotations


class Fault(Exception):
    """A refused request, with the reason that the caller reads."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Missing(Fault):
    """The workspace, peer, session or other object does not exist."""

    def __init__(self, kind: str, name: str, workspace: str | None = None) -> None:
        where = "" if workspace is None else f" in workspace {workspace}"
        super().__init__(f"{kind} {name} not found{where}")


class Conflict(Fault):
    """The request conflicts with the current state of the object."""


class Invalid(Fault):
    """A value in the request is invalid."""


class Refused(Fault):
    """A rule of the workspace or session forbids the request."""


class Unauthorized(Fault):
    """The key is missing, invalid, or does not permit this request."""


class InvalidToken(Unauthorized):
    """The access token is unknown, expired or revoked; the client should refresh it."""


class Stranger(Fault):
    """The server uses no keys, and the request does not come from a program on this machine."""


class SwitchedOff(Fault):
    """The feature is disabled on this server."""


class TooLarge(Fault):
    """The uploaded file exceeds the size limit."""


class UnknownFileType(Fault):
    """The type of the uploaded file is not supported."""


class TooMany(Fault):
    """The server has reached its limit for such operations; retry later."""
