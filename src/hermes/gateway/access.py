"""Access control: an allow-list, and people whom the owner has confirmed. A stranger gets one reply that explains how
to ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.gateway.platform import Inbound
from hermes.store import inbox
from hermes.store.inbox import first_chat_id
from hermes.store.people import meet

PAIRING_CODE_ALPHABET = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Excludes letters and digits that look alike."""

PAIRING_CODE_CHARS = 8


class Verdict(Struct, frozen=True):
    """The decision on one author. `refusal` is the reply to a stranger, sent for the first message only."""

    kind: Literal["welcome", "refused", "ignored"]
    refusal: str = ""


class Access(Struct, frozen=True):
    """The access rules of one gateway. `allow` holds `platform:user id`, `platform:chat id`, `platform:*` or `*`."""

    allow: frozenset[str]
    agents: frozenset[str]
    """Other programs that may talk in groups, as `platform:user id`."""
    choose: Callable[[str], str]

    def judge(self, tx: Tx, message: Inbound, *, now: float) -> Verdict:
        """Decide whether the author of a message may talk. Runs in the transaction that would accept the message."""
        platform, user = message.chat.platform, message.author_id
        if message.author_is_agent:
            is_heard = f"{platform}:{user}" in self.agents and message.chat.chat_type != "dm"
            return Verdict("welcome" if is_heard else "ignored")
        if message.chat.chat_type == "api" or self._listed(tx, message):
            # Whoever writes in a direct chat is listed, so that the owner can say who it is; a client of the API may
            # call people what it likes.
            if message.chat.chat_type == "dm" and user is not None:
                meet(tx, platform, user, message.author_name or "")
            return Verdict("welcome")
        if user is None:
            return Verdict("ignored")
        known = inbox.find_pairing(tx, platform, user)
        if known is not None:
            return Verdict("welcome" if known.state == "allowed" else "ignored")
        if message.chat.chat_type != "dm":
            return Verdict("ignored")
        code = "".join(self.choose(PAIRING_CODE_ALPHABET) for _ in range(PAIRING_CODE_CHARS))
        inbox.ask_pairing(tx, platform, user, message.author_name or user, code, now=now)
        return Verdict(
            "refused",
            "This assistant is private. If you know its owner, ask them to run "
            f"`hermes gateway pair {code}` and write again.",
        )

    def _listed(self, tx: Tx, message: Inbound) -> bool:
        """Return True if the allow-list names the author or the chat, also by the id that the chat had before it
        moved."""
        platform, chat_id = message.chat.platform, message.chat.chat_id
        ids = {message.author_id, message.author_alt, chat_id, first_chat_id(tx, platform, chat_id)} - {None}
        return bool(self.allow & {"*", f"{platform}:*", *(f"{platform}:{one}" for one in ids)})
