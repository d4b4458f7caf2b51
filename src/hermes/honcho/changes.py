"""Changes to honcho.json, each of them made to the file as it stands at that moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes.errors import SettingsError
from hermes.honcho.config_file import Block, Edit
from hermes.honcho.keys import PIN_USER_PEER, TABLE, Key
from hermes.settings.kinds import plain


def set_keys(values: Mapping[str, Any], seen: Mapping[str, Mapping[str, Any]] | None = None) -> Edit:
    """Write values of keys into the file, each where it belongs. Raises SettingsError, and changes nothing, when one is
    wrong.

    `seen` has the maps from which new values were made. What other programs have added to such a map since is kept.
    """
    rows = {row.key: row for row in TABLE}
    if unknown := values.keys() - rows:
        raise SettingsError(
            f"there is no key {min(unknown)} in honcho.json", hint="docs/honcho-reference.md lists them"
        )
    parsed = {name: plain(rows[name].parse(value, "what was given")) for name, value in values.items()}
    before = seen or {}

    def edit(block: Block, root: Block) -> None:
        move_old_pin(block)
        for name, value in parsed.items():
            target = _place(rows[name], block, root)
            is_merged = name in before and isinstance(value, dict)
            target[name] = _merge(_known(rows[name], target, root), before[name], value) if is_merged else value

    return edit


def set_entry(row: Key[Mapping[str, str]], name: str, value: str) -> Edit:
    """Put one entry into a map, beside those that others put there meanwhile."""
    return set_keys({row.key: {name: value}}, {row.key: {}})


def move_old_pin(block: Block) -> None:
    """Rename the old key of the pin to the one of today."""
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
    """The map as it is in the host block, else at the root. Raises SettingsError when it is not a map."""
    known = target.get(row.key, root.get(row.key)) or {}
    row.parse(known, "the file")
    return dict(known)


def _merge(known: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The map `known`, with the changes that lead from `before` to `after`."""
    gone = before.keys() - after.keys()
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    return {**{name: value for name, value in known.items() if name not in gone}, **changed}
