"""`hermes honcho peers map` without arguments: choose an account, then the peer that it maps to."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.errors import HermesError, UsageError
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.extensions import Extensions
from hermes.honcho.identity import everybody
from hermes.honcho.workbench import Workbench
from hermes.memory.provider import Acquaintance
from hermes.types import Json

MAX_LISTED = 50
"""Accounts, and peers, that are offered; others can be given as arguments."""
NEW, NAMED = "new", "hermes honcho peers map ACCOUNT NAME"


def choose_mapping(
    bench: Workbench, config: HonchoConfiguration, people: Sequence[Acquaintance], old: str | None
) -> tuple[str, str]:
    """Ask for an account, unless one is given, and for its new peer. Raises UsageError if nobody can answer."""
    dialog = bench.desk.dialog
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
        bench.desk.dialog.say(f"The workspace's peers cannot be listed now ({error.message}).")
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
