"""Who is who on a gateway: just me, me with my accounts pooled and others, or others only."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.errors import UsageError
from hermes.honcho import keys
from hermes.honcho.interview import Interview
from hermes.honcho.remarks import unmarked
from hermes.memory.provider import Acquaintance

JUST_ME, POOLED, OTHERS, EDIT = "just-me", "pooled", "others", "e"
TREE = {
    JUST_ME: "nobody else: all your accounts are one peer",
    POOLED: "me, with my accounts pooled into one peer, and others with a peer each",
    OTHERS: "others only, or everyone apart: a peer for each account",
    EDIT: "edit the keys themselves",
}
UNPINNED = (
    "Taking the pin away moves nothing: what is known so far stays with {owner}, and accounts that are not yours begin "
    "with an empty peer. Aliases keep accounts on {owner}: `pooled` makes them for your own."
)


def ask_gateway(interview: Interview, people: Sequence[Acquaintance]) -> list[Acquaintance]:
    """Ask who talks to the gateway. Those who are the owner's accounts and are not marked so yet."""
    standing = _standing(interview)
    chosen = interview.option("identity") or (
        interview.dialog.choose("Who talks to this gateway?", TREE, standing) if interview.asks else None
    )
    if chosen is None:
        return []
    if chosen not in TREE:
        raise UsageError(f"'{chosen}' is no way to tell people apart", hint=f"There are {', '.join(list(TREE)[:-1])}")
    if chosen == EDIT:
        _edit(interview)
        return []
    interview.put(keys.PIN_USER_PEER, chosen == JUST_ME)
    _warn_of_unpinning(interview)
    if chosen == OTHERS:
        interview.text(keys.RUNTIME_PEER_PREFIX, keys.RUNTIME_PEER_PREFIX.help, "prefix")
        return []
    owner = interview.value(keys.PEER_NAME) or interview.config.identities.owner
    interview.put(keys.PEER_NAME, owner)
    mine = _ask_mine(interview, unmarked(people), default_all=chosen == JUST_ME)
    if chosen == POOLED:
        ids = [one.user_id for one in (*mine, *(one for one in people if one.is_owner))]
        interview.put(keys.USER_PEER_ALIASES, {**interview.value(keys.USER_PEER_ALIASES), **dict.fromkeys(ids, owner)})
    return mine


def _standing(interview: Interview) -> str:
    who = interview.config.identities
    if who.pin:
        return JUST_ME
    return POOLED if who.owner in who.aliases.values() else OTHERS


def _ask_mine(interview: Interview, candidates: Sequence[Acquaintance], *, default_all: bool) -> list[Acquaintance]:
    """Which of those who may talk are the owner; without a person to ask all of them, or none."""
    if not candidates:
        return []
    say, choose = interview.dialog.say, interview.dialog.choose
    say("They may talk, and nobody has said who they are:")
    for one in candidates:
        say(f"  {_named(one)}")
    options = {"all": "they are all you", "some": "ask about each", "none": "none of them is you"}
    standing = "all" if default_all else "some"
    answer = choose("Which of them are you?", options, standing) if interview.asks else "all" if default_all else "none"
    if answer == "some":
        yes_or_no = {"yes": "", "no": ""}
        return [one for one in candidates if choose(f"Is {_named(one)} you?", yes_or_no, "no") == "yes"]
    return list(candidates) if answer == "all" else []


def _named(one: Acquaintance) -> str:
    return f"{one.who} ({one.name})" if one.name else one.who


def _edit(interview: Interview) -> None:
    rows = (keys.PIN_USER_PEER, keys.PIN_GUESTS, keys.USER_PEER_ALIASES, keys.RUNTIME_PEER_PREFIX)
    for row in rows:
        how = """ Like {"7654321": "ann"}.""" if row is keys.USER_PEER_ALIASES else ""
        interview.text(row, f"{row.key}: {row.help}{how}", row.key)
        if row is keys.PIN_GUESTS:
            _warn_of_unpinning(interview)  # before the aliases, which can keep what the pin kept


def _warn_of_unpinning(interview: Interview) -> None:
    who, value = interview.config.identities, interview.value
    loses_guests = who.pin_guests and not value(keys.PIN_GUESTS)
    if who.pin and (loses_guests or not value(keys.PIN_USER_PEER)):
        interview.dialog.say(UNPINNED.format(owner=who.owner))
