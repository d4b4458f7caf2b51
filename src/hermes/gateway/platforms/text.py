"""Cleans text and names of people on a platform for the agent.

Converts Markdown to plain text with spans, for platforms that have their own formatting.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

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


EntityKind: TypeAlias = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]

FENCE = re.compile(r"\A(?P<indent>\s*)(?P<mark>`{3,}|~{3,})\s*(?P<language>[\w+#.-]*)[^`]*")
HEADING = re.compile(r"\s{0,3}#{1,6}\s+(?P<text>.*?)\s*#*\s*")
RULE = re.compile(r"\s{0,3}([-*_])(?:\s*\1){2,}\s*")
QUOTE = re.compile(r"\s{0,3}>\s?(?P<text>.*)")
BULLET = re.compile(r"\A(?P<indent>\s*)[-*+]\s+(?P<text>.*)")
TABLE_RULE = re.compile(r"\A\s*(?:(?:\|\s*)?:?-+:?\s*(?:\|\s*:?-+:?\s*)+(?:\|\s*)?|\|\s*:?-+:?\s*\|\s*)")
PRODUCT = re.compile(r"(`+.+?`+)|(?<=\w)\*(?=\w)")
"""Matches a star between letters or digits outside of code: 2*3*4 is a product, not emphasis."""

PAIRED: dict[str, EntityKind] = {"strong": "bold", "em": "italic", "s": "strikethrough"}
LINKED = ("http://", "https://", "tg://")


class Span(Struct, frozen=True):
    """A formatted part of a text; `detail` is the address of a link or the language of code."""

    kind: EntityKind
    start: int
    end: int
    detail: str = ""


class Rendered(Struct):
    """Text with its spans, in order of their end."""

    text: str = ""
    spans: list[Span] = field(default_factory=list)

    def mark(self, kind: EntityKind, start: int, detail: str = "") -> None:
        """Mark the text after `start` as `kind`."""
        if self.text[start:].strip():
            self.spans.append(Span(kind, start, len(self.text), detail))


def render(markdown: str) -> Rendered:
    """Return the text without Markdown's marks. Never fails: other text is returned unchanged."""
    lines, made, parser = markdown.split("\n"), Rendered(), _parser()
    number = 0
    while number < len(lines):
        if number:
            made.text += "\n"
        number = _render_block(lines, number, made, parser)
    return made


def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough").disable("html_inline")


def _render_block(lines: Sequence[str], number: int, made: Rendered, parser: MarkdownIt) -> int:
    """Add the block that begins at a line; return the number of the line after it."""
    line, start = lines[number], len(made.text)
    if (fence := FENCE.fullmatch(line)) is not None:
        return _render_code(lines, number, fence, made)
    if "|" in line and number + 1 < len(lines) and TABLE_RULE.fullmatch(lines[number + 1]):
        end = next((n for n in range(number + 2, len(lines)) if "|" not in lines[n]), len(lines))
        made.text += "\n".join(lines[number:end])
        made.mark("pre", start)
        return end
    if QUOTE.fullmatch(line) is not None:
        return _render_quote(lines, number, made, parser)
    if RULE.fullmatch(line) is not None:
        made.text += "———"
    elif (heading := HEADING.fullmatch(line)) is not None:
        _render_inline(heading["text"], made, parser)
        made.mark("bold", start)
    elif (bullet := BULLET.fullmatch(line)) is not None:
        made.text += f"{bullet['indent']}• "
        _render_inline(bullet["text"], made, parser)
    else:
        _render_inline(line, made, parser)
    return number + 1


def _render_code(lines: Sequence[str], number: int, fence: re.Match[str], made: Rendered) -> int:
    """Add a block of code. An unclosed block extends to the end, as in a streamed reply."""
    closing = re.compile(rf"\s*{re.escape(fence['mark'][0])}{{{len(fence['mark'])},}}\s*")
    end = next((n for n in range(number + 1, len(lines)) if closing.fullmatch(lines[n])), len(lines))
    indent = fence["indent"]
    start = len(made.text)
    made.text += "\n".join(line.removeprefix(indent) for line in lines[number + 1 : end])
    made.mark("pre", start, fence["language"])
    return end + 1


def _render_quote(lines: Sequence[str], number: int, made: Rendered, parser: MarkdownIt) -> int:
    start = len(made.text)
    first = number
    while number < len(lines) and (quote := QUOTE.fullmatch(lines[number])) is not None:
        made.text += "\n" if number > first else ""
        _render_inline(quote["text"], made, parser)
        number += 1
    made.mark("blockquote", start)
    return number


def _render_inline(text: str, made: Rendered, parser: MarkdownIt) -> None:
    bare = text.lstrip()
    made.text += text[: len(text) - len(bare)]
    opened: list[tuple[int, str]] = []
    for block in parser.parseInline(PRODUCT.sub(lambda found: found[1] or "\\*", bare)):
        for token in block.children or []:
            _render_token(token, made, opened)


def _render_token(token: Token, made: Rendered, opened: list[tuple[int, str]]) -> None:
    name, _, end = token.type.rpartition("_")
    if end == "open":
        opened.append((len(made.text), str(token.attrs.get("href", ""))))
    elif end == "close":
        start, address = opened.pop()
        if name == "link":
            _link(made, start, address)
        else:
            made.mark(PAIRED[name], start)
    elif token.type == "code_inline":
        start = len(made.text)
        made.text += token.content
        made.mark("code", start)
    elif token.type == "image":
        start = len(made.text)
        made.text += token.content
        _link(made, start, str(token.attrs.get("src", "")))
    else:
        made.text += "\n" if token.type in ("softbreak", "hardbreak") else token.content


def _link(made: Rendered, start: int, address: str) -> None:
    """Add a link; an address that cannot be followed is written out."""
    shown = made.text[start:]
    if address.startswith(LINKED) and shown:
        made.mark("text_link", start, address)
    elif address and address not in (shown, f"mailto:{shown}"):
        made.text += f" ({address})" if shown else address
