"""Adapters, one per platform. An adapter only translates; the gateway stores and retries.

A new platform is an adapter here (`hermes.gateway.platform.Platform`), its entry in `SWITCHES` and in
`set_up.SET_UPS`, and its opener in `hermes.hosting.OPENERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes.settings import API_ENABLED, DISCORD_TOKEN, SLACK_TOKEN, TELEGRAM_TOKEN, Setting, Settings

SWITCHES: Mapping[str, Setting[Any]] = {
    "api": API_ENABLED,
    "telegram": TELEGRAM_TOKEN,
    "discord": DISCORD_TOKEN,
    "slack": SLACK_TOKEN,
}
"""The setting that enables each platform: true, or not empty."""


def switched_on(settings: Settings) -> list[str]:
    """Return the names of the enabled platforms."""
    return [name for name, switch in SWITCHES.items() if settings.get(switch)]
