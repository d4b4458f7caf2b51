"""Which key was probably meant: only one that is so close that the other is hardly on purpose."""

from __future__ import annotations

import re
from collections.abc import Iterable


def nearest(key: str, known: Iterable[str]) -> str | None:
    """The key that is one letter away, or has the same words in another order; None when there is none or several."""
    close = [other for other in known if _is_one_letter_away(key, other) or _words(key) == _words(other)]
    return close[0] if len(close) == 1 else None


def _words(key: str) -> list[str]:
    return sorted(re.split(r"[._-]", key.lower()))


def _is_one_letter_away(one: str, other: str) -> bool:
    """One letter more, less or different, or two beside each other that changed places."""
    shorter, longer = sorted((one.lower(), other.lower()), key=len)
    same = next((place for place, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(shorter))
    if len(longer) > len(shorter):
        return shorter[same:] == longer[same + 1 :]
    swapped = shorter[same + 1 : same + 2] + shorter[same : same + 1] + shorter[same + 2 :]
    return shorter[same + 1 :] == longer[same + 1 :] or swapped == longer[same:]
