"""honcho.json: locating, reading and changing it while other processes do the same.

Several programs and profiles share it. A change applies to the file's current contents, under the lock that a stock
Hermes takes too; everything else in it, including foreign keys and the order of keys, is preserved.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from hermes.config_file import MAX_DEPTH
from hermes.errors import HomeError, SettingsError
from hermes.files import edit_locked_file, locked, read_file
from hermes.home import Home
from hermes.honcho import guests, projects
from hermes.honcho.keys import ENV_HOST, PIN_USER_PEER, TABLE, Key
from hermes.settings.kinds import plain

FILE = "honcho.json"
GLOBAL = Path(".honcho") / "config.json"
"""The file that other Honcho programs share, relative to the user's folder. We write only our own host block there."""
HOSTS = "hosts"
MAX_FILE_BYTES = 4 * 1024 * 1024
LOCK_SECONDS = 30.0
"""How long a change waits for the lock. Renewal of a sign-in holds it for at most 20 seconds."""
JSON_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)
"""Strings and brackets, counted to limit nesting before the file is parsed."""
SURROGATE = re.compile("[\ud800-\udfff]")
MEND = "Correct it; nothing was changed"

Block = dict[str, Any]
Edit = Callable[[Block, Block], None]
"""A change of the host block and the root, made in place."""


class ConfigPlaces(Struct, frozen=True):
    """Candidate locations of the file, and the name of our host block."""

    candidates: tuple[Path, ...]
    """In order of precedence."""
    default: Path
    """The location where a new file is created."""
    shared: Path
    """The file that other programs share."""
    host: str
    old_host: str | None = None
    """The block's name in earlier versions."""

    @property
    def guests(self) -> Path:
        """The record of guests, which all profiles share."""
        return self.default.parent / guests.FILE

    @property
    def projects(self) -> Path:
        """The file of projects, in the same folder as the honcho.json in force."""
        return (self.existing() or self.default).parent / projects.FILE

    @property
    def watched(self) -> tuple[Path, ...]:
        """Every file that the configuration depends on: the candidates, the projects files beside them, and the
        guests' record."""
        folders = dict.fromkeys(path.parent for path in self.candidates)
        return (*self.candidates, *(folder / projects.FILE for folder in folders), self.guests)

    @classmethod
    def find(cls, home: Path, profile: str | None, env: Mapping[str, str]) -> ConfigPlaces:
        """Return the places of a profile. The environment may name another block."""
        host = env.get(ENV_HOST, "")
        folder = Path(env["HOME"]) if env.get("HOME") else Path.home()
        default, shared = Home(home, profile).shared / FILE, folder / GLOBAL
        candidates = dict.fromkeys((home / FILE, default, folder / ".hermes" / FILE, shared))
        named = host or ("hermes" if profile is None else f"hermes_{profile}")
        old = f"hermes.{profile}" if profile is not None and not host else None
        return cls(tuple(candidates), default, shared, named, old)

    def existing(self) -> Path | None:
        """Return the file in force, or None if no candidate exists."""
        return next((path for path in self.candidates if _is_there(path)), None)


class Document(Struct, frozen=True):
    """The contents of honcho.json. `block` is the host block, stored under the name `host`."""

    root: Mapping[str, Any]
    block: Mapping[str, Any]
    host: str
    unread: str | None = None
    """The name of a block of an earlier version that exists too and is ignored."""


def read_document(path: Path | None, places: ConfigPlaces) -> Document:
    """Return the file's contents; empty without a file. Raises SettingsError for an unreadable, invalid or
    empty file: its defaults could send messages to another server."""
    if path is None:
        return Document({}, {}, places.host)
    raw = _raw(path)
    root = {} if raw is None else _parse(path, raw)
    host, hosts = _block_name(root, places, path), _hosts(root, path)
    unread = places.old_host if host != places.old_host and places.old_host in hosts else None
    return Document(root, hosts.get(host, {}), host, unread)


def edit_document(places: ConfigPlaces, edit: Edit) -> Path:
    """Change the file in force under its lock, and return its path.

    A block of an earlier version is renamed with its contents. In the shared file, changes of the root are written to
    our block instead.
    """
    path = places.existing() or places.default
    with locked(path, timeout=LOCK_SECONDS):
        edit_locked_document(path, places, edit)
    return path


def edit_locked_document(path: Path, places: ConfigPlaces, edit: Edit) -> None:
    """Change one of the files. The caller holds its lock."""
    if not edit_locked_file(path, lambda: _raw(path), lambda raw: _edited(path, raw, places, edit)):
        raise HomeError(f"another program keeps changing {path}", hint="Try again in a moment")


def _edited(path: Path, raw: bytes | None, places: ConfigPlaces, edit: Edit) -> str:
    """Return the new text of the file."""
    root = _parse(path, raw) if raw else {}
    ours = _block_name(root, places, path)
    blocks = {(places.host if name == ours else name): block for name, block in _hosts(root, path).items()}
    block = blocks.setdefault(places.host, {})
    if path == places.shared:
        top = dict(root)
        edit(block, top)
        block.update({name: value for name, value in top.items() if value != root.get(name)})
    else:
        edit(block, root)
    root[HOSTS] = blocks
    return _write(root)


def _write(root: Block) -> str:
    """Return the JSON text of a file. A lone surrogate stays an escape sequence."""
    text = json.dumps(root, ensure_ascii=False, indent=2) + "\n"
    return json.dumps(root, indent=2) + "\n" if SURROGATE.search(text) else text


def others_can_read(path: Path) -> bool:
    """Return True if users beside the owner may read the file. Always False on Windows."""
    try:
        return os.name != "nt" and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False  # reading the file reports the error


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a folder that we may not even look into is not ours
        return False


def _block_name(root: Mapping[str, Any], places: ConfigPlaces, path: Path) -> str:
    """Return the name of our block: the old name only if no block has the new one."""
    hosts = _hosts(root, path)
    is_old = places.old_host in hosts and places.host not in hosts
    return places.old_host if is_old and places.old_host is not None else places.host


def _hosts(root: Mapping[str, Any], path: Path) -> dict[str, Block]:
    hosts = root.get(HOSTS)
    if hosts is None:
        return {}
    if not isinstance(hosts, dict):
        raise SettingsError(f"{path}: `{HOSTS}` must be an object that holds host blocks", hint=MEND)
    for name, block in hosts.items():
        if not isinstance(block, dict):
            raise SettingsError(f"{path}: `{HOSTS}.{name}` must be an object", hint=MEND)
    return hosts


def _raw(path: Path) -> bytes | None:
    """Return the file's bytes; None if it does not exist."""
    try:
        return read_file(path, MAX_FILE_BYTES) if _is_there(path) else None
    except OSError as error:
        raise SettingsError(
            f"cannot read {path}: {error.strerror}", hint="Check its owner, permissions and contents"
        ) from error


def _parse(path: Path, raw: bytes) -> Block:
    depth = 0
    for mark in JSON_MARKS.finditer(raw):
        depth += (mark[0] in b"[{") - (mark[0] in b"]}")
        if depth > MAX_DEPTH:
            raise SettingsError(f"{path}: lists and maps are nested more than {MAX_DEPTH} deep", hint=MEND)
    try:
        found = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text", hint=MEND) from error
    except json.JSONDecodeError as error:
        raise SettingsError(f"{path}, line {error.lineno}: this is not JSON ({error.msg})", hint=MEND) from error
    except ValueError as error:  # Python reads no number of more than 4,300 digits
        raise SettingsError(f"{path}: a number has too many digits", hint=MEND) from error
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: the file must hold one JSON object", hint=MEND)
    return found


def set_keys(values: Mapping[str, Any], seen: Mapping[str, Mapping[str, Any]] | None = None) -> Edit:
    """Return an edit that writes values of keys, each to its scope. Raises SettingsError for an invalid value.

    `seen` holds the maps that the new values were derived from; entries that other programs added since are kept.
    """
    rows = {row.key: row for row in TABLE}
    if unknown := values.keys() - rows:
        raise SettingsError(
            f"there is no key {min(unknown)} in honcho.json", hint="docs/honcho-reference.md lists all keys"
        )
    parsed = {name: plain(rows[name].parse(value, "what was given")) for name, value in values.items()}
    before = seen or {}

    def edit(block: Block, root: Block) -> None:
        move_old_pin(block)
        move_old_pin(root)
        for name, value in parsed.items():
            target = _place(rows[name], block, root)
            is_merged = name in before and isinstance(value, dict)
            target[name] = _merge(_known(rows[name], target, root), before[name], value) if is_merged else value

    return edit


def set_entry(row: Key[Mapping[str, str]], name: str, value: str) -> Edit:
    """Return an edit that sets one entry of a map and keeps the other entries."""
    return set_keys({row.key: {name: value}}, {row.key: {}})


def move_old_pin(block: Block) -> None:
    """Rename the old key of the pin to the current one."""
    for old in PIN_USER_PEER.also:
        if old in block:
            value = block.get(PIN_USER_PEER.key, block[old])
            moved = {(PIN_USER_PEER.key if name == old else name): one for name, one in block.items()}
            moved[PIN_USER_PEER.key] = value
            block.clear()
            block.update(moved)


def _place(row: Key[Any], block: Block, root: Block) -> Block:
    return root if row.scope == "shared" and row.key not in block else block


def _known(row: Key[Any], target: Block, root: Block) -> Mapping[str, Any]:
    """Return the map in the host block, else at the root. Raises SettingsError if it is not a map."""
    known = target.get(row.key, root.get(row.key)) or {}
    row.parse(known, "the file")
    return dict(known)


def _merge(known: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return `known` with the changes from `before` to `after` applied."""
    gone = before.keys() - after.keys()
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    return {**{name: value for name, value in known.items() if name not in gone}, **changed}
