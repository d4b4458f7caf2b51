"""Markdown of models and memories as safe HTML, without raw HTML, images or links."""

from __future__ import annotations

from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

MAX_MARKDOWN_CHARS = 200_000
"""A longer text is shown as it is: parsing would block other requests."""
DISABLED_RULES = ("autolink", "entity", "html_block", "html_inline", "image", "link", "reference")


@cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    return made.disable(list(DISABLED_RULES))


def to_html(text: str) -> Markup:
    """Return the HTML of a Markdown text. Links stay text, so that a person sees their address."""
    if len(text) > MAX_MARKDOWN_CHARS:
        return Markup('<pre class="plain">{}</pre>').format(text)
    return Markup(_parser().render(text))  # the parser escapes: `html` is off


def to_plain(text: str) -> Markup:
    """Return the HTML of a text as it was typed: escaped, with its line breaks."""
    return escape(text)
