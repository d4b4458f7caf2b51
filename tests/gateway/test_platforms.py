"""Every platform can be enabled, is opened under its name, and is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes.cli.plugin_console import TerminalConsole
from hermes.clock import SystemClock
from hermes.gateway.platforms import SWITCHES
from hermes.gateway.platforms.set_up import SET_UPS
from hermes.honcho.identity import PLATFORM_NAMES
from hermes.hosting import OPENERS, open_platforms
from tests.gateway.core import load_app, running_core

DOCS = Path(__file__).parents[2] / "docs"
ON: dict[str, object] = {"api": True, "telegram": "1:token", "discord": "1.token", "slack": "xoxb-token"}
"""A value that enables each platform."""


def test_every_platform_has_a_switch_and_an_opener() -> None:
    assert set(SWITCHES) == set(OPENERS) == set(ON)


def test_every_chat_platform_can_be_set_up_and_is_known_to_honcho() -> None:
    assert {"api", *SET_UPS} == set(SWITCHES)
    assert set(SWITCHES) <= set(PLATFORM_NAMES)


@pytest.mark.parametrize("name", [*SWITCHES])
async def test_enabled_platform_is_opened_under_its_name(tmp_path: Path, name: str) -> None:
    async with running_core(tmp_path / "core") as core:
        switch = {SWITCHES[name].key.replace(".", "__"): ON[name]}
        app = load_app(tmp_path / "home", SystemClock(), slack__app_token="xapp-token", **switch)
        [opened] = open_platforms(app, core.store, core.model, core.gateway)
        assert opened.name == name
        assert TerminalConsole(app).platforms == [name]
        await opened.close()


@pytest.mark.parametrize("name", [*SWITCHES])
def test_docs_name_the_switch_of_each_platform(name: str) -> None:
    pages = [
        (DOCS / page).read_text(encoding="utf-8") for page in ("gateway.md", "telegram.md", "discord.md", "slack.md")
    ]
    assert any(re.search(rf"{re.escape(SWITCHES[name].key)}\b", page) for page in pages), SWITCHES[name].key
