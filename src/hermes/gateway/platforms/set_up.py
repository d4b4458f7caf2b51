"""Set-up of the chat platforms: where to create tokens, and how to check them.

Installation commands for packages that a platform needs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from msgspec import Struct

from hermes.gateway.platforms import SWITCHES
from hermes.settings import DISCORD_BASE_URL, SLACK_APP_TOKEN, SLACK_BASE_URL, TELEGRAM_BASE_URL, Setting
from hermes.types import Json

DISTRIBUTION = "hermes-memory-host"
DISCORD = ("discord.py>=2.5,<3",)
SLACK = ("slack-sdk>=3.33,<4", "aiohttp>=3.9,<4")


def how_to_install(requirements: tuple[str, ...], prefix: Path | None = None) -> str:
    """Return the command that adds packages to this environment, for pipx, uv or pip."""
    root = Path(sys.prefix) if prefix is None else prefix
    quoted = [f"'{one}'" for one in requirements]
    if "pipx" in root.parts:
        return f"pipx inject {DISTRIBUTION} {' '.join(quoted)}"
    if (root / "uv-receipt.toml").exists():
        return f"uv tool install {DISTRIBUTION} {' '.join(f'--with {one}' for one in quoted)}"
    installer = f"{sys.executable} -m pip install"
    if _is_of_uv(root):
        installer = f"uv pip install --python {root}"
    return f"{installer} {' '.join(quoted)}"


def _is_of_uv(root: Path) -> bool:
    """Return True for an environment made by uv, which has no pip."""
    try:
        lines = (root / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.partition("=")[0].strip() == "uv" for line in lines)


TIMEOUT_SECONDS = 15.0
MAX_REPLY_BYTES = 1_000_000
MESSAGE_CONTENT_FLAGS = 1 << 18 | 1 << 19
"""Flags of a Discord application: granted by Discord, or enabled by the owner of a bot in few servers."""
DISCORD_PERMISSIONS = 1 << 10 | 1 << 11 | 1 << 16 | 1 << 38
"""Permissions: view channels, send messages, read the history, send messages in threads."""
SLACK_SCOPES = frozenset(
    ("app_mentions:read", "channels:history", "channels:read", "chat:write", "groups:history", "groups:read",
     "im:history", "im:read", "mpim:history", "mpim:read", "users:read")
)  # fmt: skip


class RefusedTokenError(Exception):
    """Raised when the platform refuses a token."""


class CheckedToken(Struct, frozen=True):
    """The bot of the tokens, missing requirements, and the next step on the platform."""

    bot: str
    missing: tuple[str, ...] = ()
    next_step: str = ""


class SetUp(Struct, frozen=True):
    """The set-up of one platform. `check` takes its address and the tokens in the order of `tokens`."""

    summary: str
    """The requirements, as `hermes gateway setup` lists them."""
    steps: str
    tokens: tuple[tuple[Setting[Any], str], ...]
    base_url: Setting[Any]
    check: Callable[[str, list[str]], CheckedToken]
    module: str
    requirements: tuple[str, ...] = ()


def check_telegram(base_url: str, tokens: list[str]) -> CheckedToken:
    """Ask Telegram who the bot is."""
    found, _ = _ask(f"{base_url}/bot{quote(tokens[0], safe=':')}/getMe", {})
    bot = found.get("result") or {}
    return CheckedToken(f"@{bot.get('username')}", (), f"Write to https://t.me/{bot.get('username')}")


def check_discord(base_url: str, tokens: list[str]) -> CheckedToken:
    """Ask Discord who the bot is, and whether it may read messages."""
    headers = {"Authorization": f"Bot {tokens[0]}"}
    bot, _ = _ask(f"{base_url}/users/@me", headers)
    application, _ = _ask(f"{base_url}/oauth2/applications/@me", headers)
    invite = f"https://discord.com/oauth2/authorize?client_id={application.get('id')}&scope=bot"
    missing = () if int(application.get("flags") or 0) & MESSAGE_CONTENT_FLAGS else (
        "“Message Content Intent”: switch it on at https://discord.com/developers/applications, page “Bot”",
    )  # fmt: skip
    return CheckedToken(
        f"@{bot.get('username')}", missing, f"Invite it to your server: {invite}&permissions={DISCORD_PERMISSIONS}"
    )


def check_slack(base_url: str, tokens: list[str]) -> CheckedToken:
    """Ask Slack who the bot is, which scopes it has, and whether the app's token opens a websocket."""
    bot, headers = _ask(f"{base_url}/auth.test", {"Authorization": f"Bearer {tokens[0]}"}, "POST")
    _ask(f"{base_url}/apps.connections.open", {"Authorization": f"Bearer {tokens[1]}"}, "POST")
    granted = {one.strip() for one in headers.get("x-oauth-scopes", "").split(",")}
    lacking = sorted(SLACK_SCOPES - granted)
    missing = (f"the scopes {', '.join(lacking)}: add them and reinstall the app",) if lacking else ()
    return CheckedToken(
        f"@{bot.get('user')} in {bot.get('team')}", missing, "Write to the app, or /invite it to a channel"
    )


def _ask(url: str, headers: Mapping[str, str], method: str = "GET") -> tuple[dict[str, Json], Mapping[str, str]]:
    """Return a response with its headers, in lower case. Raises RefusedTokenError for a refused token, OSError or
    ValueError for an unusable response. No error contains the token."""
    # Discord refuses requests without a User-Agent that names the program.
    agent = {"User-Agent": f"DiscordBot ({DISTRIBUTION}, 1)", **headers}
    try:
        with urlopen(Request(url, headers=agent, method=method), timeout=TIMEOUT_SECONDS) as response:
            found = json.loads(response.read(MAX_REPLY_BYTES))
            response_headers = {name.lower(): value for name, value in response.headers.items()}
    except HTTPError as error:
        if error.code in (401, 404):  # Telegram answers 404 to what cannot be a token
            raise RefusedTokenError(f"HTTP {error.code}") from None
        raise OSError(f"it responds with HTTP {error.code}") from None
    except HTTPException as error:
        raise OSError(f"it does not speak HTTP: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise ValueError("its response is not a JSON object")
    if found.get("ok") is False:
        raise RefusedTokenError(str(found.get("error") or found.get("description")))
    return found, response_headers


SET_UPS: Mapping[str, SetUp] = {
    "telegram": SetUp(
        "a bot, one token",
        "Talk to https://t.me/BotFather: /newbot, a name, a user name. It gives you a token (docs/telegram.md).",
        ((SWITCHES["telegram"], "The bot's token"),),
        TELEGRAM_BASE_URL,
        check_telegram,
        "telegram",
    ),
    "discord": SetUp(
        "a bot, one token",
        "On https://discord.com/developers/applications: New Application, then Bot › Reset Token, and switch on "
        "“Message Content Intent” (docs/discord.md).",
        ((SWITCHES["discord"], "The bot's token"),),
        DISCORD_BASE_URL,
        check_discord,
        "discord",
        DISCORD,
    ),
    "slack": SetUp(
        "an app, two tokens",
        "On https://api.slack.com/apps: Create New App › From a manifest (it is in docs/slack.md), then Basic "
        "Information › App-Level Tokens with connections:write, and Install App.",
        ((SWITCHES["slack"], "The bot's token (xoxb-…)"), (SLACK_APP_TOKEN, "The app-level token (xapp-…)")),
        SLACK_BASE_URL,
        check_slack,
        "slack_sdk",
        SLACK,
    ),
}
"""How `hermes gateway setup` sets up each chat platform: all of `SWITCHES` but `api`, which has no bot."""
