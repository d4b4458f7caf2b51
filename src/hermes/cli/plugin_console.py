"""The environment of a plugin's commands: this terminal, and the profile's store for people and roles."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec import field

from hermes.app import App
from hermes.cli.dialog import TerminalDialog, hang
from hermes.cli.output import note, print_json, print_table, printable, say
from hermes.memory.plugin_host import CommandHost, make_plugin
from hermes.memory.provider import MemoryPlugin
from hermes.owner.people import ProfileConsole
from hermes.redaction import hide_passwords
from hermes.settings import PROVIDER
from hermes.types import Json


class TerminalConsole(ProfileConsole, frozen=True):
    """See `hermes.memory.provider.PluginConsole`."""

    dialog: TerminalDialog = field(default_factory=TerminalDialog)

    def of_profile(self, name: str) -> TerminalConsole:
        return TerminalConsole(App.load(name), self.dialog)

    def print_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        widest = max((len(label) for label, _ in lines), default=0)
        for label, value in lines:
            text = hide_passwords(printable(f"{label:<{widest}}  {value}".rstrip()))
            for line in hang(text, widest + 2) if sys.stdout.isatty() else [text]:
                say(line)

    def print_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        print_table(columns, rows)

    def print_json(self, value: Json) -> None:
        print_json(value)


def open_plugin(app: App, name: str) -> MemoryPlugin:
    """Load a provider for use in commands."""
    return make_plugin(name, app.home.plugins, command_host(app))


def command_host(app: App) -> CommandHost:
    """Return the host that commands give to a provider. Warnings go to standard error."""

    def tell(line: str) -> None:
        note(f"hermes: {hide_passwords(printable(line))}")

    return CommandHost(app.home.path, app.home.profile, app.env, app.clock, tell, app.settings.is_given(PROVIDER))
