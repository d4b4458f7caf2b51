"""config.yaml and .env: read with line numbers, written with comments and order kept, replaced atomically."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

from hermes.config_edit import open_block, put_value, yaml
from hermes.errors import SettingsError
from hermes.files import edit_file, read_file
from hermes.home import Home
from hermes.settings import TABLE, Setting
from hermes.settings.kinds import plain
from hermes.settings.layers import Given
from hermes.settings.setting import Table

MAX_CONFIG_BYTES = 128 * 1024
"""Of config.yaml or .env; a parser takes seconds for as many."""
MAX_ENTRIES = 10_000
"""Settings of a file; aliases can make any number out of a few lines."""
LED_NOWHERE = "Bring that back (is its disk mounted?), or remove the link"


def read_entries(path: Path, table: Table = TABLE) -> list[Given]:
    """The leaves of the file as dotted names; a file that is not there has none.

    `store: {lock_timeout: 5}` and `store.lock_timeout: 5` mean the same; a name that stands there twice is two leaves.
    What stands under a setting's own key is that setting's value, a map too.
    """
    text = _read(path)
    return [] if text is None else _entries(path, text, table)


def _entries(path: Path, text: str, table: Table) -> list[Given]:
    document = _parse(path, text)
    if document is None:
        return []
    settings = {setting.key for setting in table}
    leaves = list(islice(_leaves(document, "", path, settings, (id(document),)), MAX_ENTRIES + 1))
    if len(leaves) > MAX_ENTRIES:
        raise SettingsError(f"{path}: more than {MAX_ENTRIES:,} settings", hint="Mend it; nothing was changed")
    return leaves


def write_setting(path: Path, setting: Setting[Any], value: object) -> None:
    """Put one value into the file. Everything else in it stays as it was, to the letter; two at once both count."""
    if not edit_file(path, lambda: _read(path), lambda seen: _edit(path, seen or "", setting, value)):
        raise SettingsError(f"another program keeps changing {path}", hint="Try again in a moment")


def _edit(path: Path, seen: str, setting: Setting[Any], value: object) -> str:
    """The text of the file with one value in it."""
    _entries(path, seen, TABLE)  # what contains itself is refused
    text = _without_short_form(path, seen, setting)
    document = _parse(path, text)
    ways = list(_ways(document or {}, setting.key))
    if len(ways) > 1:
        raise SettingsError(
            f"{path}: {setting.key} stands there {len(ways)} times",
            hint="Take all but one of them out of the file first",
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
    """The keys that lead to `name`, as often as the file has it: a key may hold several steps of a dotted name."""
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
                hint=f"Take the line `{parent}: …` out of the file first",
            )
        block = block[parent]
    block[leaf] = value
    return root


def _without_short_form(path: Path, text: str, setting: Setting[Any]) -> str:
    """`model: NAME` as `model: {default: NAME}`, which means the same, before more of that block is written."""
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
    """The variables of a `.env` file (`KEY=value`); none when there is no such file."""
    text = _read(path)
    if text is None:
        return {}
    from dotenv.parser import parse_stream

    found: dict[str, str] = {}
    for binding in parse_stream(StringIO(text)):
        if binding.error:
            raise SettingsError(
                f"{path}, line {binding.original.line}: this is not `KEY=value`",
                hint="Mend the line, or put # before it",
            )
        if binding.key is not None and binding.value is not None:
            found[binding.key] = binding.value
    return found


def load_env(home: Home) -> dict[str, str]:
    """The environment, with `.env` of the home below it: a variable that is set already wins."""
    return {**read_env_file(home.env_file), **os.environ}


def load_shared_env(home: Home) -> dict[str, str]:
    """The same for what all profiles share, such as the memory server: `.env` of the default home is below it all."""
    return {**read_env_file(home.shared / home.env_file.name), **load_env(home)}


def _read(path: Path) -> str | None:
    """The file's text, line ends and all, or None when there is no such file."""
    try:
        return read_file(path, MAX_CONFIG_BYTES).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink() and not path.resolve().parent.is_dir():  # else it is yet to be made
            led = f"it is a link to {path.readlink()}, which is not there"
            raise SettingsError(f"cannot read {path}: {led}", hint=LED_NOWHERE) from error
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"cannot read {path}: {why}", hint="Check its owner, permissions and contents") from error


def _parse(path: Path, text: str) -> MutableMapping[str, Any] | None:
    try:
        document = yaml().load(text)
    except Exception as error:  # the parser is foreign, and raises far more than its own errors
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 1}" if mark else str(path)
        # What follows a name may be its value, and a value may be a secret.
        told = (getattr(error, "problem", None) or "").partition(" with value")[0]
        problem = told or f"this is not YAML that can be read ({type(error).__name__})"
        raise SettingsError(f"{place}: {problem}", hint="Mend it; nothing was changed") from error
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
        is_leaf = name in settings or not isinstance(value, MutableMapping)
        if id(value) in above or (is_leaf and _contains_itself(value, above, set())):
            raise SettingsError(f"{where}: '{name}' contains itself")
        if is_leaf:
            yield Given(name, value, where)
        else:
            yield from _leaves(value, f"{name}.", path, settings, (*above, id(value)))


def _contains_itself(value: object, above: tuple[int, ...], checked: set[int]) -> bool:
    """YAML lets a list or a map stand inside itself; nobody could read it to its end."""
    if not isinstance(value, MutableMapping | list) or id(value) in checked:
        return False
    inner = value.values() if isinstance(value, MutableMapping) else value
    if id(value) in above or any(_contains_itself(one, (*above, id(value)), checked) for one in inner):
        return True
    checked.add(id(value))
    return False


def _line(block: Any, key: object) -> int | None:
    """The line a key stands on; None for one that `<<` brought in from elsewhere."""
    place = (block.lc.data or {}).get(key)
    return None if place is None else int(place[0]) + 1
