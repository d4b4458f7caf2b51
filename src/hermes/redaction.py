"""Removal of secrets from text that people or logs see."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"
TOKEN = re.compile(
    r"\bhch-[ar]t-[A-Za-z0-9._~+/=-]+"  # of a sign-in: access and refresh tokens
    r"|\b(?:sk|pk|hch|xoxb|xapp|ghp)[-_][A-Za-z0-9_-]{8,}|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"
)
USER_INFO = re.compile(r"(?<=://)([^\s/?#:@]*)([^\s/?#]*)@")
"""The part before the host of a URL: a user with an optional password. Without one, the user may itself be a key."""


def hide_tokens(text: str) -> str:
    """Return `text` without anything that looks like a key or token, and without passwords in URLs."""
    return hide_passwords(TOKEN.sub(HIDDEN, text))


def hide_passwords(text: str) -> str:
    """Return `text` without passwords in URLs. The user stays if it has a password; otherwise it may be a key."""
    if "@" not in text:
        return text
    return USER_INFO.sub(lambda found: f"{found[1]}:{HIDDEN}@" if found[2] else f"{HIDDEN}@", text)


def hide_url(url: str) -> str:
    """Return a URL that is safe to show, even if its `https://` is missing."""
    if "://" not in url and "@" in url:
        return f"{HIDDEN}@{url.rpartition('@')[2]}"
    return hide_passwords(url)
