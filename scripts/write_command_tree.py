"""Write the command line as data for completion (`hermes.cli.provider_group`). `make docs` runs it."""

from __future__ import annotations

import json

import typer.main

from hermes.cli.main import COMMANDS, build_app
from hermes.cli.provider_group import FILE, describe_tree
from hermes.settings import TABLE


def render() -> str:
    """Return the whole file."""
    tree = describe_tree(typer.main.get_command(build_app(COMMANDS)), TABLE)
    return json.dumps(tree, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8")
