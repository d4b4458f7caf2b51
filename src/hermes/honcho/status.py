"""`hermes honcho status`: every key with its value and source, the server, the people and the session.

For homes that a stock Hermes uses too, names that it would choose differently are shown as well."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hermes.clock import SystemClock
from hermes.honcho import keys
from hermes.honcho.addresses import session_name
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.identity import HASH_LENGTHS, Identities, find_peer, peer_text
from hermes.honcho.names import SessionName, digest, find_repository
from hermes.honcho.remarks import all_remarks, describe_auth
from hermes.honcho.server import describe_server, find_server
from hermes.honcho.workbench import Workbench, current_directory, find_bench, origin, shown, value_of
from hermes.memory.provider import Acquaintance, Conversation, Speaker
from hermes.settings.layers import DEFAULT
from hermes.types import Json

LISTED = {keys.USER_PEER_ALIASES.key: "peers", keys.SESSIONS.key: "sessions"}
"""Maps that can be long, with the `hermes honcho` command that lists each."""
STATUS_TIMEOUT_SECONDS = 3.0
"""The server's time limit to answer."""


def status(
    ctx: typer.Context,
    everyone: Annotated[bool, typer.Option("--all", help="All profiles, a line each.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """Show every key in force with its source, the server, the people, and the session's name here."""
    bench = find_bench(ctx)
    if everyone:
        return _show_all(bench, as_json=json)
    config, found = look(bench)
    if json:
        bench.console.print_json(found)
    else:
        _print(bench, config, found)
    return 1 if config.problems else 0


def look(bench: Workbench) -> tuple[HonchoConfiguration, dict[str, Json]]:
    """Return everything about one profile. Read-only, also on the server."""
    config = bench.load()
    now, directory, people = SystemClock().now(), current_directory(), bench.console.people()
    named = _session_here(config, directory)
    return config, {
        "profile": bench.profile,
        "host": config.host,
        "file": None if config.file is None else str(config.file),
        "problems": [problem.message for problem in config.problems],
        "remarks": all_remarks(config, people),
        "server": find_server(config).shown,
        "connection": describe_server(config, bench.machine, STATUS_TIMEOUT_SECONDS),
        "auth": describe_auth(config, now),
        "workspace": config.workspace,
        "you": config.identities.owner,
        "agent": config.identities.ai,
        "session_here": None if named is None else named.name,
        "session_here_by": "session id" if named is None else named.source,
        "session_here_in_stock": (
            None if named is None or directory is None else stock_session(config, named, directory)
        ),
        "projects": dict(config.projects.workspaces),
        "people": [_person(config, one) for one in people],
        "keys": {
            row.key: {
                "value": value_of(config, row),
                "from": config.settings.origin(row),
                "where": config.settings.where(row),
            }
            for row in keys.TABLE
        },
    }


def _session_here(config: HonchoConfiguration, directory: Path | None) -> SessionName | None:
    if config.naming.strategy == "per-session" or directory is None:
        return None
    return session_name(config, Conversation("", "cli", "everything", Speaker(is_owner=True), directory=directory))


def _person(config: HonchoConfiguration, one: Acquaintance) -> dict[str, Json]:
    speaker = Speaker(one.user_id, is_owner=one.is_owner)
    peer = find_peer(config.identities, speaker, None, one.platform)
    theirs = stock_peer(config.identities, one.user_id)
    role = "owner" if one.is_owner else "guest"
    return {
        "who": one.who,
        "name": one.name,
        "is": role if one.is_marked else "not marked",
        "peer": peer.name,
        "by": peer.rung,
        "peer_in_stock": theirs if theirs != peer.name else None,
    }


def _print(bench: Workbench, config: HonchoConfiguration, found: dict[str, Json]) -> None:
    console, session, in_stock = bench.console, found["session_here"], found["session_here_in_stock"]
    for problem in found["problems"]:
        console.dialog.say(f"Problem: {problem}")
    switched = config.get(keys.ENABLED)
    console.print_lines(
        [
            ("profile", f"{found['profile']}, host block {config.host}"),
            ("file", found["file"] or "none yet; the defaults are in force"),
            ("Honcho", "switched off (`hermes honcho enable`)" if switched is False else "on"),
            *((name, found[name]) for name in ("server", "connection", "auth", "workspace", "you", "agent")),
            ("session here", f"{session} (by {found['session_here_by']})" if session else "the id of each session"),
            *([("", f"a stock Hermes calls it {in_stock}")] if in_stock else []),
            *(("project", f"{name}: {_count(chats, 'chat')}") for name, chats in config.projects.workspaces.items()),
        ]
    )
    for line in found["remarks"]:
        console.dialog.say(f"Note: {line}")
    if people := found["people"]:
        columns = ("who", "peer", "by", "is")
        console.print_table(columns, [[one[name] for name in columns] for one in people])
        for one in people:
            if one["peer_in_stock"]:
                console.dialog.say(f"A stock Hermes takes {one['who']} for {one['peer_in_stock']}.")
    # What somebody set comes first: the rest is as it is everywhere.
    rows = sorted(keys.TABLE, key=lambda row: config.settings.origin(row) == DEFAULT)
    console.print_table(("key", "value", "from"), [(row.key, _brief(config, row), origin(config, row)) for row in rows])


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _brief(config: HonchoConfiguration, row: keys.Key[Json]) -> str:
    """Return a key's value for a table cell: for long maps the count and the command that lists them."""
    count = len(config.get(row)) if row.key in LISTED else 0
    return f"{count}: see `{LISTED[row.key]}`" if count else shown(config, row)


def _show_all(bench: Workbench, *, as_json: bool) -> int:
    """Print a line for each profile; return 1 if one of them has a problem."""
    found = [(one, one.load()) for one in bench.profiles()]
    code = int(any(config.problems for _, config in found))
    if as_json:
        bench.console.print_json([look(bench.of_profile(one.profile))[1] for one, _ in found])
        return code
    rows = [
        (
            one.profile,
            config.identities.ai,
            config.identities.owner,
            config.workspace,
            "broken" if config.problems else find_server(config).kind,
        )
        for one, config in found
    ]
    bench.console.print_table(("profile", "agent", "you", "workspace", "server"), rows)
    for one, config in found:
        for problem in config.problems:
            bench.console.dialog.say(f"{one.profile}: {problem.message}")
    return code


def stock_session(config: HonchoConfiguration, named: SessionName, directory: Path) -> str | None:
    """Return the session's name that a stock Hermes gives a directory; None if it is the same or unknown."""
    if named.source not in ("directory", "repository"):
        return None
    repository = find_repository(directory) if named.source == "repository" else None
    name, peer = (repository or directory).name, config.get(keys.PEER_NAME)
    prefix = f"{peer}-" if peer and config.get(keys.SESSION_PEER_PREFIX) else ""
    theirs = peer_text(f"{prefix}{name}") if name else named.name
    return theirs if theirs != named.name else None


def stock_peer(who: Identities, user_id: str) -> str:
    """Return the peer that a stock Hermes gives a platform user. It knows no owner: a pin applies to everyone, and
    ids get a hash only with a prefix, if a character was replaced or the name is taken."""
    if who.pin:
        return who.owner
    if user_id in who.aliases:
        return who.aliases[user_id]
    prefix = who.prefix.strip()
    whole = f"{prefix}{user_id}"
    name, taken = peer_text(whole), {who.owner, *who.aliases.values()}
    if not prefix or (name == whole and name not in taken):
        return name
    hashed = [f"{name}-{digest(whole, length)}" for length in HASH_LENGTHS]
    return next((one for one in hashed if one not in taken), hashed[-1])
