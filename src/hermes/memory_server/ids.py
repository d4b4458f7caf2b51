"""Ids that the server makes, 21 characters that are safe in a URL, and names that clients choose for workspaces, peers,
sessions and scopes."""

from __future__ import annotations

import re
import secrets
import string

from hermes.memory_server import limits
from hermes.memory_server.faults import Invalid

ALPHABET = string.ascii_letters + string.digits + "_-"
LENGTH = 21
NAME = re.compile(limits.NAME_PATTERN)
LETTERS = [ALPHABET[value & 63] for value in range(256)]


def new_id() -> str:
    """A new id; two are never the same."""
    return "".join([LETTERS[value] for value in secrets.token_bytes(LENGTH)])


SCOPE_PREFIX = "scope."
"""Begins the name of the peer that a scope is. No other peer can have a name with a dot."""


def check_name(name: str) -> None:
    """Refuse a name that nothing can have."""
    if len(name) > limits.NAME_LENGTH or NAME.fullmatch(name) is None:
        raise Invalid(f"'{name[:80]}' cannot be a name: use 1 to {limits.NAME_LENGTH} letters, digits, '_' and '-'")


def refuse_scopes(*names: str | None) -> None:
    """Refuse scopes where peers are meant: a scope observes, and nothing is held about it."""
    for name in names:
        if name is not None and name.startswith(SCOPE_PREFIX):
            raise Invalid(
                f"'{name[:80]}' is a scope, about which nothing is held: name a peer, or use the scope option"
            )
