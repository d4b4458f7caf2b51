"""What the set-up asks. Where Honcho is: our own server, the cloud, or one by its URL; and the key for it. Who is who
on a gateway: just me, me with my accounts pooled and others, or others only."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.clock import SystemClock
from hermes.errors import UsageError
from hermes.honcho import keys
from hermes.honcho.configuration import CLOUD, LOCAL, VARIABLE, is_cloud_url, named_server
from hermes.honcho.interview import Interview
from hermes.honcho.remarks import describe_grant, unmarked
from hermes.honcho.server import meant_server
from hermes.memory.provider import Acquaintance
from hermes.settings.layers import DEFAULT

WITHOUT = "none"
CLOUD_PAGE = "https://app.honcho.dev"
SERVERS = {
    "embedded": "our own memory server on this machine: no account, no key, no network",
    "cloud": f"Honcho Cloud, with a key from {CLOUD_PAGE}",
    "self-hosted": "a Honcho server of your own, by its URL",
}

SERVER_KEYS = (keys.SERVER, keys.BASE_URL, keys.ENVIRONMENT, keys.API_KEY, keys.OAUTH)
"""What these questions answer."""


def ask_server(interview: Interview) -> None:
    before = meant_server(interview.config).kind
    standing = "self-hosted" if before == "local" else before
    chosen = interview.option("server") or (
        interview.dialog.choose("Where is Honcho?", SERVERS, standing) if interview.asks else standing
    )
    if chosen not in SERVERS:
        raise UsageError(f"'{chosen}' is no server", hint=f"There are {', '.join(SERVERS)}")
    if chosen == "embedded":
        _use_embedded(interview)
        return
    interview.put(keys.SERVER, "auto")
    if chosen == "cloud":
        _ask_cloud(interview)
    else:
        _ask_self_hosted(interview, was_there=standing == "self-hosted")


def _ask_cloud(interview: Interview) -> None:
    config = interview.config
    url, question = config.get(keys.BASE_URL), f"Key (from {CLOUD_PAGE})"
    elsewhere = not is_cloud_url(url) if url else config.get(keys.ENVIRONMENT) == "local"
    if elsewhere:
        interview.put(keys.BASE_URL, "")
    interview.put(keys.ENVIRONMENT, "production")  # the key is not to stand beside another server
    _ask_key(interview, question, is_new=elsewhere)
    has_key = _uses_variable(interview)
    while interview.asks and not has_key and not interview.value(keys.API_KEY):
        interview.dialog.say("Honcho Cloud needs a key.")
        interview.ask(keys.API_KEY, question)
    if not has_key and not interview.value(keys.API_KEY):
        raise UsageError("Honcho Cloud needs a key", hint="Give --key, or set HONCHO_API_KEY")


def _ask_self_hosted(interview: Interview, *, was_there: bool) -> None:
    before = interview.config.get(keys.BASE_URL)
    interview.text(keys.BASE_URL, "URL of the server", "url", before or LOCAL)
    if not was_there and not interview.value(keys.BASE_URL):
        interview.put(keys.BASE_URL, LOCAL)  # what was offered, and nobody said otherwise
    elsewhere = not was_there or interview.value(keys.BASE_URL) != before
    if interview.value(keys.BASE_URL):
        interview.put(keys.ENVIRONMENT, "production")
    has_key = bool(interview.config.get(keys.API_KEY)) and not elsewhere
    how = f"`{WITHOUT}` takes it away" if has_key else "Enter for none"
    _ask_key(interview, f"Key of this server ({how})", is_new=elsewhere)
    if interview.value(keys.API_KEY) == WITHOUT:
        interview.put(keys.API_KEY, "")
        if _uses_variable(interview):
            interview.dialog.say(f"{keys.API_KEY.env} is used as long as it is set.")


def _use_embedded(interview: Interview) -> None:
    """What else is configured stays in the file, and is not used."""
    value = interview.value
    elsewhere = value(keys.API_KEY) or value(keys.BASE_URL) or value(keys.ENVIRONMENT) == "local"
    interview.put(keys.SERVER, "embedded" if elsewhere else interview.config.get(keys.SERVER))


def _ask_key(interview: Interview, question: str, *, is_new: bool) -> None:
    """Ask for the key of the chosen server. A key or sign-in of the file that was for another server is not used for
    this one; the variable's key is, except for a local server."""
    known, grant = interview.config.get(keys.API_KEY), interview.config.grant
    if _uses_variable(interview):
        is_new = False
        if interview.option("key") is None:
            interview.dialog.say(f"The key of {keys.API_KEY.env} is used, unless another is given.")
    if (given := interview.option("key")) is not None:
        interview.put(keys.API_KEY, given)
    elif interview.asks:
        so_far = "key" if grant is None else "sign-in"
        if is_new and known:
            interview.dialog.say(f"The {so_far} so far is for another server: it is not used for this one.")
        elif grant is not None:
            interview.dialog.say(f"You are signed in: {describe_grant(grant, SystemClock().now())}. Enter keeps that.")
        interview.ask(keys.API_KEY, question, "" if is_new else known)
    elif is_new:
        interview.put(keys.API_KEY, "")
    if is_new and known:  # a key that is given again for another server is written, though it is in force for this one
        interview.wanted.setdefault(keys.API_KEY.key, known)
    if grant is not None and (is_new or (interview.value(keys.API_KEY) != known and _takes_key(interview))):
        interview.put(keys.OAUTH, None)
        interview.dialog.say("The sign-in is taken out of the configuration.")


def _uses_variable(interview: Interview) -> bool:
    """Return True if the chosen server gets the key of the variable as long as no other is given."""
    config, url = interview.config, named_server(interview.value) or CLOUD
    is_free = config.settings.origin(keys.API_KEY) in (VARIABLE, DEFAULT)
    return is_free and any(one.layer == VARIABLE and one.is_for(url) for one in config.given_keys)


def _takes_key(interview: Interview) -> bool:
    """Whether a key shall take the place of the sign-in, which is used until then."""
    options = {"key": "use the key, and take the sign-in out", "sign-in": "stay signed in, and do not use the key"}
    if interview.asks and interview.dialog.choose("You are signed in, and there is a key.", options, "key") != "key":
        interview.put(keys.API_KEY, interview.config.get(keys.API_KEY))
        return False
    return True


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
