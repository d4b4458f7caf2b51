"""How a stock Hermes names things, for homes that both programs use: where ours differs, both are shown."""

from __future__ import annotations

import re

from hermes.honcho.identity import Identities

OTHER = re.compile(r"[^A-Za-z0-9_-]")


def stock_name(raw: str) -> str:
    """Every character that no name may have as one `-`; no hash marks what that loses."""
    return OTHER.sub("-", raw).strip("-")


def stock_peer(who: Identities, user_id: str) -> str:
    """The peer of a platform user there, which has no owner: a pin holds for everyone."""
    if who.pin:
        return who.owner
    return who.aliases.get(user_id) or stock_name(f"{who.prefix}{user_id}")
