"""The key for programs that read the page's JSON. Only its hash is stored, and no other key of the home is accepted."""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256

from hermes.files import read_file, replace_file, unwritable
from hermes.home import Home

FILE = "web-key"
BEGINNING = "hwk_"
MAX_FILE_BYTES = 200


def make_web_key(home: Home) -> str:
    """Create a key, which replaces the earlier one. Only its hash is stored, in a private file."""
    key = BEGINNING + secrets.token_urlsafe(32)
    replace_file(home.path / FILE, f"{_hash(key)}\n")
    return key


def remove_web_key(home: Home) -> bool:
    """Remove the key; return False if none existed."""
    path = home.path / FILE
    was_there = path.exists()
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    return was_there


def is_web_key(home: Home, given: str) -> bool:
    """Return True for the current key. The file is read each time, so a new key works at once."""
    try:
        kept = read_file(home.path / FILE, MAX_FILE_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return False
    return bool(kept) and hmac.compare_digest(_hash(given), kept)


def _hash(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
