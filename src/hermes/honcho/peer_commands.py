"""`hermes honcho peers`: who is who in each profile, and giving someone another peer."""

from __future__ import annotations

from typing import Annotated

import typer

from hermes.errors import HermesError, UsageError
from hermes.honcho import keys
from hermes.honcho.changes import set_entry
from hermes.honcho.configuration import Configuration
from hermes.honcho.identity import find_peer, peer_text
from hermes.honcho.server import open_client
from hermes.honcho.workbench import Workbench, find_bench
from hermes.memory.provider import Speaker

peers = typer.Typer(help="Who is who in each profile, and giving someone another peer.", rich_markup_mode=None)


@peers.callback(invoke_without_command=True)
def show_peers(
    ctx: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """You and the agent in every profile, and who on chat platforms is which peer."""
    if ctx.invoked_subcommand is not None:
        return
    bench = find_bench(ctx)
    found = [(one.profile, one.load()) for one in bench.profiles()]
    config = bench.load()
    people = [
        (one, find_peer(config.identities, Speaker(one.user_id, is_owner=one.is_owner))) for one in bench.desk.people()
    ]
    if json:
        profiles = [
            {"profile": name, "workspace": c.workspace, "you": c.identities.owner, "agent": c.identities.ai}
            for name, c in found
        ]
        known = [{"who": one.who, "name": one.name, "peer": peer.name, "by": peer.rung} for one, peer in people]
        bench.desk.print_json({"profiles": profiles, "aliases": dict(config.identities.aliases), "people": known})
        return
    bench.desk.print_table(
        ("profile", "workspace", "you", "agent"),
        [(name, c.workspace, c.identities.owner, c.identities.ai) for name, c in found],
    )
    for name, c in found:
        for problem in c.problems:
            bench.desk.dialog.say(f"{name}: {problem.message}")
    if people:
        rows = [(one.who, peer.name, peer.rung, one.name) for one, peer in people]
        bench.desk.print_table(("who", "peer", "by", "name"), rows)
    if config.identities.aliases:
        bench.desk.print_table(("id", "alias of"), sorted(config.identities.aliases.items()))


@peers.command("map")
def map_peer(
    ctx: typer.Context,
    old: Annotated[str, typer.Argument(help="The id of a platform user, as the platform gives it.")],
    new: Annotated[str, typer.Argument(help="The peer that it is from now on.")],
    leave: Annotated[
        bool, typer.Option("--leave", help="Do not ask: what is known of the old peer stays there.")
    ] = False,
) -> None:
    """Let the user OLD be the peer NEW. What becomes of what is known so far is asked, not assumed."""
    bench = find_bench(ctx)
    config = bench.load().checked()
    before, name = find_peer(config.identities, Speaker(old)).name, peer_text(new)
    if before == name:
        raise UsageError(f"{old} is {name} already", hint="")
    if not leave:
        _ask(bench, config, before, name)
    bench.save(set_entry(keys.USER_PEER_ALIASES, old, new))
    bench.desk.print_lines([(old, f"{before} → {name}")])


def _ask(bench: Workbench, config: Configuration, before: str, name: str) -> None:
    """Say what would stay behind, and go on only when the person wants that."""
    dialog = bench.desk.dialog
    if not dialog.can_ask:
        hint = "`--leave` leaves it where it is"
        raise UsageError("nobody can be asked here what becomes of the old memory", hint=hint)
    dialog.say(f"{_known(bench, config, before)} What is said from now on goes to {name}.")
    dialog.say("This server cannot merge two peers, so an alias is all there is: it moves nothing.")
    options = {
        "leave": f"make the alias; what is known of {before} stays there, where nobody looks for it",
        "stop": "change nothing",
    }
    if dialog.choose(f"What becomes of what is known of {before}?", options, "stop") == "stop":
        raise UsageError("nothing was changed", hint="")


def _known(bench: Workbench, config: Configuration, peer: str) -> str:
    """How much the agent has concluded about a peer, as far as the server can be asked."""
    agent = config.identities.ai
    try:
        with open_client(config, bench.machine) as client:
            count = client.peer(agent).conclusions_of(peer).list(size=1).total
    except HermesError as error:
        return f"How much is known of {peer} cannot be told now ({error.message})."
    return f"{agent} has {count} conclusions about {peer}."
