"""Taking secrets out of text that a person or a log may see."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"
TOKEN = re.compile(
    r"\bhch-[ar]t-[A-Za-z0-9._~+/=-]+"  # of a sign-in: access and refresh tokens
    r"|\b(?:sk|pk|hch|xoxb|xapp|ghp)[-_][A-Za-z0-9_-]{8,}|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"
)
USER_INFO = re.compile(r"(?<=://)([^\s/?#:@]*)([^\s/?#]*)@")
"""What stands before the host of a URL: a user, and a password unless the user is a key by itself."""


def hide_tokens(text: str) -> str:
    """`text` without what looks like a key or a token, and without the passwords in its URLs."""
    return hide_passwords(TOKEN.sub(HIDDEN, text))


def hide_passwords(text: str) -> str:
    """`text` without the passwords in its URLs; the user stays, unless nothing else proves who it is."""
    if "@" not in text:
        return text
    return USER_INFO.sub(lambda found: f"{found[1]}:{HIDDEN}@" if found[2] else f"{HIDDEN}@", text)


def hide_url(url: str) -> str:
    """A URL as it may be shown; also one that someone wrote without its `https://`."""
    if "://" not in url and "@" in url:
        return f"{HIDDEN}@{url.rpartition('@')[2]}"
    return hide_passwords(url)
