"""How a stock Hermes names things, for homes that both programs use: where ours differs, both are shown."""

from __future__ import annotations

from pathlib import Path

from hermes.honcho import keys
from hermes.honcho.configuration import HonchoConfiguration
from hermes.honcho.identity import HASHES, Identities, peer_text
from hermes.honcho.names import SessionName, digest, find_repository


def stock_session(config: HonchoConfiguration, named: SessionName, directory: Path) -> str | None:
    """The session of a directory there; None for one that is called the same in both, or has no name there."""
    if named.source not in ("directory", "repository"):
        return None
    repository = find_repository(directory) if named.source == "repository" else None
    name, peer = (repository or directory).name, config.get(keys.PEER_NAME)
    prefix = f"{peer}-" if peer and config.get(keys.SESSION_PEER_PREFIX) else ""
    theirs = peer_text(f"{prefix}{name}") if name else named.name
    return theirs if theirs != named.name else None


def stock_peer(who: Identities, user_id: str) -> str:
    """The peer of a platform user there, which has no owner: a pin holds for everyone. Ids get a hash only behind a
    prefix, and only where a character was replaced or somebody has that name."""
    if who.pin:
        return who.owner
    if user_id in who.aliases:
        return who.aliases[user_id]
    prefix = who.prefix.strip()
    whole = f"{prefix}{user_id}"
    name, taken = peer_text(whole), {who.owner, *who.aliases.values()}
    if not prefix or (name == whole and name not in taken):
        return name
    hashed = [f"{name}-{digest(whole, length)}" for length in HASHES]
    return next((one for one in hashed if one not in taken), hashed[-1])
