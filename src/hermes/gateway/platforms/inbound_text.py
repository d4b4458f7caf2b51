"""Cleans text and names of people on a platform for the agent."""

from __future__ import annotations

import re

MAX_QUOTED_CHARS = 200
"""Longest quotation of a replied-to message."""
MAX_NAME_CHARS = 64
LATE_SECONDS = 120.0
UNSEEN = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal or change the direction of surrounding text."""
BRACKETS = str.maketrans("[]", "()")
"""Replaced in names, because in groups the agent reads `[name] text`."""


def well_formed(text: str) -> str:
    """Return the text without unpaired surrogates, which cannot be encoded."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def one_name(text: str) -> str:
    """Return a name as one short line that cannot be mistaken for markup."""
    seen = UNSEEN.sub("", well_formed(text)).translate(BRACKETS)
    return " ".join(seen.split())[:MAX_NAME_CHARS].rstrip()


def first_name_of(*names: str | None, default: str) -> str:
    """Return the first name that is not empty after cleaning."""
    return next((name for given in names if given and (name := one_name(given))), default)


def as_quote(text: str) -> str:
    """Return the text as a Markdown quote."""
    return "\n".join(f"> {line}" for line in text.splitlines())


def shorten(text: str) -> str:
    """Return the beginning of a replied-to message."""
    return text if len(text) <= MAX_QUOTED_CHARS else text[:MAX_QUOTED_CHARS].rstrip() + " …"


def mark_late(text: str, age_seconds: float) -> str:
    """Return the text with a note of its age, if it is late. Commands stay as they are."""
    if age_seconds < LATE_SECONDS or text.startswith("/"):
        return text
    minutes = int(age_seconds // 60)
    age = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2880 else f"{minutes // 1440} days"
    return f"(sent {age} ago)\n\n{text}"
