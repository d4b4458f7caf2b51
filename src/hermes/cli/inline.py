"""Bold, italic, code and links within one line of Markdown, as runs of text that have a style.

Made by hand, since a reply comes a few letters at a time: `settled` says how much of a line cannot change any more,
which no parser of whole documents does, and a piece costs microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

Run: TypeAlias = tuple[str, str]
"""Text and its style: codes of a terminal between semicolons, "" for plain."""

BOLD, DIM, ITALIC, UNDERLINE, STRUCK, CODE = "1", "2", "3", "4", "9", "36"
LONGEST = 2000
"""Characters of a line that are looked through at once; more than that stays as it was written."""

MARKED = r"""(?x)
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
"""What is marked. A run of ticks counts as a whole, so that a row of them is not tried in every way there is. Patterns
are texts, which `re` compiles when the first reply comes: not at every start."""
OPENING = r"[`\\]|\*(?!\s)|(?<!\w)_(?!\s)|~(?=~|$)|<(?=[hm]|$)|\[(?![^\]]*\][^(])|!$"
"""What may begin one of them, as far as the line has come."""
STYLES = {
    "both": f"{BOLD};{ITALIC}",
    "bold": BOLD,
    "bold_": BOLD,
    "italic": ITALIC,
    "italic_": ITALIC,
    "struck": STRUCK,
}


def parse(text: str, style: str = "") -> list[Run]:
    """The runs of a line. What is no Markdown stays as it is, its signs too."""
    if len(text) > LONGEST:
        return [(text, style)]
    runs: list[Run] = []
    place = 0
    for found in re.finditer(MARKED, text):
        runs += [(text[place : found.start()], style), *_runs_of(found, style)]
        place = found.end()
    return [run for run in (*runs, (text[place:], style)) if run[0]]


def settled(text: str) -> int:
    """How many characters of a line that still grows have their final form; the rest may become part of something."""
    sure = 0
    for start, end in _between_marked(text):
        opening = re.compile(OPENING).search(text, start, end)
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
    for found in re.finditer(MARKED, text):
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
    """Where a link leads is always to be seen."""
    if label in ("", target) or not target:
        return [(target or label, _with(style, UNDERLINE))]
    return [*parse(label, _with(style, UNDERLINE)), (f" ({target})", _with(style, DIM))]


def _with(style: str, code: str) -> str:
    return f"{style};{code}" if style else code
