"""How a stock Hermes names things, for homes that both programs use: where ours differs, both are shown."""

from __future__ import annotations

from hermes.honcho.identity import Identities, find_peer, peer_text
from hermes.memory.provider import Speaker


def stock_directory(name: str) -> str:
    """The session of a directory there."""
    return peer_text(name)


def stock_peer(who: Identities, user_id: str) -> str:
    """The peer of a platform user there, which has no owner: a pin holds for everyone. Ids get a hash only behind a
    prefix."""
    if who.pin:
        return who.owner
    if user_id in who.aliases:
        return who.aliases[user_id]
    return find_peer(who, Speaker(user_id)).name if who.prefix else peer_text(user_id)
