"""Settings for one message: its configuration over the session's over the workspace's over the server's defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The switches of reasoning, and the intervals of summaries in messages."""

    reasoning: bool
    use_card: bool
    create_card: bool
    summaries: bool
    short_every: int
    long_every: int
    dreams: bool


def resolve(*layers: str | Mapping[str, Any]) -> SessionSettings:
    """Return the settings of several configurations, stored or given, the widest first."""
    stored = tuple(layer for layer in layers if isinstance(layer, str))
    if len(stored) == sum(1 for layer in layers if layer):
        return _resolve_stored(stored)
    return _resolve(layers)


def _resolve(layers: Sequence[str | Mapping[str, Any]]) -> SessionSettings:
    narrowest_first = [_modern(json.loads(layer) if isinstance(layer, str) else layer) for layer in reversed(layers)]

    def said(section: str, name: str) -> Any:
        """Return the value of the narrowest layer that has one; null counts as absent."""
        values = (_section(layer, section).get(name) for layer in narrowest_first)
        return next((value for value in values if value is not None), None)

    def count(name: str, default: int) -> int:
        value = said("summary", name)
        return value if isinstance(value, int) and value > 0 else default

    return SessionSettings(
        reasoning=said("reasoning", "enabled") is not False,
        use_card=said("peer_card", "use") is not False,
        create_card=said("peer_card", "create") is not False,
        summaries=said("summary", "enabled") is not False,
        short_every=count("messages_per_short_summary", 20),
        long_every=count("messages_per_long_summary", 60),
        dreams=said("dream", "enabled") is not False,
    )


_resolve_stored = lru_cache(maxsize=256)(_resolve)


def _modern(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the layer with older spellings of `reasoning.enabled`, still used in stored configurations, converted."""
    reasoning = _section(layer, "reasoning")
    older = _section(layer, "deriver").get("enabled")
    skipped = False if layer.get("skip_deriver") is True else None
    said = [value for value in (reasoning.get("enabled"), older, skipped) if isinstance(value, bool)]
    return {**layer, "reasoning": {**reasoning, "enabled": said[0]}} if said else layer


def _section(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = given.get(name)
    return found if isinstance(found, Mapping) else {}
