"""Syntax highlighting, row by row while code is streamed, with the lexers of pygments.

A lexer cannot resume, so each row is lexed together with some rows before it. The number of rows and the work per block
are bounded; beyond the bounds, code is shown without colours.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import cache
from time import thread_time
from typing import Protocol, TypeAlias

from hermes.cli.inline import BOLD, DIM, Run

log = logging.getLogger("hermes.chat")

WordKind: TypeAlias = tuple[str, ...]
"""A token type of pygments, such as `("Keyword", "Type")`."""

PLAIN_NAMES = (
    "bash bat batch c c# c++ clojure cmake console cpp cs csharp css dart diff docker dockerfile elixir erlang fish "
    "fsharp go golang graphql groovy haskell hcl hs html ini java javascript js json jsx julia kotlin lua make "
    "makefile mysql nginx nix objc ocaml perl php postgresql powershell proto protobuf ps1 py pycon python python3 r "
    "rb rs ruby rust scala scss sh shell sql swift terraform tf toml ts tsx typescript xml yaml zig zsh"
)
LANGUAGES = {name: name for name in PLAIN_NAMES.split()} | {
    "htm": "html",
    "json5": "json",
    "jsonc": "json",
    "jsonl": "json",
    "kt": "kotlin",
    "patch": "diff",
    "shell-session": "console",
    "svg": "xml",
    "yml": "yaml",
}
"""Fence names and the lexers of pygments for them. A subset of what pygments knows: these were tested with thousands of
odd rows. The slowest needs half a second, once in a block."""
FENCE_NAME = r"[\s{.]*([\w+#-]+)"

MAGENTA, CYAN, GREEN, RED = "35", "36", "32", "31"
STYLES = {
    "Comment": DIM,
    "Comment.Preproc": MAGENTA,
    "Comment.PreprocFile": GREEN,
    "Generic.Deleted": RED,
    "Generic.Error": RED,
    "Generic.Heading": BOLD,
    "Generic.Inserted": GREEN,
    "Generic.Prompt": DIM,
    "Generic.Subheading": CYAN,
    "Keyword": MAGENTA,
    "Keyword.Constant": CYAN,
    "Keyword.Type": CYAN,
    "Literal.Number": CYAN,
    "Literal.String": GREEN,
    "Name.Attribute": CYAN,
    "Name.Builtin": CYAN,
    "Name.Builtin.Pseudo": "",
    "Name.Class": BOLD,
    "Name.Decorator": CYAN,
    "Name.Exception": CYAN,
    "Name.Function": BOLD,
    "Name.Tag": MAGENTA,
    "Name.Variable": CYAN,
    "Operator.Word": MAGENTA,
}
"""Styles by token type, from the terminal's sixteen colours: only those readable on dark and light backgrounds. Other
tokens keep the default."""

SHORT_CONTEXT_CHARS, LONG_CONTEXT_CHARS = 150, 500
"""Characters lexed again with each row. Above the first, a new start is made at a row that is not indented more than
the first row; above the second, at any row. Never within a string or comment."""
CONTINUATIONS = (")", "]", "}")
"""First characters of a row that continues the one before."""
MAX_ROW_CHARS, MAX_CONTEXT_CHARS, MAX_LEXED_CHARS = 1000, 6000, 500_000
"""Limits in characters: one row, the rows lexed before it, and the total lexed for a block. Beyond any of them the
block continues without colours."""
MAX_ROW_SECONDS = 0.25
"""Time limit for one row; beyond it the block continues without colours."""
CLOSING = "*/`-->]]"
"""Closes any open comment or string: many lexers recognise one by its end only."""
MULTILINE_QUOTES = frozenset({"bash", "mysql", "postgresql", "sh", "shell", "sql", "zsh"})
"""Languages in which single-quoted strings often span rows. In others, such a quote may be an apostrophe."""
INNER_LANGUAGES = {"script": "js", "style": "css"}
"""HTML elements that hold another language, by tag. Recognised if their tags stand on separate rows."""
INNER_BEGINS, INNER_ENDS = r"(?i)<(script|style)\b[^<>]*>\s*$", r"(?i)</(?:script|style)\b"


class Lexer(Protocol):
    """The part of a pygments lexer that is used here."""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, WordKind, str]]:
        """Yield each token as its position, type and text."""
        ...


def colors_for(info: str) -> CodeColors | None:
    """Return the highlighter for a block whose fence is followed by `info`, or None if the language is unknown."""
    found = re.match(FENCE_NAME, info)
    name = LANGUAGES.get(found[1].lower()) if found else None
    if name is None:
        return None
    from pygments.lexers import get_lexer_by_name  # when code is shown first: it takes a moment

    lexer = get_lexer_by_name(name, startinline=True)  # PHP as mostly written: not within a page
    return CodeColors(lexer, f"'{CLOSING}" if name in MULTILINE_QUOTES else CLOSING, has_inner=name == "html")


class CodeColors:
    """Highlights the rows of one block. Never changes the text, whatever a lexer reports."""

    def __init__(self, lexer: Lexer, closing: str = CLOSING, *, has_inner: bool = False) -> None:
        self._lexer: Lexer | None = lexer
        self._closing = closing
        self._has_inner = has_inner
        self._inner: CodeColors | None = None
        self._before = ""
        self._indent = 0
        self._is_open = False
        self._read = 0

    def growing(self, row: str) -> list[Run]:
        """Highlight an unfinished row."""
        if self._inner is not None and not re.search(INNER_ENDS, row):
            return self._inner.growing(row)
        self._begin_row(row)
        return self._lex(row)[0]

    def end_row(self, row: str) -> list[Run]:
        """Highlight a finished row, and remember it for the next ones."""
        if self._inner is not None and not re.search(INNER_ENDS, row):
            return self._inner.end_row(row)
        inner = re.search(INNER_BEGINS, row[:MAX_ROW_CHARS]) if self._has_inner else None
        self._inner = colors_for(INNER_LANGUAGES[inner[1].lower()]) if inner else None
        self._begin_row(row)
        runs, self._is_open = self._lex(row)
        if self._lexer is not None:
            self._before += f"{row}\n"
            self._read += len(self._before)
        if self._read > MAX_LEXED_CHARS or len(self._before) > MAX_CONTEXT_CHARS:
            self._lexer = None
        return runs

    def _begin_row(self, row: str) -> None:
        words = row.lstrip()
        indent = len(row) - len(words)
        goes_on = not words or indent > self._indent or words.startswith(CONTINUATIONS)
        if not self._before or (
            len(self._before) >= (LONG_CONTEXT_CHARS if goes_on else SHORT_CONTEXT_CHARS) and not self._is_open
        ):
            self._before, self._indent = "", indent

    def _lex(self, row: str) -> tuple[list[Run], bool]:
        """Return the highlighted row, and whether a string or comment continues after it."""
        if len(row) > MAX_ROW_CHARS:
            self._lexer = None
        found = None
        try:
            if self._lexer is not None:
                found = _runs_of(self._lexer, self._before, row, self._closing)
        except Exception:  # third-party lexers and odd input: highlighting must not break a reply
            log.warning("a lexer failed; the rest of the block has no colours", exc_info=True)
        if found is None:
            self._lexer = None
        return found or ([(row, "")], False)


def _runs_of(lexer: Lexer, before: str, row: str, closing: str) -> tuple[list[Run], bool] | None:
    """Return the highlighted row and whether a string or comment continues, or None if the lexer takes too long."""
    text, place, end = f"{before}{row}\n{closing}", len(before), len(before) + len(row)
    runs: list[Run] = []
    latest, is_open = thread_time() + MAX_ROW_SECONDS, False
    for index, kind, word in lexer.get_tokens_unprocessed(text):
        if thread_time() > latest:
            return None
        start, stop = max(index, place), min(index + len(word), end)
        if start < stop:
            runs += [(text[place:start], ""), (text[start:stop], _style_of(kind))]
            place = stop
        if index + len(word) > end:
            goes_on = kind[0] == "Comment" and index + len(word) > end + 1
            is_open = goes_on or kind[:2] in (("Comment", "Multiline"), ("Literal", "String"))
            break
    return [run for run in (*runs, (text[place:end], "")) if run[0]], is_open


@cache
def _style_of(kind: WordKind) -> str:
    """Return the style of a token type, or of its nearest ancestor."""
    names = (".".join(kind[:length]) for length in range(len(kind), 0, -1))
    return next((STYLES[name] for name in names if name in STYLES), "")
