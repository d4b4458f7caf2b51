"""A long message in pieces that a server takes. Pure."""

from __future__ import annotations

MARK = "[continued] "
"""Before every piece but the first, where there is room for it."""
MOST_CHARS = 25_000
"""Characters of one message that a Honcho server takes, whatever the configuration says."""


def split_text(text: str, limit: int) -> list[str]:
    """`text` in pieces of at most `limit` characters: parted after a paragraph, else after a word, else where it must
    be. Without the marks they are the text again, character by character."""
    limit = min(limit, MOST_CHARS)
    mark = MARK if limit >= 2 * len(MARK) else ""
    pieces, start, before = [], 0, ""
    while len(text) - start > limit - len(before):
        cut = _find_cut(text[start : start + limit - len(before)])
        pieces.append(f"{before}{text[start : start + cut]}")
        start, before = start + cut, mark
    return [*pieces, f"{before}{text[start:]}"]


def _find_cut(window: str) -> int:
    """Where the first piece ends. A paragraph counts in the second half alone, so that pieces do not become many."""
    paragraph = window.rfind("\n\n", len(window) // 2)
    if paragraph >= 0:
        return paragraph + 2
    if window[-1].isspace():
        return len(window)
    words = window.rsplit(None, 1)
    return len(window) - len(words[1]) if len(words) == 2 else len(window)
