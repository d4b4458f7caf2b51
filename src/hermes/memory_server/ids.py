"""Ids that the server makes: 21 characters, safe in a URL, from the system's randomness."""

from __future__ import annotations

import secrets
import string

ALPHABET = string.ascii_letters + string.digits + "_-"
LENGTH = 21
LETTERS = [ALPHABET[value & 63] for value in range(256)]


def new_id() -> str:
    """A new id; two are never the same."""
    return "".join([LETTERS[value] for value in secrets.token_bytes(LENGTH)])
