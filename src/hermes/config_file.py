"""config.yaml and .env: read with line numbers, written with comments and order kept, replaced atomically."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from io import StringIO
from pathlib import Path
from typing import Any

from hermes.errors import SettingsError
from hermes.files import replace_file
from hermes.settings import FileEntry, Setting


def read_entries(path: Path) -> list[FileEntry]:
    """The leaves of the file as dotted names; a file that is not there has none."""
    document = _load(path)
    return list(_leaves(document, "", path)) if document is not None else []


def write_setting(path: Path, setting: Setting[Any], value: object) -> None:
    """Put one value into the file. Everything else in it stays as it was."""
    document = _load(path)
    root: MutableMapping[str, Any] = {} if document is None else document
    *parents, leaf = setting.name.split(".")
    block = root
    for parent in parents:
        child = block.setdefault(parent, {})
        if child is None:
            child = block[parent] = {}
        if not isinstance(child, MutableMapping):
            raise SettingsError(f"{path}: '{parent}' holds a value, not a block of settings")
        block = child
    block[leaf] = value
    text = StringIO()
    _yaml().dump(root, text)
    replace_file(path, text.getvalue())


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of a `.env` file (`KEY=value`); none when there is no such file."""
    text = _read_text(path)
    if text is None:
        return {}
    from dotenv import dotenv_values

    values = dotenv_values(stream=StringIO(text), interpolate=False)
    return {name: value for name, value in values.items() if value is not None}


def _read_text(path: Path) -> str | None:
    """The file's text, or None when there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"cannot read {path}: {why}", hint="Check its owner, permissions and contents") from error


def _yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    return yaml


def _load(path: Path) -> MutableMapping[str, Any] | None:
    text = _read_text(path)
    if text is None:
        return None
    from ruamel.yaml.error import YAMLError

    try:
        document = _yaml().load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or "it is not YAML"
        raise SettingsError(f"{place}: {problem}", hint="Mend that line; nothing was changed") from error
    if document is None:
        return None
    if not isinstance(document, MutableMapping):
        raise SettingsError(f"{path}: the file must hold settings as `name: value`")
    return document


def _leaves(block: Any, prefix: str, path: Path) -> Iterator[FileEntry]:
    positions = getattr(block, "lc", None)
    for key, value in block.items():
        name = f"{prefix}{key}"
        line = positions.key(key)[0] + 1 if positions is not None and positions.data else None
        where = f"{path}, line {line}" if line else str(path)
        if isinstance(value, MutableMapping):
            yield from _leaves(value, f"{name}.", path)
        else:
            yield FileEntry(name, value, where)
