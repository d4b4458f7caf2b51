"""Places that entries come from, and a plugin for them."""

from __future__ import annotations

from pathlib import Path

from hermes.clock import SystemClock
from hermes.honcho.plugin import HonchoPlugin
from hermes.memory.plugin_host import CommandHost
from hermes.memory.provider import Conversation, Notebook, Speaker
from tests.honcho.configuring import Machine

OWNER, ANN = Speaker(is_owner=True), Speaker("17", "@ann")
HERE = Conversation("s1", "cli", "everything", OWNER, directory=Path("/code/app"))
CHAT = Conversation("s2", "telegram", "own", ANN, "dm", "agent:main:telegram:dm:17")
GROUP = Conversation("s3", "telegram", "here", None, "group", "agent:main:telegram:group:-100")
PLACES = (HERE, CHAT, GROUP, Notebook(OWNER), Notebook(ANN, "telegram"), Notebook(None, "telegram", "agent:g"))


def plugin(machine: Machine, profile: str | None = None, told: list[str] | None = None) -> HonchoPlugin:
    env = {"HOME": str(machine.folder), "LOGNAME": "ann", **machine.env}
    lines: list[str] = [] if told is None else told
    return HonchoPlugin(CommandHost(machine.profile(profile), profile, env, SystemClock(), lines.append))
