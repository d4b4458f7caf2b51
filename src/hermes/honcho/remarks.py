"""Warnings about a configuration: unused keys, file permissions, credentials, and people without a clear peer.
Secrets are never shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hermes.honcho import keys
from hermes.honcho.config_file import others_can_read
from hermes.honcho.configuration import VARIABLE, HonchoConfiguration
from hermes.honcho.grant import read_time
from hermes.honcho.identity import Identities, everybody
from hermes.honcho.server import configured_server, find_server
from hermes.memory.provider import Acquaintance
from hermes.redaction import hide_url

MAX_NAMED = 5
"""People or sessions that a warning names."""
MINUTE_SECONDS = 60


def unmarked(people: Sequence[Acquaintance]) -> list[Acquaintance]:
    """Return the people of whom nobody has said whether they are the owner."""
    return [one for one in people if not one.is_marked]


def all_remarks(config: HonchoConfiguration, people: Sequence[Acquaintance]) -> list[str]:
    """Return all warnings, a line each."""
    return [
        *_unused_remarks(config),
        *config.remarks,
        *_file_remarks(config),
        *_server_remarks(config),
        *_auth_remarks(config),
        *_pin_remarks(config.identities, people),
        *_shared_remarks(config.identities, people),
        *_mixed_remarks(config),
    ]


def _server_remarks(config: HonchoConfiguration) -> list[str]:
    """Warn of keys that are configured but not sent, and of an unencrypted connection."""
    server = find_server(config)
    if not server.is_overheard:
        return config.withheld
    what, shown = "the key and what is said" if server.key else "what is said", hide_url(server.url)
    return [*config.withheld, f"{shown} is not encrypted: {what} can be read on the way there; https would hide it"]


def _unused_remarks(config: HonchoConfiguration) -> list[str]:
    """Warn of a configured server that is not used because nobody chose Honcho."""
    meant = configured_server(config)
    if config.is_chosen or meant.kind == "embedded":
        return []
    named = (row for row in (keys.BASE_URL, keys.API_KEY, keys.ENVIRONMENT) if config.settings.is_given(row))
    where = ", ".join(dict.fromkeys(config.settings.where(row) for row in named))
    return [
        f"{where} means Honcho ({meant.shown}), but nobody chose Honcho here: nothing is sent there, our own memory "
        "server is used. `hermes config set memory.provider honcho` chooses it"
    ]


def _file_remarks(config: HonchoConfiguration) -> list[str]:
    secret = any(one.layer != VARIABLE for one in config.given_keys) or config.settings.is_given(keys.OAUTH)
    if config.file is None or not secret or not others_can_read(config.file):
        return []
    return [f"{config.file} holds a key and can be read by other users: chmod 600 {config.file}"]


def _pin_remarks(who: Identities, people: Sequence[Acquaintance]) -> list[str]:
    """Warn of accounts that a pin leaves out because nobody has said whose they are."""
    strangers = [one for one in unmarked(people) if one.user_id not in who.aliases]
    if not who.pin or who.pin_guests or not strangers:
        return []
    names = ", ".join(one.who for one in strangers[:MAX_NAMED])
    more = f" and {len(strangers) - MAX_NAMED} more" if len(strangers) > MAX_NAMED else ""
    return [
        f"pinUserPeer takes your own accounts for {who.owner}, but nobody has said whose {names}{more} is: what is "
        f"written there goes to a peer of its own. `hermes gateway people --me {strangers[0].who}` says that it is "
        "yours, --guest that it is not"
    ]


def _shared_remarks(who: Identities, people: Sequence[Acquaintance]) -> Iterator[str]:
    """Warn of unmarked accounts that share a peer with somebody."""
    if who.pin and who.pin_guests:
        yield f"pinGuests files what guests say under your own peer {who.owner}: each reads their conversation alone"
        return
    shared = [(one, peer) for one, peer in everybody(who, people) if peer.is_shared]
    for one, peer in shared[:MAX_NAMED]:
        is_yours = who.is_owners(peer.name)
        whose = f"your own peer {peer.name}" if is_yours else f"{peer.name}, which is someone else's peer"
        mark = f"If it is you: `hermes gateway people --me {one.who}`; else" if is_yours else "If it is not,"
        yield (
            f"is this right? userPeerAliases puts {one.who} on {whose}; until you say who it is, it reads its own "
            f"conversation alone. {mark} give it a name of its own: `hermes honcho peers map {one.who} NAME`"
        )
    if len(shared) > MAX_NAMED:
        yield f"{len(shared) - MAX_NAMED} more accounts share a peer: `hermes honcho peers` lists them"


def _mixed_remarks(config: HonchoConfiguration) -> Iterator[str]:
    """Warn of sessions and peers in which an earlier version mixed people."""
    mixed = config.guests.mixed
    for session, accounts in list(mixed.items())[:MAX_NAMED]:
        who = ", ".join(dict.fromkeys(accounts.values()))
        yield (
            f"the Honcho session {session} holds words of several people since an earlier version ({who}): it stays "
            "yours, and they have a new one"
        )
    if len(mixed) > MAX_NAMED:
        yield f"{len(mixed) - MAX_NAMED} more Honcho sessions hold words of several people"
    for move in config.guests.moves[:MAX_NAMED]:
        yield (
            f"what {move.to} said in the Honcho session {move.session} is filed under {move.peer} since an earlier "
            "version; our own memory server puts that right when it is reached, another one cannot"
        )


def describe_auth(config: HonchoConfiguration, now: float) -> str:
    """Describe the credentials for the server in force."""
    server = find_server(config)
    if server.kind == "embedded":
        return "a key of its own, made at each start"
    origin = config.settings.origin(keys.API_KEY)
    where = f"variable {keys.API_KEY.env}" if origin == VARIABLE else origin
    used = f"API key ({where})" if config.grant is None else f"{describe_grant(config.grant, now)}, {where}"
    withheld = "; ".join(config.withheld)
    return ("; " if server.key else ": ").join(filter(None, (used if server.key else "none", withheld)))


def describe_grant(grant: Mapping[str, object], now: float) -> str:
    """Describe a sign-in: its client and its validity."""
    if (ends := read_time(grant.get("expiresAt"))) is None:
        validity = "token of unknown age"
    else:
        validity = f"token valid {max(1, round((ends - now) / MINUTE_SECONDS))}m" if ends > now else "expired"
    return f"OAuth ({grant.get('clientId', 'unknown client')}, {validity})"


def _auth_remarks(config: HonchoConfiguration) -> Iterator[str]:
    """Warn of a sign-in that is not used, and of one that another program renews."""
    if find_server(config).kind == "embedded":
        return
    where, used = config.settings.where, config.get(keys.API_KEY)
    if config.get(keys.OAUTH) is not None and config.grant is None:
        beside = where(keys.API_KEY) == where(keys.OAUTH)
        why = "apiKey beside it is an API key" if beside else f"apiKey comes from {where(keys.API_KEY)}"
        yield f"{where(keys.OAUTH)}: the sign-in is not used: {why if used else 'its token in apiKey is not sent'}"
    if config.grant is not None and config.has_foreign_sign_in:
        yield (
            f"the sign-in at the root of {config.file} is another program's and is not renewed here; "
            "`hermes honcho login` makes one of this profile's own"
        )
