"""config.yaml and .env: read with line numbers, written with comments and order kept, replaced atomically.

Editing one value in the text of config.yaml; every other character stays in place. Text in, text out.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

from hermes.errors import SettingsError
from hermes.files import NOT_UTF8, edit_file, read_file
from hermes.home import Home
from hermes.settings import TABLE, Setting
from hermes.settings.kinds import plain
from hermes.settings.layers import Given
from hermes.settings.setting import Table

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


MAX_CONFIG_BYTES = 128 * 1024
"""Maximum size of config.yaml or .env, for which the parser takes seconds."""
MAX_ENTRIES = 10_000
"""Maximum number of settings and list items of a file; aliases can expand a few lines to any number."""
LED_NOWHERE = "Restore its target (is the disk mounted?), or remove the link"


def read_entries(path: Path, table: Table = TABLE) -> list[Given]:
    """Return the leaves of the file as dotted names; none for a missing file.

    `store: {lock_timeout: 5}` and `store.lock_timeout: 5` mean the same; a name that occurs twice gives two leaves.
    Everything under a setting's own key is that setting's value, even a map.
    """
    text = _read(path)
    return [] if text is None else _entries(path, text, table)


def _entries(path: Path, text: str, table: Table) -> list[Given]:
    document = _parse(path, text)
    if document is None:
        return []
    settings = {setting.key for setting in table}
    leaves = list(islice(_leaves(document, "", path, settings, (id(document),)), MAX_ENTRIES + 1))
    counted: dict[int, int] = {}
    if sum(_count_values(leaf.value, counted) for leaf in leaves) > MAX_ENTRIES:
        raise SettingsError(
            f"{path}: more than {MAX_ENTRIES:,} settings and list items", hint="Correct it; nothing was changed"
        )
    return leaves


def write_setting(path: Path, setting: Setting[Any], value: object) -> None:
    """Write one value into the file. Everything else stays exactly as it was; concurrent writes both count."""
    if not edit_file(path, lambda: _read(path), lambda seen: _edit(path, seen or "", setting, value)):
        raise SettingsError(f"another program keeps changing {path}", hint="Try again in a moment")


def _edit(path: Path, seen: str, setting: Setting[Any], value: object) -> str:
    """Return the text of the file with the new value."""
    _entries(path, seen, TABLE)  # raises for a value that contains itself
    text = _without_short_form(path, seen, setting)
    document = _parse(path, text)
    ways = list(_ways(document or {}, setting.key))
    if len(ways) > 1:
        raise SettingsError(
            f"{path}: {setting.key} is set {len(ways)} times",
            hint="Remove all but one of them from the file first",
        )
    names = ways[0] if ways else setting.key.split(".")
    wanted = _with_value(path, document, names, plain(value))
    edited = put_value(text, names, plain(value))
    if not _means(path, edited, wanted):  # a shape that only a full rewrite gets right, such as {flow: style}
        out = StringIO()
        yaml().dump(wanted, out)
        edited = out.getvalue()
    return edited


def _ways(block: Mapping[str, Any], name: str) -> Iterator[list[str]]:
    """Yield each path of keys to `name` that the file has: a key may hold several steps of a dotted name."""
    for key, value in block.items():
        if key == name:
            yield [key]
        elif name.startswith(f"{key}.") and isinstance(value, Mapping):
            yield from ([key, *rest] for rest in _ways(value, name.removeprefix(f"{key}.")))


def _with_value(path: Path, document: MutableMapping[str, Any] | None, names: list[str], value: object) -> Any:
    root: MutableMapping[str, Any] = {} if document is None else document
    *parents, leaf = names
    block = root
    for parent in parents:
        if block.get(parent) is None:
            block[parent] = {}
        if not isinstance(block[parent], MutableMapping):
            raise SettingsError(
                f"{path}: '{parent}' holds a value, not a block of settings",
                hint=f"Remove the line `{parent}: …` from the file first",
            )
        block = block[parent]
    block[leaf] = value
    return root


def _without_short_form(path: Path, text: str, setting: Setting[Any]) -> str:
    """Return the text with `model: NAME` as `model: {default: NAME}`, which means the same, so that the block can
    grow."""
    block = setting.key.partition(".")[0]
    meant = next((one for one in TABLE if block in one.also and one.key.startswith(f"{block}.")), None)
    value = (_parse(path, text) or {}).get(block)
    if meant is None or value is None or isinstance(value, Mapping):
        return text
    leaf = meant.key.removeprefix(f"{block}.")
    opened = open_block(text, block, leaf)
    return opened if _means(path, opened, {**(_parse(path, text) or {}), block: {leaf: value}}) else text


def _means(path: Path, text: str, wanted: Any) -> bool:
    try:
        return bool(_parse(path, text) == wanted)
    except SettingsError:
        return False


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a `.env` file (`KEY=value`); empty for a missing file."""
    text = _read(path)
    if text is None:
        return {}
    from dotenv.parser import parse_stream

    found: dict[str, str] = {}
    for binding in parse_stream(StringIO(text)):
        if binding.error:
            raise SettingsError(
                f"{path}, line {binding.original.line}: this is not `KEY=value`",
                hint="Correct the line, or put # before it",
            )
        if binding.key is not None and binding.value is not None:
            found[binding.key] = binding.value
    return found


def load_env(home: Home) -> dict[str, str]:
    """Return the environment, with the home's `.env` for variables that it does not set."""
    return {**read_env_file(home.env_file), **os.environ}


def load_shared_env(home: Home) -> dict[str, str]:
    """Return the environment of programs that all profiles share, such as the memory server: `load_env`, with the
    default home's `.env` for variables that it does not set."""
    return {**read_env_file(home.shared / home.env_file.name), **load_env(home)}


def _read(path: Path) -> str | None:
    """Return the file's text with its line ends, or None for a missing file."""
    try:
        return read_file(path, MAX_CONFIG_BYTES).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink() and not path.resolve().parent.is_dir():  # else it does not exist yet
            led = f"it is a link to {path.readlink()}, which does not exist"
            raise SettingsError(f"cannot read {path}: {led}", hint=LED_NOWHERE) from error
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else NOT_UTF8
        raise SettingsError(f"cannot read {path}: {why}", hint="Check its owner, permissions and contents") from error


def _parse(path: Path, text: str) -> MutableMapping[str, Any] | None:
    try:
        document = yaml().load(text)
    except Exception as error:  # the parser is foreign, and raises far more than its own errors
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 1}" if mark else str(path)
        # What follows a name may be its value, and a value may be a secret.
        told = (getattr(error, "problem", None) or "").partition(" with value")[0]
        problem = told or f"this is not readable YAML ({type(error).__name__})"
        raise SettingsError(f"{place}: {problem}", hint="Correct it; nothing was changed") from error
    if document is None:
        return None
    if not isinstance(document, MutableMapping):
        raise SettingsError(f"{path}: the file must hold settings as `name: value`")
    return document


def _leaves(
    block: Any, prefix: str, path: Path, settings: Collection[str], above: tuple[int, ...] = ()
) -> Iterator[Given]:
    for key, value in block.items():
        name = f"{prefix}{key}"
        where = f"{path}, line {line}" if (line := _line(block, key)) else str(path)
        _check_depth(above, where)
        is_leaf = name in settings or not isinstance(value, MutableMapping)
        if id(value) in above or (is_leaf and _contains_itself(value, above, set(), where)):
            raise SettingsError(f"{where}: '{name}' contains itself")
        if is_leaf:
            yield Given(name, value, where)
        else:
            yield from _leaves(value, f"{name}.", path, settings, (*above, id(value)))


def _contains_itself(value: object, above: tuple[int, ...], checked: set[int], where: str) -> bool:
    """Return True if a value contains itself, which YAML allows and which has no end."""
    if not isinstance(value, MutableMapping | list) or id(value) in checked:
        return False
    _check_depth(above, where)
    inner = value.values() if isinstance(value, MutableMapping) else value
    if id(value) in above or any(_contains_itself(one, (*above, id(value)), checked, where) for one in inner):
        return True
    checked.add(id(value))
    return False


def _check_depth(above: tuple[int, ...], where: str) -> None:
    """Raise SettingsError for too deep nesting through aliases; the parser counts only nesting in the text."""
    if len(above) > MAX_DEPTH:
        raise SettingsError(f"{where}: {TOO_DEEP}", hint="Correct it; nothing was changed")


def _count_values(value: object, counted: dict[int, int]) -> int:
    """Return the number of values in a value, including itself, each as often as aliases repeat it."""
    if not isinstance(value, MutableMapping | list):
        return 1
    if id(value) not in counted:
        inner = value.values() if isinstance(value, MutableMapping) else value
        counted[id(value)] = 1 + sum(_count_values(one, counted) for one in inner)
    return counted[id(value)]


def _line(block: Any, key: object) -> int | None:
    """Return the line of a key; None for one that `<<` merged in from elsewhere."""
    place = (block.lc.data or {}).get(key)
    return None if place is None else int(place[0]) + 1
