"""`hermes honcho sync`: create a host block for every profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hermes.honcho import keys
from hermes.honcho.config_file import FILE, Block, Edit, edit_document, move_old_pin, read_document
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.profiles import named_provider
from hermes.honcho.workbench import Workbench, find_bench
from hermes.settings import PROVIDER

OWN = {keys.AI_PEER.key, keys.OAUTH.key, keys.SESSIONS.key}
"""Keys that one profile does not copy from another."""


def sync(
    ctx: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask where a profile leaves memory behind.")] = False,
) -> None:
    """Give every profile a host block, copied from the default profile: the same workspace, but a separate agent."""
    bench = find_bench(ctx)
    default = next(bench.profiles())
    config = default.load().checked()
    given = _own_block(default)
    left = [] if yes else [line for one in bench.profiles() if (line := _describe_left_behind(one, config.workspace))]
    for line in left:
        bench.desk.dialog.say(f"Note: {line}.")
    if left:
        bench.confirm("Go on?", "no", "nothing was changed")
    rows = [(one.profile, _sync(one, config, given)) for one in bench.profiles() if one.profile != default.profile]
    if json:
        bench.desk.print_json(dict(rows))
    elif rows:
        bench.desk.print_table(("profile", "what was done"), rows)
    else:
        bench.desk.dialog.say("There is only the default profile.")


def _sync(bench: Workbench, default: HonchoConfiguration, given: Mapping[str, Any]) -> str:
    if own := _own(bench):
        return f"nothing: it has {own}"
    places, left = bench.machine.places, _describe_left_behind(bench, default.workspace)
    edit_document(places, _make_block(places.host, default.workspace, given))
    needs = "; it needs a sign-in or key of its own" if given.get(keys.OAUTH.key) else ""
    chosen = _choose(bench)
    return f"hosts.{places.host} was made{needs}{chosen}" + (f"; {left}" if left else "")


def _choose(bench: Workbench) -> str:
    """Choose Honcho if nobody chose a provider, so that the block takes effect; return a note of what was done."""
    named = named_provider(bench.machine.home, bench.machine.env)
    if named is None:
        bench.machine.choose()
        return "; Honcho was chosen there (memory.provider)"
    return "" if named == PROVIDER.default else f"; it is not followed: memory.provider is {named} there"


def _own(bench: Workbench) -> str:
    """Describe what a profile already has; "" if it gets a block."""
    path = bench.machine.places.existing()
    if path == bench.machine.home.path / FILE:
        return f"a file of its own, {path}"
    return "a block" if read_document(path, bench.machine.places).block else ""


def _describe_left_behind(bench: Workbench, workspace: str) -> str:
    """Describe what a used profile leaves in another workspace, and how to return to it; "" for nothing."""
    before, name = bench.load().workspace, bench.profile
    if before == workspace or not bench.machine.home.state_file.exists() or _own(bench):
        return ""
    back = f"`hermes -p {name} memory setup honcho --yes --workspace {before}` goes back to it"
    return f"what {name} knows in the workspace {before} stays there and is not recalled any more; {back}"


def _make_block(host: str, workspace: str, given: Mapping[str, Any]) -> Edit:
    ours = {row.key for row in keys.TABLE} - OWN
    if given.get(keys.OAUTH.key):
        ours.discard(keys.API_KEY.key)  # a grant that two renew is taken away from both

    def edit(block: Block, root: Block) -> None:  # noqa: ARG001
        block.update({name: value for name, value in given.items() if name in ours})
        block |= {keys.WORKSPACE.key: workspace, keys.AI_PEER.key: host}

    return edit


def _own_block(bench: Workbench) -> Mapping[str, Any]:
    """Return the profile's own block, with old key names replaced."""
    block = dict(read_document(bench.machine.places.existing(), bench.machine.places).block)
    move_old_pin(block)
    return block
