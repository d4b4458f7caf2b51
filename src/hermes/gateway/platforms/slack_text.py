"""Converts text: Markdown to Slack's mrkdwn, and people's mrkdwn to plain text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hermes.gateway.platforms.inbound_text import well_formed
from hermes.gateway.platforms.text_spans import Span, render

MARKS = {"bold": "*", "italic": "_", "strikethrough": "~", "code": "`"}
ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
REFERENCE = re.compile(r"<(?P<kind>[@#!]?)(?P<target>[^<>|\n]{1,3000})(?:\|(?P<label>[^<>\n]{0,3000}))?>")


def to_mrkdwn(markdown: str) -> str:
    """Return Markdown as mrkdwn. Never fails, and never produces a mention."""
    made = render(markdown)
    opening: dict[int, list[Span]] = {}
    closing: dict[int, list[Span]] = {}
    for span in made.spans:
        start, end = _trim(made.text, span)
        opening.setdefault(start, []).append(span)
        closing.setdefault(end, []).append(span)
    quoted = [(span.start, span.end) for span in made.spans if span.kind == "blockquote"]
    parts: list[str] = []
    for place, character in enumerate(made.text + "\0"):
        parts += [_close(span) for span in closing.get(place, ())]
        if any(start <= place < end for start, end in quoted) and (place == 0 or made.text[place - 1] == "\n"):
            parts.append("> ")
        parts += [_open(span) for span in sorted(opening.get(place, ()), key=lambda span: -span.end)]
        parts.append(ESCAPES.get(character, character))
    return "".join(parts[:-1])


def _trim(text: str, span: Span) -> tuple[int, int]:
    """Return the ends of a span without blanks: Slack formats no text with blanks next to the marks."""
    start, end = span.start, span.end
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _open(span: Span) -> str:
    match span.kind:
        case "pre":
            return "```\n"
        case "text_link":
            return f"<{_escape_link(span.detail)}|"
        case kind:
            return MARKS.get(kind, "")


def _close(span: Span) -> str:
    match span.kind:
        case "pre":
            return "\n```"
        case "text_link":
            return ">"
        case kind:
            return MARKS.get(kind, "")


def _escape_link(address: str) -> str:
    return address.replace("&", "&amp;").replace("|", "%7C").replace(">", "%3E").replace("<", "%3C")


def to_plain(text: str, names: Mapping[str, str]) -> str:
    """Return mrkdwn as plain text; `names` has the names of mentioned people, by id."""

    def read(found: re.Match[str]) -> str:
        target, label = found["target"], found["label"]
        match found["kind"]:
            case "@":
                return f"@{names.get(target) or label or target}"
            case "#":
                return f"#{label or target}"
            case "!":
                return label or f"@{target.partition('^')[0]}"
            case _:
                bare = target.removeprefix("mailto:")
                return f"{label} ({bare})" if label and label not in bare else bare

    plain = REFERENCE.sub(read, text)
    return well_formed(plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def mentioned(text: str) -> set[str]:
    """Return the ids of the people that a text mentions."""
    return {found["target"] for found in REFERENCE.finditer(text) if found["kind"] == "@"}
