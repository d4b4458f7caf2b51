"""`hermes gateway setup` with platforms on loopback: tokens are tested, stored for their owner only, never shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.gateway.platforms.packages import DISCORD, how_to_install
from tests.conftest import Ran
from tests.gateway.bot_api import TOKEN as TELEGRAM_TOKEN
from tests.gateway.bot_api import BotApi
from tests.gateway.discord_server import TOKEN as DISCORD_TOKEN
from tests.gateway.discord_server import DiscordServer
from tests.gateway.slack_server import APP_TOKEN, BOT_TOKEN, SlackServer

Hermes = Callable[..., Ran]
pytestmark = pytest.mark.contract("10.2")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Type these answers at the questions for tokens."""
    answers: list[str] = []
    monkeypatch.setattr("hermes.cli.gateway_setup.can_ask", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda _: answers.pop(0))
    return answers


def test_discord_is_set_up_and_a_missing_intent_named(home: Path, hermes: Hermes, typed: list[str]) -> None:
    typed += ["MTIz.wrong", DISCORD_TOKEN]
    with DiscordServer(intents=False) as server:
        hermes("config", "set", "discord.base_url", server.base_url)
        ran = hermes("gateway", "setup", "discord")
    assert ran.code == 0, ran.err
    assert "The token was refused (HTTP 401)" in ran.out
    assert "Missing: “Message Content Intent”" in ran.out
    assert "It is @hermes." in ran.out
    _check_stored(home, ran, DISCORD_TOKEN)


def test_slack_is_set_up_and_a_missing_scope_named(home: Path, hermes: Hermes, typed: list[str]) -> None:
    typed += [BOT_TOKEN, "xapp-wrong", BOT_TOKEN, APP_TOKEN]
    with SlackServer() as server:
        server.scopes = tuple(one for one in server.scopes if one != "users:read")
        hermes("config", "set", "slack.base_url", server.base_url)
        ran = hermes("gateway", "setup", "slack")
    assert ran.code == 0, ran.err
    assert "The token was refused (invalid_auth)" in ran.out
    assert "the scopes users:read" in ran.out
    assert "It is @hermes in Loopback." in ran.out
    _check_stored(home, ran, BOT_TOKEN, APP_TOKEN)


def test_telegram_is_set_up(home: Path, hermes: Hermes, typed: list[str]) -> None:
    typed += ["1:wrong", TELEGRAM_TOKEN]
    with BotApi() as server:
        hermes("config", "set", "telegram.base_url", server.base_url)
        ran = hermes("gateway", "setup", "telegram")
    assert ran.code == 0, ran.err
    assert "The token was refused" in ran.out
    assert "It is @" in ran.out
    assert "Missing" not in ran.out
    _check_stored(home, ran, TELEGRAM_TOKEN)


def test_bot_that_another_profile_has_is_named(hermes: Hermes, typed: list[str]) -> None:
    typed += [DISCORD_TOKEN, DISCORD_TOKEN]
    hermes("profiles", "create", "coder")
    with DiscordServer() as server:
        for profile in ("default", "coder"):
            hermes("-p", profile, "config", "set", "discord.base_url", server.base_url)
        first, second = (hermes("-p", profile, "gateway", "setup", "discord") for profile in ("default", "coder"))
    assert "uses the same bot" not in first.out
    assert "The profile default uses the same bot" in " ".join(second.out.split())
    assert DISCORD_TOKEN not in second.out


def test_tokens_are_stored_unseen_where_the_platform_cannot_be_reached(
    home: Path, hermes: Hermes, typed: list[str]
) -> None:
    typed += [TELEGRAM_TOKEN]
    hermes("config", "set", "telegram.base_url", "http://127.0.0.1:9")
    ran = hermes("gateway", "setup", "telegram")
    assert "could not be tested" in ran.out
    _check_stored(home, ran, TELEGRAM_TOKEN)


def test_nobody_is_asked_in_a_script(hermes: Hermes) -> None:
    ran = hermes("gateway", "setup", "slack")
    assert ran.code == 2
    assert "hermes config set slack.app_token" in ran.err
    assert hermes("gateway", "setup", "irc").code == 2


@pytest.mark.parametrize(
    ("folder", "files", "command"),
    [
        ("pipx/venvs/x", {}, "pipx inject "),
        ("tools/x", {"uv-receipt.toml": ""}, "uv tool install "),
        ("venv", {"pyvenv.cfg": "home = /usr\nuv = 0.5.1\n"}, "uv pip install --python "),
        (".venv", {"pyvenv.cfg": "home = /usr\n"}, "-m pip install "),
    ],
)
def test_hint_names_the_program_that_made_the_environment(
    tmp_path: Path, folder: str, files: dict[str, str], command: str
) -> None:
    root = tmp_path / folder
    root.mkdir(parents=True)
    for name, text in files.items():
        (root / name).write_text(text)
    made = how_to_install(DISCORD, root)
    assert command in made
    assert "'discord.py>=2.5,<3'" in made


def _check_stored(home: Path, ran: Ran, *tokens: str) -> None:
    file = home / "config.yaml"
    assert all(token in file.read_text() and token not in ran.out + ran.err for token in tokens)
    assert file.stat().st_mode & 0o777 == 0o600
