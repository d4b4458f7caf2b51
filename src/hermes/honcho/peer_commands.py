"""`hermes honcho peers`: who is who in each profile, and giving someone another peer."""

from __future__ import annotations

from typing import Annotated

import typer

from hermes.errors import HermesError, ProviderError, UsageError
from hermes.honcho import keys
from hermes.honcho.config_file import set_entry
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.extensions import MERGE, Extensions
from hermes.honcho.identity import find_peer
from hermes.honcho.server import find_server, open_client
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
    merge: Annotated[
        bool, typer.Option("--merge", help="Do not ask: what is known of the old peer becomes the new one's.")
    ] = False,
    leave: Annotated[
        bool, typer.Option("--leave", help="Do not ask: what is known of the old peer stays there.")
    ] = False,
) -> None:
    """Let the user OLD be the peer NEW. What becomes of what is known so far is asked, not assumed."""
    bench = find_bench(ctx)
    config = bench.load().checked()
    speaker = Speaker(old, is_owner=any(one.user_id == old and one.is_owner for one in bench.desk.people()))
    before, name = find_peer(config.identities, speaker).name, keys.USER_PEER_ALIASES.parse({old: new}, "NEW")[old]
    if name == config.identities.ai:
        raise UsageError(f"{name} is the agent", hint="Give another name")
    if before == name:
        raise UsageError(f"{old} is {name} already", hint="")
    if merge and leave:
        raise UsageError("--merge and --leave cannot go together", hint="Give one of them")
    is_own = not _is_others(config, before, old)
    if merge and not is_own:
        raise UsageError(f"{before} is not {old} alone: its memory stays", hint="`--leave` makes the alias alone")
    if merge or (not leave and _ask(bench, config, before, name, is_own=is_own) == "merge"):
        _merge(bench, config, before, name)
    bench.save(set_entry(keys.USER_PEER_ALIASES, old, new))
    now = find_peer(bench.load().identities, speaker)
    bench.desk.print_lines([(old, f"{before} → {now.name}")])
    if now.name != name:
        bench.desk.dialog.say(f"The alias has no effect: {old} is {now.name} by {now.rung}.")


def _is_others(config: HonchoConfiguration, peer: str, old: str) -> bool:
    """Whether a peer is the owner, the agent or another id's alias too: then its memory is not one id's to move."""
    who = config.identities
    return peer in (who.owner, who.ai) or any(to == peer for one, to in who.aliases.items() if one != old)


def _ask(bench: Workbench, config: HonchoConfiguration, before: str, name: str, *, is_own: bool) -> str:
    """Say what would move or stay behind, and ask which of the two it shall be."""
    dialog = bench.desk.dialog
    if not dialog.can_ask:
        hint = "`--merge` moves it where the server can, `--leave` leaves it where it is"
        raise UsageError("nobody can be asked here what becomes of the old memory", hint=hint)
    can_merge, known = _look(bench, config, before, name)
    moving = can_merge and is_own
    if not known:
        dialog.say(f"Nothing is known of {before} yet.")
        return "leave"
    dialog.say(f"{known} What is said from now on goes to {name}.")
    options = {
        **({"merge": f"it becomes {name}'s; that can be undone for seven days"} if moving else {}),
        "leave": f"it stays with {before}, where nobody looks for it",
        "stop": "change nothing",
    }
    if not is_own:
        dialog.say(f"{before} is not this id alone, so its memory stays where it is.")
    elif not moving:
        dialog.say("This server cannot merge two peers, so an alias is all there is: it moves nothing.")
    answer = dialog.choose(f"What becomes of what is known of {before}?", options, "merge" if moving else "stop")
    if answer == "stop":
        raise UsageError("nothing was changed", hint="")
    return answer


def _look(bench: Workbench, config: HonchoConfiguration, before: str, name: str) -> tuple[bool, str]:
    """Whether the server can merge, and how much is known of the old peer as far as it can be asked: "" for nothing."""
    try:
        server = Extensions(config, bench.machine)
        if server.has(MERGE):
            found = server.preview_merge(before, name)
            if found is None:
                return True, ""
            return True, f"{before} has {found.messages} messages, and {found.conclusions} conclusions concern it."
        with open_client(config, bench.machine) as client:
            agent = config.identities.ai
            count = client.peer(agent).conclusions_of(before).list(size=1).total
            return False, f"{agent} has {count} conclusions about {before}."
    except HermesError as error:
        return False, f"How much is known of {before} cannot be told now ({error.message})."


def _merge(bench: Workbench, config: HonchoConfiguration, before: str, name: str) -> None:
    server = Extensions(config, bench.machine)
    if not server.has(MERGE):
        raise ProviderError(
            f"{find_server(config).shown} cannot merge two peers, and nothing was changed",
            hint="`--leave` makes the alias alone",
        )
    server.merge(before, name)
    bench.desk.dialog.say(f"What is known of {before} becomes {name}'s, in the background.")
