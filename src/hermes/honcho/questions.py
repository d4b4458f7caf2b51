"""The set-up's questions about the server (our own, the cloud, or a URL) and its key, and about the people on a
gateway (only me, me and others, or others only).

The answers of a set-up: from command line options, from a person, or the values in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from hermes.clock import SystemClock
from hermes.errors import ProviderError, SettingsError, UsageError
from hermes.honcho import keys
from hermes.honcho.configuration import CLOUD, LOCAL, VARIABLE, HonchoConfiguration, is_cloud_url, named_server
from hermes.honcho.grant import SEEDED
from hermes.honcho.keys import Key
from hermes.honcho.remarks import describe_grant, unmarked
from hermes.honcho.server import configured_server
from hermes.honcho.sign_in import Signer
from hermes.memory.provider import Acquaintance, Dialog
from hermes.settings.kinds import in_words, plain
from hermes.settings.layers import DEFAULT

T = TypeVar("T")
GIVEN = "the command line"
TYPED, DEFAULT_TURNS = "every", "5"
"""The option for a number of turns, and the number offered as its default."""


class Interview:
    """Collects answers. `wanted` holds the values to write: those that differ from the values in force."""

    def __init__(
        self, dialog: Dialog, config: HonchoConfiguration, options: Mapping[str, str | None], *, asks: bool
    ) -> None:
        self.dialog = dialog
        self.config = config
        self.asks = asks
        self.wanted: dict[str, Any] = {}
        self._options = options
        self._warned: set[str] = set()

    def value(self, row: Key[T]) -> T:
        """Return the wanted value, else the value in force."""
        value: T = self.wanted.get(row.key, self.config.get(row))
        return value

    def put(self, row: Key[Any], value: object) -> None:
        """Add a value to `wanted`, unless it is in force. Raises SettingsError for an invalid value."""
        parsed = row.parse(value, GIVEN)
        if (warning := row.counted_as(value)) is not None and warning not in self._warned:
            self._warned.add(warning)
            self.dialog.say(f"Note: {warning}.")
        if plain(parsed) == plain(self.config.get(row)):
            self.wanted.pop(row.key, None)
        else:
            self.wanted[row.key] = parsed

    def reopen(self, rows: Iterable[Key[Any]], names: Iterable[str]) -> None:
        """Discard the answers for `rows` and the options `names`, so that they are asked again."""
        for row in rows:
            self.wanted.pop(row.key, None)
        self._options = {name: given for name, given in self._options.items() if name not in set(names)}

    def option(self, name: str) -> str | None:
        return self._options.get(name)

    def text(self, row: Key[Any], question: str, name: str, default: str | None = None) -> None:
        """Take a text or number from the option, or ask for it."""
        if (given := self.option(name)) is not None:
            self.put(row, given)
            return
        standing = in_words(row.shown(self.value(row))) if default is None else default
        if self.asks:  # what stands is not written, also where it is only what follows from other keys
            self.ask(row, question, standing, None if row.key in self.wanted else standing)

    def ask(self, row: Key[Any], question: str, offered: str = "", stands: str | None = None) -> None:
        """Prompt until the answer is valid or equals `stands`, the current value."""
        while (answer := self.dialog.ask(question, offered, secret=row.secret)) != stands:
            try:
                self.put(row, answer)
                return
            except SettingsError as error:
                self.dialog.say(error.message.removeprefix(f"{GIVEN}: "))

    def choice(self, row: Key[Any], question: str, name: str, options: Mapping[str, str]) -> None:
        """Take one of a few words from the option, or ask; the choice `TYPED` asks for a number."""
        if (given := self.option(name)) is not None:
            self.put(row, given)
        elif self.asks:
            standing = str(self.value(row))
            is_word = standing in options
            answer = self.dialog.choose(question, options, standing if is_word else TYPED)
            if answer == TYPED:
                self.ask(row, "How many turns", DEFAULT_TURNS if is_word else standing)
            else:
                self.put(row, answer)


WITHOUT = "none"
CLOUD_PAGE = "https://app.honcho.dev"
SERVERS = {
    "embedded": "our own memory server on this machine: no account, no key, no network",
    "cloud": "Honcho Cloud: sign in, or give a key",
    "self-hosted": "a Honcho server of your own, by its URL",
}
STAY, KEY = "stay", "key"
WAYS = {
    "browser": "sign in with the browser of this machine",
    "device": "sign in with a code that you type on this or another device",
    KEY: "give an API key",
}

SERVER_KEYS = (keys.SERVER, keys.BASE_URL, keys.ENVIRONMENT, keys.API_KEY, keys.OAUTH)
"""The keys that these questions set."""


def ask_server(interview: Interview, signer: Signer) -> None:
    before = configured_server(interview.config).kind
    standing = "self-hosted" if before == "local" else before
    chosen = interview.option("server") or (
        interview.dialog.choose("Where is Honcho?", SERVERS, standing) if interview.asks else standing
    )
    if chosen not in SERVERS:
        raise UsageError(f"unknown server '{chosen}'", hint=f"There are {', '.join(SERVERS)}")
    if chosen == "embedded":
        _use_embedded(interview)
        return
    interview.put(keys.SERVER, "auto")
    if chosen == "cloud":
        _ask_cloud(interview, signer)
    else:
        _ask_self_hosted(interview, signer, was_there=standing == "self-hosted")


def _ask_cloud(interview: Interview, signer: Signer) -> None:
    config = interview.config
    url, question = config.get(keys.BASE_URL), f"Key (from {CLOUD_PAGE})"
    elsewhere = not is_cloud_url(url) if url else config.get(keys.ENVIRONMENT) == "local"
    if elsewhere:
        interview.put(keys.BASE_URL, "")
    interview.put(keys.ENVIRONMENT, "production")  # the key is not to stand beside another server
    if _signs_in(interview, signer, CLOUD, is_new=elsewhere):
        return
    _ask_key(interview, question, is_new=elsewhere)
    has_key = _uses_variable(interview)
    while interview.asks and not has_key and not interview.value(keys.API_KEY):
        interview.dialog.say("Honcho Cloud needs a key.")
        interview.ask(keys.API_KEY, question)
    if not has_key and not interview.value(keys.API_KEY):
        hint = "Give --key, set HONCHO_API_KEY, or sign in without --yes"
        raise UsageError("Honcho Cloud needs a key", hint=hint)


def _ask_self_hosted(interview: Interview, signer: Signer, *, was_there: bool) -> None:
    before = interview.config.get(keys.BASE_URL)
    interview.text(keys.BASE_URL, "URL of the server", "url", before or LOCAL)
    if not was_there and not interview.value(keys.BASE_URL):
        interview.put(keys.BASE_URL, LOCAL)  # what was offered, and nobody said otherwise
    elsewhere = not was_there or interview.value(keys.BASE_URL) != before
    if interview.value(keys.BASE_URL):
        interview.put(keys.ENVIRONMENT, "production")
    if _signs_in(interview, signer, named_server(interview.value) or LOCAL, is_new=elsewhere):
        return
    has_key = bool(interview.config.get(keys.API_KEY)) and not elsewhere
    how = f"`{WITHOUT}` takes it away" if has_key else "Enter for none"
    _ask_key(interview, f"Key of this server ({how})", is_new=elsewhere)
    if interview.value(keys.API_KEY) == WITHOUT:
        interview.put(keys.API_KEY, "")
        if _uses_variable(interview):
            interview.dialog.say(f"{keys.API_KEY.env} is used as long as it is set.")


def _use_embedded(interview: Interview) -> None:
    """Use our own server. Settings of other servers stay in the file, unused."""
    value = interview.value
    elsewhere = value(keys.API_KEY) or value(keys.BASE_URL) or value(keys.ENVIRONMENT) == "local"
    interview.put(keys.SERVER, "embedded" if elsewhere else interview.config.get(keys.SERVER))


def _signs_in(interview: Interview, signer: Signer, server: str, *, is_new: bool) -> bool:
    """Ask how to sign in, and do it; False if a key is to be given instead. Names chosen at consent become the
    defaults of the next questions."""
    grant = None if is_new else interview.config.grant
    if not interview.asks or interview.option("key") is not None or not (grant or signer.is_offered(server)):
        return False
    has_key = _uses_variable(interview) or (bool(interview.config.get(keys.API_KEY)) and not is_new)
    standing = {STAY: f"stay signed in: {describe_grant(grant, SystemClock().now())}"} if grant else {}
    default = STAY if grant else KEY if has_key else signer.usual_way
    while (way := interview.dialog.choose("How do you sign in?", {**standing, **WAYS}, default)) != KEY:
        if way == STAY:
            return True
        try:
            made = signer.sign_in(server, "browser" if way == "browser" else "device")
        except ProviderError as error:
            interview.dialog.say(f"You are not signed in: {error.line()}")
            continue
        interview.dialog.say("You are signed in.")
        stored = made.sign_in.as_keys()
        interview.put(keys.API_KEY, stored[keys.API_KEY.key])
        interview.put(keys.OAUTH, stored[keys.OAUTH.key])
        for row in SEEDED:
            if row.key in made.suggested and row.key not in interview.wanted:
                interview.put(row, made.suggested[row.key])
        return True
    return False


def _ask_key(interview: Interview, question: str, *, is_new: bool) -> None:
    """Ask for the chosen server's key. A key or sign-in of the file made for another server is not reused; the
    variable's key is, except for a local server."""
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
        interview.ask(keys.API_KEY, question, "" if is_new or grant is not None else known)
    elif is_new:
        interview.put(keys.API_KEY, "")
    if is_new and known:  # a key that is given again for another server is written, though it is in force for this one
        interview.wanted.setdefault(keys.API_KEY.key, known)
    if grant is not None and (is_new or interview.value(keys.API_KEY) != known):
        interview.put(keys.OAUTH, None)
        interview.dialog.say("The sign-in is taken out of the configuration.")


def _uses_variable(interview: Interview) -> bool:
    """Return True if the chosen server gets the variable's key unless another one is given."""
    config, url = interview.config, named_server(interview.value) or CLOUD
    is_free = config.settings.origin(keys.API_KEY) in (VARIABLE, DEFAULT)
    return is_free and any(one.layer == VARIABLE and one.is_for(url) for one in config.given_keys)


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
    """Ask which people use the gateway, and return the owner's accounts that are not marked so yet."""
    standing = _standing(interview)
    chosen = interview.option("identity") or (
        interview.dialog.choose("Who talks to this gateway?", TREE, standing) if interview.asks else None
    )
    if chosen is None:
        return []
    if chosen not in TREE:
        raise UsageError(f"unknown choice '{chosen}'", hint=f"There are {', '.join(list(TREE)[:-1])}")
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
    """Ask which of the accounts are the owner's. Without a person to ask: all if `default_all`, else none."""
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
