"""Ids that the server generates (21 URL-safe characters), and validation of the names that clients choose for
workspaces, peers, sessions and scopes."""

from __future__ import annotations

import re
import secrets
import string

from hermes.memory_server import limits
from hermes.memory_server.faults import Invalid

ALPHABET = string.ascii_letters + string.digits + "_-"
ID_CHARS = 21
NAME = re.compile(limits.NAME_PATTERN)
LETTERS = [ALPHABET[value & 63] for value in range(256)]


def new_id() -> str:
    """Generate a new, unique id."""
    return "".join([LETTERS[value] for value in secrets.token_bytes(ID_CHARS)])


SCOPE_PREFIX = "scope."
"""Prefix of the name of the peer that represents a scope. Names of other peers cannot contain a dot."""


def check_name(name: str) -> None:
    """Raise Invalid if the name does not have the allowed form."""
    if len(name) > limits.NAME_CHARS or NAME.fullmatch(name) is None:
        raise Invalid(f"'{name[:80]}' cannot be a name: use 1 to {limits.NAME_CHARS} letters, digits, '_' and '-'")


def refuse_scopes(*names: str | None) -> None:
    """Raise Invalid for the name of a scope where a peer is required: a scope observes, and nobody observes it."""
    for name in names:
        if name is not None and name.startswith(SCOPE_PREFIX):
            raise Invalid(f"'{name[:80]}' is a scope, which nobody observes: name a peer, or use the scope option")
