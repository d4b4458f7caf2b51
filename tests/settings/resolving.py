"""Resolved settings, or the first problem raised as the app raises it."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.settings.layers import Layer, Settings, check, try_resolve
from hermes.settings.setting import Table


def resolve(table: Table, layers: Sequence[Layer]) -> Settings:
    settings, problems = try_resolve(table, layers)
    check(problems)
    return settings
