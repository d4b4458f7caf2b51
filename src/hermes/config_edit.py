"""Editing one value in the text of config.yaml; every other character stays in place. Text in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any

INDENT_WIDTH = 2
MAX_DEPTH = 64
"""Maximum nesting of lists and maps; the parser's time grows with its square."""
TOO_DEEP = f"lists and maps are nested more than {MAX_DEPTH} deep"


def put_value(text: str, names: Sequence[str], value: object) -> str:
    """Return `text` with the value under `names`. Unusual YAML may come out wrong, so parse the result and compare."""
    end = "\r\n" if "\r\n" in text else "\n"
    root = yaml().compose(text)
    if root is not None and not root.value:
        return text
    if root is None:
        start = text if not text or text.endswith("\n") else text + end
        return start + end.join(_block(names, value, 0)) + end
    return _put(text, root, names, value, end)


def open_block(text: str, name: str, leaf: str) -> str:
    """Return `text` with the value of the top-level key `name` moved one level down, under `leaf`. Parse the result
    too."""
    end = "\r\n" if "\r\n" in text else "\n"
    key, node = next(pair for pair in yaml().compose(text).value if pair[0].value == name)
    start, stop = node.start_mark.index, node.end_mark.index
    after_key, line_end = text.find(":", key.end_mark.index) + 1, _end_of_line(text, stop)
    moved = " " * (key.start_mark.column + INDENT_WIDTH) + f"{leaf}: {text[start:stop]}"
    return f"{text[:after_key]}{text[stop:line_end]}{end}{moved}{text[line_end:]}"


def yaml() -> Any:
    """Return a parser and writer that keeps comments, quotes and long lines."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scanner import RoundTripScanner, ScannerError

    class ShallowScanner(RoundTripScanner):
        def fetch_more_tokens(self) -> Any:
            comment = super().fetch_more_tokens()
            if len(self.flow_context) + len(self.indents) > MAX_DEPTH:
                raise ScannerError(None, None, TOO_DEEP, self.reader.get_mark())
            return comment

    made = YAML()
    made.Scanner = ShallowScanner
    made.preserve_quotes = True
    made.width = 1_000_000
    return made


def _put(text: str, block: Any, names: Sequence[str], value: object, end: str) -> str:
    first, *rest = names
    found = [pair for pair in block.value if pair[0].value == first]
    if not found:
        place = _end_of_line(text, _last_mark(block))
        return _insert(text, place, _block(names, value, block.value[0][0].start_mark.column), end)
    key, node = found[0]
    if rest and isinstance(node.value, list) and node.value and isinstance(node.value[0], tuple):  # a block
        return _put(text, node, rest, value, end)
    if rest:
        place = _end_of_line(text, key.end_mark.index)
        return _insert(text, place, _block(rest, value, key.start_mark.column + INDENT_WIDTH), end)
    start, stop = _extent(text, key, node)
    gap = " " if text[start - 1] == ":" else ""
    return text[:start] + gap + _inline(value) + text[stop:]


def _extent(text: str, key: Any, node: Any) -> tuple[int, int]:
    """Return start and end of the text to replace. A value below its key moves up to the key's line."""
    after_key = text.find(":", key.end_mark.index) + 1
    start = node.start_mark.index
    stop = _last_mark(node) if isinstance(node.value, list) and not node.flow_style else node.end_mark.index
    if start == stop:
        return after_key, after_key
    while stop > start and text[stop - 1] in "\r\n":
        stop -= 1
    between = text[after_key:start]
    return (after_key if "\n" in between and not between.strip() else start), stop


def _last_mark(node: Any) -> int:
    """Return the end of a node's content; the node's own mark may include comments that follow."""
    while isinstance(node.value, list) and node.value and not node.flow_style:
        last = node.value[-1]
        key, node = last if isinstance(last, tuple) else (None, last)
        if key is not None and node.start_mark.index == node.end_mark.index:
            return int(key.end_mark.index)
    return int(node.end_mark.index)


def _end_of_line(text: str, place: int) -> int:
    if place and text[place - 1] == "\n":
        place -= 1
    found = text.find("\n", place)
    found = len(text) if found < 0 else found
    return found - 1 if found and text[found - 1] == "\r" else found


def _insert(text: str, place: int, lines: Sequence[str], end: str) -> str:
    tail = text[place:] or end
    return text[:place] + end + end.join(lines) + tail


def _block(names: Sequence[str], value: object, column: int) -> list[str]:
    """Return the lines of a nested setting."""
    *parents, leaf = names
    lines = [" " * (column + depth * INDENT_WIDTH) + f"{name}:" for depth, name in enumerate(parents)]
    return [*lines, " " * (column + len(parents) * INDENT_WIDTH) + f"{leaf}: {_inline(value)}"]


def _inline(value: object) -> str:
    """Return a value on one line: a list as `[a, b]`, a map as `{a: b}`."""
    out, writer = StringIO(), yaml()
    if isinstance(value, list | dict):
        writer.default_flow_style = True
        writer.dump(value, out)
        return out.getvalue().strip()
    writer.dump({"x": value}, out)
    return out.getvalue().removeprefix("x:").strip()
