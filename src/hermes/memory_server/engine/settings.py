"""Configuration as it holds for one message: message over session over workspace over the server's defaults."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What is switched on, and how often summaries are made."""

    reasoning: bool = True
    use_card: bool = True
    create_card: bool = True
    summaries: bool = True
    short_every: int = 20
    long_every: int = 60
    dreams: bool = True


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers win, key by key at every depth; a null says nothing."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if isinstance(value, Mapping):
                below = merged.get(key)
                merged[key] = merge(below if isinstance(below, Mapping) else {}, value)
            elif value is not None:
                merged[key] = value
    return merged


def resolve(*layers: str | Mapping[str, Any]) -> SessionSettings:
    """The settings that configurations, stored or just given, mean together, the widest first."""
    stored = tuple(layer for layer in layers if isinstance(layer, str))
    if len(stored) == sum(1 for layer in layers if layer):
        return _resolve_stored(stored)
    return _resolve(layers)


def _resolve(layers: Iterable[str | Mapping[str, Any]]) -> SessionSettings:
    given = merge(*(_modern(json.loads(layer) if isinstance(layer, str) else layer) for layer in layers))
    summary = _section(given, "summary")
    card = _section(given, "peer_card")
    return SessionSettings(
        reasoning=_flag(_section(given, "reasoning"), "enabled"),
        use_card=_flag(card, "use"),
        create_card=_flag(card, "create"),
        summaries=_flag(summary, "enabled"),
        short_every=_count(summary, "messages_per_short_summary", 20),
        long_every=_count(summary, "messages_per_long_summary", 60),
        dreams=_flag(_section(given, "dream"), "enabled"),
    )


_resolve_stored = lru_cache(maxsize=256)(_resolve)


def _modern(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The layer with its older spellings of `reasoning.enabled`, which are still in people's configurations."""
    reasoning = _section(layer, "reasoning")
    older = _section(layer, "deriver").get("enabled")
    skipped = False if layer.get("skip_deriver") is True else None
    said = [value for value in (reasoning.get("enabled"), older, skipped) if isinstance(value, bool)]
    return {**layer, "reasoning": {**reasoning, "enabled": said[0]}} if said else layer


def _section(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = given.get(name)
    return found if isinstance(found, Mapping) else {}


def _flag(section: Mapping[str, Any], name: str) -> bool:
    return section.get(name) is not False


def _count(section: Mapping[str, Any], name: str, default: int) -> int:
    value = section.get(name)
    return value if isinstance(value, int) and value > 0 else default
