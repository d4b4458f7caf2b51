"""Inline Markdown (bold, italic, code, links) as runs of styled text.

Written by hand because a reply is streamed: `settled` tells how much of a line is final, which parsers of whole
documents cannot do, and a piece costs microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

Run: TypeAlias = tuple[str, str]
"""A text and its style: terminal codes joined by semicolons, "" for plain."""

BOLD, DIM, ITALIC, UNDERLINE, STRUCK, CODE = "1", "2", "3", "4", "9", "36"
MAX_LINE_CHARS = 2000
"""Longer lines are shown as written."""

MARKED_SPAN = r"""(?x)
      \\(?P<escaped>[!-/:-@\[-`{-~])
    | (?:(?<!`)|(?<=\\`))(?P<ticks>`++)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)
    | !?\[(?P<label>[^\[\]]*)\]\(\s*<?(?P<target>(?:[^\s()<>]|\([^\s()<>]*\))*)>?(?:\s+"[^"]*")?\s*\)
    | <(?P<address>(?:https?|mailto):[^\s<>]+)>
    | \*\*\*(?=\S)(?P<both>[^*]+?)(?<=\S)\*\*\*
    | \*\*(?=\S)(?P<bold>.+?)(?<=\S)\*\*(?!\*)
    | (?<!\w)__(?=\S)(?P<bold_>.+?)(?<=\S)__(?!\w)
    | \*(?=[^\s*])(?P<italic>.+?)(?<=[^\s*])\*(?!\*)
    | (?<!\w)_(?=[^\s_])(?P<italic_>.+?)(?<=\S)_(?!\w)
    | ~~(?=\S)(?P<struck>.+?)(?<=\S)~~
    """
"""Matches each marked span. A run of backticks matches as a whole, which avoids quadratic backtracking. Kept as a
string: `re` compiles it with the first reply instead of at every start."""
SPAN_START = r"[`\\]|\*(?!\s)|(?<!\w)_(?!\s)|~(?=~|$)|<(?=[hm]|$)|\[(?![^\]]*\][^(])|!$"
"""Matches the possible start of a marked span at the end of an unfinished line."""
STYLES = {
    "both": f"{BOLD};{ITALIC}",
    "bold": BOLD,
    "bold_": BOLD,
    "italic": ITALIC,
    "italic_": ITALIC,
    "struck": STRUCK,
}


def parse(text: str, style: str = "") -> list[Run]:
    """Return a line as styled runs. Text that is not Markdown is unchanged."""
    if len(text) > MAX_LINE_CHARS:
        return [(text, style)]
    runs: list[Run] = []
    place = 0
    for found in re.finditer(MARKED_SPAN, text):
        runs += [(text[place : found.start()], style), *_runs_of(found, style)]
        place = found.end()
    return [run for run in (*runs, (text[place:], style)) if run[0]]


def settled(text: str) -> int:
    """Return how many leading characters of a growing line are final."""
    sure = 0
    for start, end in _between_marked(text):
        opening = re.compile(SPAN_START).search(text, start, end)
        stop = opening.start() if opening else end
        for place in range(stop, start, -1):
            if text[place - 1] == " " or not (text[place - 1].isascii() or text[place : place + 1].isascii()):
                sure = place
                break
        if opening:
            break
    return sure


def _between_marked(text: str) -> Iterator[tuple[int, int]]:
    place = 0
    for found in re.finditer(MARKED_SPAN, text):
        yield place, found.start()
        place = found.end()
    yield place, len(text)


def _runs_of(found: re.Match[str], style: str) -> list[Run]:
    parts = found.groupdict()
    if parts["escaped"]:
        return [(parts["escaped"], style)]
    if parts["code"]:
        code = parts["code"]
        padded = len(code) > 2 and code[0] == code[-1] == " " and code.strip()
        return [(code[1:-1] if padded else code, _with(style, CODE))]
    if parts["address"]:
        return [(parts["address"], _with(style, UNDERLINE))]
    if parts["label"] is not None:
        return _link(parts["label"], parts["target"] or "", style)
    name = next(name for name in STYLES if parts[name])
    return parse(parts[name], _with(style, STYLES[name]))


def _link(label: str, target: str, style: str) -> list[Run]:
    """Return a link as runs; its target is always visible."""
    if label in ("", target) or not target:
        return [(target or label, _with(style, UNDERLINE))]
    return [*parse(label, _with(style, UNDERLINE)), (f" ({target})", _with(style, DIM))]


def _with(style: str, code: str) -> str:
    return f"{style};{code}" if style else code
