"""The colours of code, row by row as it comes, by the lexers of pygments.

A lexer reads a row together with some rows before it: it cannot be told to go on where it was. How far back that is,
and how much a block may cost, has a limit; beyond it code goes on plain.
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
"""What a lexer takes a word for, such as `("Keyword", "Type")`."""

KNOWN = (
    "bash bat batch c c# c++ clojure cmake console cpp cs csharp css dart diff docker dockerfile elixir erlang fish "
    "fsharp go golang graphql groovy haskell hcl hs html ini java javascript js json jsx julia kotlin lua make "
    "makefile mysql nginx nix objc ocaml perl php postgresql powershell proto protobuf ps1 py pycon python python3 r "
    "rb rs ruby rust scala scss sh shell sql swift terraform tf toml ts tsx typescript xml yaml zig zsh"
)
LANGUAGES = {name: name for name in KNOWN.split()} | {
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
"""Names after a fence, and what pygments calls them. Not all that it knows: a reply says which lexer reads it, and
these were tried with thousands of odd rows. The slowest takes half a second, once in a block."""
NAME = r"[\s{.]*([\w+#-]+)"

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
"""Of the terminal's own sixteen colours those that can be read on dark and on light; all else has the usual one."""

SHORT, LONG = 150, 500
"""Characters that are read again with each row. After the first a row begins anew that is not indented more than the
one they begin with, after the second any row; but none within a text or comment."""
CONTINUING = (")", "]", "}")
"""What a row begins with that goes on with something."""
LONGEST_ROW, MOST_BEFORE, MOST_READ = 1000, 6000, 500_000
"""Characters of a row, of what is read before it, and of all that is read for a block: above any, it goes on plain."""
SLOWEST = 0.25
"""Seconds of work on one row, likewise."""
CLOSING = "*/`-->]]"
"""What ends a comment or a text of several rows that is still open: many lexers know one by its end alone."""
QUOTING = frozenset({"bash", "mysql", "postgresql", "sh", "shell", "sql", "zsh"})
"""Languages in which a text in single quotes often has several rows; elsewhere such a quote may be an apostrophe."""
INNER = {"script": "js", "style": "css"}
"""Parts of a page that are in another language, by their tags, each in rows of its own."""
INNER_BEGINS, INNER_ENDS = r"(?i)<(script|style)\b[^<>]*>\s*$", r"(?i)</(?:script|style)\b"


class Lexer(Protocol):
    """As pygments has them."""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, WordKind, str]]:
        """Each word: where it begins, what it is, the word."""
        ...


def colors_for(info: str) -> CodeColors | None:
    """The colours for a block with this text after its fence; None where its language is not known."""
    found = re.match(NAME, info)
    name = LANGUAGES.get(found[1].lower()) if found else None
    if name is None:
        return None
    from pygments.lexers import get_lexer_by_name  # when code is shown first: it takes a moment

    lexer = get_lexer_by_name(name, startinline=True)  # PHP as mostly written: not within a page
    return CodeColors(lexer, f"'{CLOSING}" if name in QUOTING else CLOSING, has_inner=name == "html")


class CodeColors:
    """Colours the rows of one block. The text is never changed, whatever a lexer says."""

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
        """A row as far as it has come."""
        if self._inner is not None and not re.search(INNER_ENDS, row):
            return self._inner.growing(row)
        self._begin_row(row)
        return self._lex(row)[0]

    def end_row(self, row: str) -> list[Run]:
        """A whole row."""
        if self._inner is not None and not re.search(INNER_ENDS, row):
            return self._inner.end_row(row)
        inner = re.search(INNER_BEGINS, row[:LONGEST_ROW]) if self._has_inner else None
        self._inner = colors_for(INNER[inner[1].lower()]) if inner else None
        self._begin_row(row)
        runs, self._is_open = self._lex(row)
        if self._lexer is not None:
            self._before += f"{row}\n"
            self._read += len(self._before)
        if self._read > MOST_READ or len(self._before) > MOST_BEFORE:
            self._lexer = None
        return runs

    def _begin_row(self, row: str) -> None:
        words = row.lstrip()
        indent = len(row) - len(words)
        goes_on = not words or indent > self._indent or words.startswith(CONTINUING)
        if not self._before or (len(self._before) >= (LONG if goes_on else SHORT) and not self._is_open):
            self._before, self._indent = "", indent

    def _lex(self, row: str) -> tuple[list[Run], bool]:
        """The row in colours, and whether a text or a comment goes on after it."""
        if len(row) > LONGEST_ROW:
            self._lexer = None
        found = None
        try:
            if self._lexer is not None:
                found = _runs_of(self._lexer, self._before, row, self._closing)
        except Exception:  # code of others, and odd input: colours are not worth a reply
            log.warning("a lexer failed, and code goes on plain", exc_info=True)
        if found is None:
            self._lexer = None
        return found or ([(row, "")], False)


def _runs_of(lexer: Lexer, before: str, row: str, closing: str) -> tuple[list[Run], bool] | None:
    """What a lexer makes of a row; None when it takes too long."""
    text, place, end = f"{before}{row}\n{closing}", len(before), len(before) + len(row)
    runs: list[Run] = []
    latest, is_open = thread_time() + SLOWEST, False
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
    """The style of a kind, or of what it is a kind of."""
    names = (".".join(kind[:length]) for length in range(len(kind), 0, -1))
    return next((STYLES[name] for name in names if name in STYLES), "")
