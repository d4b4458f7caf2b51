"""Markdown for Discord: rewrites tables, deep headings, rules and images."""

from __future__ import annotations

import re

from hermes.gateway.platforms.text_spans import FENCE, RULE, TABLE_RULE

DEEP_HEADING = re.compile(r"\s{0,3}#{4,6}\s+(?P<text>.*?)\s*#*\s*")
IMAGE = re.compile(r"!\[(?P<shown>[^\]\n]{0,200})\]\((?P<address>[^)\s]{1,2000})\)")


def render(markdown: str) -> str:
    """Return the text with elements that Discord cannot show rewritten. Never fails."""
    lines, made, number = markdown.split("\n"), [], 0
    while number < len(lines):
        end = _end_of_block(lines, number)
        block = lines[number:end]
        if _begins_table(lines, number):
            block = ["```", *block, "```"]
        elif end == number + 1:
            block = [_render_line(lines[number])]
        made += block
        number = end
    return "\n".join(made)


def _end_of_block(lines: list[str], number: int) -> int:
    """Return the number of the line after the block of code, the table or the line that begins here."""
    if (fence := FENCE.fullmatch(lines[number])) is not None:
        closing = re.compile(rf"\s*{re.escape(fence['mark'][0])}{{{len(fence['mark'])},}}\s*")
        return next((n + 1 for n in range(number + 1, len(lines)) if closing.fullmatch(lines[n])), len(lines))
    if _begins_table(lines, number):
        return next((n for n in range(number + 2, len(lines)) if "|" not in lines[n]), len(lines))
    return number + 1


def _begins_table(lines: list[str], number: int) -> bool:
    return "|" in lines[number] and number + 1 < len(lines) and TABLE_RULE.fullmatch(lines[number + 1]) is not None


def _render_line(line: str) -> str:
    if (heading := DEEP_HEADING.fullmatch(line)) is not None:
        return f"**{heading['text']}**" if heading["text"] else ""
    if RULE.fullmatch(line) is not None:
        return "———"
    return IMAGE.sub(lambda found: f"[{found['shown'] or found['address']}]({found['address']})", line)
