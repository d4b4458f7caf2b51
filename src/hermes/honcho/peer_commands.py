"""`hermes honcho peers`: list the peers of people and agents, and map an account to another peer.

`hermes honcho peers map` without arguments: choose an account, then the peer that it maps to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec import Struct
from msgspec.structs import replace

from hermes.errors import HermesError, ProviderError, UsageError
from hermes.honcho import keys
from hermes.honcho.config_file import set_entry
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.extensions import MERGE, Extensions
from hermes.honcho.guests import account_name
from hermes.honcho.identity import Identities, describe_reach, everybody, find_peer, parse_account
from hermes.honcho.names import CLIENT_PLATFORMS
from hermes.honcho.server import Machine, find_server, open_client
from hermes.honcho.workbench import Workbench, find_bench
from hermes.memory.provider import Acquaintance, MappingPreview, Speaker
from hermes.types import Json

MAX_LISTED = 50
"""Accounts, and peers, that are offered; others can be given as arguments."""
NEW, NAMED = "new", "hermes honcho peers map ACCOUNT NAME"


def choose_mapping(
    bench: Workbench, config: HonchoConfiguration, people: Sequence[Acquaintance], old: str | None
) -> tuple[str, str]:
    """Ask for an account, unless one is given, and for its new peer. Raises UsageError if nobody can answer."""
    dialog = bench.console.dialog
    if not dialog.can_ask:
        raise UsageError("nobody can be asked which account and which peer", hint=f"Give both: `{NAMED}`")
    peers = _workspace_peers(bench, config)
    accounts = everybody(config.identities, people)[:MAX_LISTED]
    if old is None and not accounts:
        raise UsageError("no account of a chat platform is known", hint=f"Give one: `{NAMED}`")
    if old is None:
        options = {one.who: f"{one.name} is {_described(peer.name, peers)}".strip() for one, peer in accounts}
        old = dialog.choose("Which account?", options, accounts[0][0].who)
    now = next((peer.name for one, peer in accounts if old in (one.who, one.user_id)), "")
    options = {
        NEW: "a name of its own, which is asked next",
        **{name: _change(config, name, old) for name in peers or () if name not in (now, config.identities.ai)},
    }
    name = dialog.choose(f"Which peer is {old} from now on?", options, NEW)
    return old, dialog.ask("Name") if name == NEW else name


def _workspace_peers(bench: Workbench, config: HonchoConfiguration) -> list[str] | None:
    """Return the peers of the workspace; None if the server cannot list them."""
    try:
        server = Extensions(config, bench.machine)
        found: Json = server.ask("POST", f"{server.workspace}/peers/list?size={MAX_LISTED}", missing={}, json={})
    except HermesError as error:
        bench.console.dialog.say(f"The workspace's peers cannot be listed now ({error.message}).")
        return None
    items = found.get("items") if isinstance(found, dict) else None
    return sorted(str(one["id"]) for one in items or () if isinstance(one, dict) and "id" in one)


def _described(peer: str, peers: Sequence[str] | None) -> str:
    if peers is None:
        return peer
    return f"{peer}, which exists" if peer in peers else f"{peer}, which does not exist yet"


def _change(config: HonchoConfiguration, name: str, old: str) -> str:
    """Describe the effect of putting an account on a peer."""
    if name == config.identities.owner:
        return f"your own: {old} would be you, and read all that is known of you"
    return f"what {old} says goes there from now on, and what is known of {name} is recalled for it"


peers = typer.Typer(help="Who is who in each profile, and giving someone another peer.", rich_markup_mode=None)


@peers.callback(invoke_without_command=True)
def show_peers(
    ctx: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show you and the agent in every profile, and the peer of each chat account."""
    if ctx.invoked_subcommand is not None:
        return
    bench = find_bench(ctx)
    found = [(one.profile, one.load()) for one in bench.profiles()]
    config = bench.load()
    people = everybody(config.identities, bench.console.people())
    if json:
        profiles = [
            {"profile": name, "workspace": c.workspace, "you": c.identities.owner, "agent": c.identities.ai}
            for name, c in found
        ]
        known = [
            {"who": one.who, "name": one.name, "peer": peer.name, "by": peer.rung, "reads": describe_reach(one, peer)}
            for one, peer in people
        ]
        bench.console.print_json({"profiles": profiles, "aliases": dict(config.identities.aliases), "people": known})
        return
    bench.console.print_table(
        ("profile", "workspace", "you", "agent"),
        [(name, c.workspace, c.identities.owner, c.identities.ai) for name, c in found],
    )
    for name, c in found:
        for problem in c.problems:
            bench.console.dialog.say(f"{name}: {problem.message}")
    if people:
        rows = [(one.who, peer.name, peer.rung, describe_reach(one, peer), one.name) for one, peer in people]
        bench.console.print_table(("who", "peer", "by", "reads", "name"), rows)
    if config.identities.aliases:
        bench.console.print_table(("id", "alias of"), sorted(config.identities.aliases.items()))


@peers.command("map")
def map_peer(
    ctx: typer.Context,
    old: Annotated[
        str | None,
        typer.Argument(
            help="The id of a platform user; PLATFORM:ID where two platforms have the same. Without it, it is asked."
        ),
    ] = None,
    new: Annotated[str | None, typer.Argument(help="The peer that it is from now on. Without it, it is asked.")] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Do not ask: what is known of the old peer becomes the new one's.")
    ] = False,
    leave: Annotated[
        bool, typer.Option("--leave", help="Do not ask: what is known of the old peer stays there.")
    ] = False,
    me: Annotated[
        bool, typer.Option("--me", help="Do not ask: the account is yours. Needed where NEW is your own peer.")
    ] = False,
) -> None:
    """Map the user OLD to the peer NEW. Existing memory moves or stays as you choose."""
    bench = find_bench(ctx)
    config = bench.load().checked()
    people = bench.console.people()
    if old is None or new is None:
        old, new = choose_mapping(bench, config, people, old)
    wanted = _plan(config, people, old, new)
    if merge and leave:
        raise UsageError("--merge and --leave cannot go together", hint="Give one of them")
    if merge and not wanted.is_own:
        hint = "`--leave` makes the alias alone"
        raise UsageError(f"{wanted.before} is not {wanted.old} alone: its memory stays", hint=hint)
    if wanted.makes_owner:
        _check_owner(bench, wanted.account, wanted.old, wanted.name, me=me)
    if merge or (not leave and _ask(bench, config, wanted) == "merge"):
        _merge(bench, config, wanted.before, wanted.name)
    speaker = Speaker(wanted.account.user_id, is_owner=wanted.is_owner or wanted.makes_owner)
    if wanted.makes_owner:
        bench.console.mark_owner([wanted.account])
    bench.save(set_entry(keys.USER_PEER_ALIASES, wanted.old, new))
    now = find_peer(bench.load().identities, speaker, None, wanted.account.platform or None)
    bench.console.print_lines([(wanted.old, f"{wanted.before} → {now.name}")])
    if now.name != wanted.name:
        bench.console.dialog.say(f"The alias has no effect: {wanted.old} is {now.name} by {now.rung}.")


class PlannedMapping(Struct, frozen=True):
    """A validated mapping: the account, the id that its alias gets, and the new peer."""

    old: str
    account: Acquaintance
    is_owner: bool
    before: str
    name: str
    is_own: bool
    """Whether the old peer belongs to this account alone, so that its memory can move."""
    makes_owner: bool


def _plan(config: HonchoConfiguration, people: Sequence[Acquaintance], old: str, new: str) -> PlannedMapping:
    """Plan the effect of an alias. Raises UsageError if it is refused or changes nothing."""
    who = config.identities
    platform, user_id = parse_account(who, old, people)
    if config.guests.first not in (None, platform):
        old = account_name(platform or "", user_id)
    account = Acquaintance(platform or "", user_id)
    is_owner = any(one.is_owner and one.who == account.who for one in people)
    before = find_peer(who, Speaker(user_id, is_owner=is_owner), None, platform).name
    name = keys.USER_PEER_ALIASES.parse({old: new}, "NEW")[old]
    _refuse_others(who, account, old, name, is_owner=is_owner)
    if before == name:
        raise UsageError(f"{old} is {name} already", hint="")
    is_own = not _is_others(config, before, old)
    return PlannedMapping(old, account, is_owner, before, name, is_own, name == who.owner and not is_owner)


def preview(machine: Machine, people: Sequence[Acquaintance], old: str, new: str) -> MappingPreview:
    """Return what an alias would change. Raises UsageError as `map_peer` does."""
    config = machine.load().checked()
    wanted = _plan(config, people, old, new)
    can_merge, known = _preview_known(machine, config, wanted.before, wanted.name)
    merges = can_merge and wanted.is_own and bool(known)
    return MappingPreview(wanted.old, wanted.before, wanted.name, known, merges, wanted.makes_owner)


def _refuse_others(who: Identities, account: Acquaintance, old: str, name: str, *, is_owner: bool) -> None:
    """Raise UsageError for a peer of an agent or another person: an alias must not give access to other people's
    memory."""
    if name != who.owner and who.is_own(name) and not (is_owner and name != who.ai):
        raise UsageError(
            f"{name} is the agent, or a name of another profile's agent or owner", hint="Give another name"
        )
    mapped = replace(who, aliases={**who.aliases, old: name})
    found = find_peer(mapped, Speaker(account.user_id, is_owner=is_owner), None, account.platform or None)
    if found.is_shared and name != who.owner:
        others = ", ".join(sorted(who.guests.holders.get(name, set()) - {account.who}))
        raise UsageError(
            f"{name} is the peer of {others}: {old} would read what they said",
            hint=f"If both are one person, give them one new name: `hermes honcho peers map {old} NAME` and "
            f"`hermes honcho peers map {others.split(', ')[0]} NAME`",
        )


def _check_owner(bench: Workbench, account: Acquaintance, old: str, name: str, *, me: bool) -> None:
    """Ask whether an account that would become the owner's peer belongs to the owner. Raises UsageError if not."""
    if not account.platform:
        hint = "Write PLATFORM:ID, for example telegram:7654321"
        raise UsageError(f"{name} is your own peer, and nobody knows whose account {old} is", hint=hint)
    if account.platform in CLIENT_PLATFORMS:
        hint = "`api.users` says whether the users of API clients are you or guests"
        raise UsageError(f"{name} is your own peer, and {old} is a user of an API client", hint=hint)
    question = f"{name} is your own peer. Is {account.who} you? Who says yes lets it read all that is known of you."
    dialog = bench.console.dialog
    if not me and dialog.can_ask:
        me = dialog.choose(question, {"yes": "it is my account", "no": "it is somebody else's"}, "no") == "yes"
    if not me:
        hint = "`--me` says that it is; somebody else's account gets a name of its own"
        raise UsageError(f"{name} is your own peer, and nobody said that {account.who} is you", hint=hint)


def _is_others(config: HonchoConfiguration, peer: str, old: str) -> bool:
    """Return True if a peer is the owner, the agent or another id's alias too, so that its memory cannot move."""
    who = config.identities
    return peer in (who.owner, who.ai) or any(to == peer for one, to in who.aliases.items() if one != old)


def _ask(bench: Workbench, config: HonchoConfiguration, wanted: PlannedMapping) -> str:
    """Say what would move or stay, and ask which. Returns "merge" or "leave"; raises UsageError for "stop"."""
    dialog, before, name = bench.console.dialog, wanted.before, wanted.name
    if not dialog.can_ask:
        hint = "`--merge` moves it where the server can, `--leave` leaves it where it is"
        raise UsageError("nobody can be asked here what becomes of the old memory", hint=hint)
    can_merge, known = _preview_known(bench.machine, config, before, name)
    moving = can_merge and wanted.is_own
    if not known:
        dialog.say(f"Nothing is known of {before} yet.")
        return "leave"
    dialog.say(f"{known} What is said from now on goes to {name}.")
    options = {
        **({"merge": f"it becomes {name}'s; that can be undone for seven days"} if moving else {}),
        "leave": f"it stays with {before}, where nobody looks for it",
        "stop": "change nothing",
    }
    if not wanted.is_own:
        dialog.say(f"{before} is not this id alone, so its memory stays where it is.")
    elif not moving:
        dialog.say("This server cannot merge two peers, so an alias is all there is: it moves nothing.")
    answer = dialog.choose(f"What becomes of what is known of {before}?", options, "merge" if moving else "stop")
    if answer == "stop":
        raise UsageError("nothing was changed", hint="")
    return answer


def _preview_known(machine: Machine, config: HonchoConfiguration, before: str, name: str) -> tuple[bool, str]:
    """Return whether the server can merge, and a sentence on what it knows about the old peer; "" for nothing."""
    try:
        server = Extensions(config, machine)
        if server.has(MERGE):
            # A new name is no peer yet; how much would move is the same for every other one.
            found = server.preview_merge(before, name) or server.preview_merge(before, config.identities.ai)
            if found is None:
                return True, ""
            return True, f"{before} has {found.messages} messages, and {found.conclusions} conclusions concern it."
        with open_client(config, machine) as client:
            agent = config.identities.ai
            count = client.peer(agent).conclusions_of(before).list(size=1).total
            return False, f"{agent} has {count} conclusions about {before}."
    except HermesError as error:
        return False, f"It is unknown now how much the server knows about {before} ({error.message})."


def _merge(bench: Workbench, config: HonchoConfiguration, before: str, name: str) -> None:
    server = Extensions(config, bench.machine)
    if not server.has(MERGE):
        raise ProviderError(
            f"{find_server(config).shown} cannot merge two peers, and nothing was changed",
            hint="`--leave` makes the alias alone",
        )
    server.merge(before, name)
    bench.console.dialog.say(f"What is known of {before} becomes {name}'s, in the background.")
