"""What completion offers of the memory provider's own commands, which have to be built."""

from __future__ import annotations

import os

import typer.main

from hermes.cli.command_tree import describe_tree
from hermes.cli.provider_group import provider_group
from hermes.errors import HermesError
from hermes.home import Home
from hermes.memory import registry
from hermes.types import Json


def provider_names(profile: str | None) -> list[str]:
    try:
        return [
            name for name in registry.provider_names(Home.find(os.environ, profile).plugins) if name != registry.NONE
        ]
    except HermesError:
        return []


def provider_tree(name: str, profile: str | None) -> dict[str, Json] | None:
    """The commands of a memory provider, None where it is not chosen or has none."""
    try:
        group = provider_group(name, profile)
    except HermesError:
        return None
    return None if group is None else describe_tree(typer.main.get_command(group))
