"""Breaking text into rows that fit a terminal, also while the text grows.

Plain text as rows: broken between words, except code, which stays whole so that it can be copied.

Inline Markdown (bold, italic, code, links) as runs of styled text.

Written by hand because a reply is streamed: `settled` tells how much of a line is final, which parsers of whole
documents cannot do, and a piece costs microseconds.

Runs of styled text as rows of a terminal.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

JOINER = "\u200d"
MAX_WORD_CHARS = 2000
"""Longer words, such as addresses, are broken."""


def width_of(character: str) -> int:
    """Return the columns of a character: 0 if it combines with the one before, 2 if it is wide, else 1."""
    if character.isascii():
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def columns_of(text: str) -> int:
    """Return the columns of a text."""
    return len(text) if text.isascii() else sum(map(width_of, text))


def fold(text: str, columns: int) -> tuple[list[str], str]:
    """Return the full rows, broken between words or wide characters, and the rest, which may still grow.

    A word wider than a row stays whole up to a limit: the terminal wraps it without adding a line end.
    """
    *full, (start, end) = spans(text, columns)
    return [text[first:last] for first, last in full], text[start:end]


def spans(text: str, columns: int) -> list[tuple[int, int]]:
    """Return the start and end of each row, at least one. Spaces at a break belong to no row."""
    found: list[tuple[int, int]] = []
    start = 0
    while place := _break(text, start, columns):
        found.append((start, start + len(text[start:place].rstrip(" "))))
        start = place
        while start < len(text) and text[start] == " ":
            start += 1
    return [*found, (start, len(text))]


def tight_spans(text: str, columns: int) -> list[tuple[int, int]]:
    """Like `spans`, but breaks wide words too: no row is wider than `columns` (at least 2)."""
    found: list[tuple[int, int]] = []
    for start, end in spans(text, columns):
        used, begin = 0, start
        for place in range(start, end):
            width = width_of(text[place])
            if used + width > columns:
                found.append((begin, place))
                used, begin = 0, place
            used += width
        found.append((begin, end))
    return found


def _break(text: str, start: int, columns: int) -> int:
    """Return where the row that begins at `start` ends: the last break that fits, else the first break, else 0."""
    used = found = full = 0
    has_begun = False
    for place in range(start, len(text)):
        character = text[place]
        if has_begun and _may_break(text, place):
            if used > columns and found:
                return found
            found = place
            if used > columns:
                return found
        if place - start >= MAX_WORD_CHARS and full > start:
            return found or full
        has_begun = has_begun or character != " "
        full = full if used > columns else place
        used += 0 if character == " " and used >= columns else width_of(character)
    return found if used > columns else 0


def _may_break(text: str, place: int) -> bool:
    before, after = text[place - 1], text[place]
    if after == " ":
        return False
    if before.isascii() and after.isascii():
        return before == " "
    if width_of(after) == 0 or before == JOINER:
        return False
    return before == " " or width_of(before) == 2 or width_of(after) == 2


def hang(line: str, columns: int) -> str:
    """Wrap a two-column line, such as a command and its description, within its second column."""
    found = re.match(r"(?:\S.{0,28}?)? {2,}(?=\S)", line)
    if found is None or columns_of(line) <= columns or 2 * found.end() > columns:
        return line
    full, rest = fold(line[found.end() :], columns - found.end())
    return found[0] + f"\n{' ' * found.end()}".join([*full, rest])


def head(text: str, columns: int) -> str:
    """Return the start of `text` on one row, with `…` if it was cut."""
    flat = " ".join(text.split())
    if columns_of(flat) <= columns:
        return flat
    used, place = 1, 0
    while used + width_of(flat[place]) <= columns:
        used += width_of(flat[place])
        place += 1
    return f"{flat[:place]}…"


FENCE = "```"


class PlainText:
    """Renders a streamed text as rows."""

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._line = ""
        self._fenced = False

    @property
    def is_growing(self) -> bool:
        """True while a row is unfinished."""
        return bool(self._line)

    def feed(self, text: str) -> list[str]:
        """Add text; return the rows that became final."""
        *lines, rest = (self._line + text).split("\n")
        finished: list[str] = []
        for line in lines:
            self._line = line
            finished += [*self._full(), self._line]
            if self._line.lstrip().startswith(FENCE):
                self._fenced = not self._fenced
        self._line = rest
        return finished + self._full()

    def end(self) -> list[str]:
        """End the text and return the unfinished row. The next piece starts a new text."""
        line, self._line, self._fenced = self._line, "", False
        return [line] if line else []

    def growing(self) -> list[str]:
        """Return the unfinished row."""
        return [self._line.rstrip()] if self._line.strip() else []

    def _full(self) -> list[str]:
        if self._fenced or self._line.lstrip().startswith(FENCE):
            return []
        rows, self._line = fold(self._line, self._columns())
        return rows


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


RESET = "\x1b[0m"


def text_of(runs: Sequence[Run]) -> str:
    """Return the text without styles."""
    return "".join(text for text, _ in runs)


def paint(runs: Sequence[Run]) -> str:
    """Return a row with terminal codes. Each run resets its style, so that a row can be printed by itself."""
    parts = ((style, text_of(list(same))) for style, same in groupby(runs, key=itemgetter(1)))
    return "".join(f"\x1b[{style}m{text}{RESET}" if style else text for style, text in parts)


def fold_runs(runs: Sequence[Run], columns: int) -> list[list[Run]]:
    """Break runs into rows of at most `columns`. Returns at least one row; the last may still grow."""
    return [cut(runs, start, end) for start, end in spans(text_of(runs), columns)]


def cut(runs: Sequence[Run], start: int, end: int) -> list[Run]:
    """Return the runs between two positions of their text."""
    taken: list[Run] = []
    place = 0
    for text, style in runs:
        part = text[max(0, start - place) : max(0, end - place)]
        if part:
            taken.append((part, style))
        place += len(text)
    return taken


def trimmed(runs: Sequence[Run]) -> list[Run]:
    """Return the runs without trailing spaces."""
    text = text_of(runs)
    return cut(runs, 0, len(text.rstrip(" ")))
