"""One adapter per platform. Each only translates: what must not get lost is the gateway's business.

A new platform is an adapter here (`hermes.gateway.platform.Platform`), its entry in `SWITCHES`, and how it is opened in
`hermes.hosting.OPENERS`.
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
"""Every platform by its name, with the setting that switches it on: true, or not empty."""


def switched_on(settings: Settings) -> list[str]:
    """The names of the platforms that are configured."""
    return [name for name, switch in SWITCHES.items() if settings.get(switch)]
