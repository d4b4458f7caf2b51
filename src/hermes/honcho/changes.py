"""Changes to honcho.json, each of them made to the file as it stands at that moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes.honcho.config_file import Block, Edit
from hermes.honcho.keys import PIN_USER_PEER, TABLE, Key
from hermes.settings.kinds import plain

UNSET = object()
"""The value that takes a key out, so that the root, a variable or the default decides."""


def set_keys(values: Mapping[str, Any]) -> Edit:
    """Put values of keys where they belong. Raises SettingsError before anything is changed when one is wrong."""
    rows = {row.key: row for row in TABLE}
    parsed = {
        name: value if value is UNSET else plain(rows[name].parse(value, "what was given"))
        for name, value in values.items()
    }

    def edit(block: Block, root: Block) -> None:
        _move_old_pin(block)
        for name, value in parsed.items():
            target = root if rows[name].scope == "shared" and name not in block else block
            if value is UNSET:
                target.pop(name, None)
            else:
                target[name] = value

    return edit


def set_entry(row: Key[Mapping[str, str]], name: str, value: str) -> Edit:
    """Put one entry into a map, beside those that others put there meanwhile."""
    [parsed] = row.parse({name: value}, "what was given").values()

    def edit(block: Block, root: Block) -> None:
        _move_old_pin(block)
        target = root if row.scope == "shared" and row.key not in block else block
        known = target.get(row.key, root.get(row.key)) or {}
        row.parse(known, "the file")
        target[row.key] = {**known, name: parsed}

    return edit


def _move_old_pin(block: Block) -> None:
    """The pin under the name that it has now, in the place of the old one."""
    for old in PIN_USER_PEER.also:
        if old in block:
            value = block.get(PIN_USER_PEER.key, block[old])
            moved = {(PIN_USER_PEER.key if name == old else name): one for name, one in block.items()}
            moved[PIN_USER_PEER.key] = value
            block.clear()
            block.update(moved)
