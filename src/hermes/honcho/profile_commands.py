"""`hermes honcho sync`: a host block for every profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hermes.honcho import keys
from hermes.honcho.changes import move_old_pin
from hermes.honcho.config_file import FILE, Block, Edit, edit_document, read_document
from hermes.honcho.configuration import Configuration
from hermes.honcho.workbench import Workbench, find_bench

OWN = {keys.AI_PEER.key, keys.OAUTH.key, keys.SESSIONS.key}
"""What one profile does not take over from another."""


def sync(
    ctx: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Give every profile a host block, with what the default profile has, in the same workspace, as an agent of its
    own."""
    bench = find_bench(ctx)
    default = next(bench.profiles())
    config = default.load().checked()
    given = _own_block(default)
    rows = [(one.profile, _sync(one, config, given)) for one in bench.profiles() if one.profile != default.profile]
    if json:
        bench.desk.print_json(dict(rows))
    elif rows:
        bench.desk.print_table(("profile", "what was done"), rows)
    else:
        bench.desk.dialog.say("There is only the default profile.")


def _sync(bench: Workbench, default: Configuration, given: Mapping[str, Any]) -> str:
    places = bench.places
    path = places.existing()
    if path == bench.machine.home.path / FILE:
        return f"nothing: it has a file of its own, {path}"
    if path is not None and read_document(path, places).block:
        return "nothing: it has a block"
    edit_document(places, _make_block(places.host, default.workspace, given))
    signed_in = bool(given.get(keys.OAUTH.key))
    return f"hosts.{places.host} was made" + ("; it needs a sign-in or key of its own" if signed_in else "")


def _make_block(host: str, workspace: str, given: Mapping[str, Any]) -> Edit:
    ours = {row.key for row in keys.TABLE} - OWN
    if given.get(keys.OAUTH.key):
        ours.discard(keys.API_KEY.key)  # a grant that two renew is taken away from both

    def edit(block: Block, root: Block) -> None:  # noqa: ARG001
        block.update({name: value for name, value in given.items() if name in ours})
        block |= {keys.WORKSPACE.key: workspace, keys.AI_PEER.key: host}

    return edit


def _own_block(bench: Workbench) -> Mapping[str, Any]:
    """What the profile's own block says, in the words of now."""
    path = bench.places.existing()
    block = {} if path is None else dict(read_document(path, bench.places).block)
    move_old_pin(block)
    return block
