"""Every regular expression of the package takes linear time on any text."""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import hermes

CHARS = 25_000
"""Maximum length of a message of the memory server."""
CPU_SECONDS = 0.25
"""Time limit: far more than a linear pattern needs for such a text, less than a quadratic one."""
ODD = [" ", "\n", "\t", ".", "-", "'", '"', "(", "[", "<", "*", "_", "`", "#", ">", "/", "\\", "@", "+", "0", "a", "é",
       "中", "。", "\u00a0", "\u200b", "😀", "\u0301", "\x00"]  # fmt: skip
STARTED_BY_IMPORT = ("__main__", "migrations.env")


class TooSlowError(Exception):
    pass


def text_patterns() -> dict[re.Pattern[Any], str]:
    found: dict[re.Pattern[Any], str] = {}
    for module in pkgutil.walk_packages(hermes.__path__, "hermes."):
        if not module.name.endswith(STARTED_BY_IMPORT):
            for name, value in vars(importlib.import_module(module.name)).items():
                for pattern in patterns_in(value):
                    found.setdefault(pattern, f"{module.name}.{name}")
    return found


def patterns_in(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list, frozenset, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from patterns_in(part)


def is_slow(pattern: re.Pattern[Any], text: str) -> bool:
    """Return True if the pattern takes more CPU time than allowed. Wall time does not count."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        given = text.encode() if isinstance(pattern.pattern, bytes) else text
        pattern.fullmatch(given)
        pattern.sub(lambda found: found[0], given)
    except TooSlowError:
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return False


def test_every_text_pattern_is_linear_on_every_odd_character() -> None:
    slow = [
        f"{name} on {odd!r}"
        for pattern, name in text_patterns().items()
        for odd in ODD
        if is_slow(pattern, "x" + odd * CHARS + "y")
    ]
    assert slow == []
