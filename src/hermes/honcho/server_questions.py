"""Where Honcho is: our own server, the cloud, or one by its URL; and the key for it."""

from __future__ import annotations

from hermes.clock import SystemClock
from hermes.errors import UsageError
from hermes.honcho import keys
from hermes.honcho.auth import describe_grant
from hermes.honcho.interview import Interview
from hermes.honcho.server import LOCAL, is_cloud_url, meant_server

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
    """Ask where Honcho is."""
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
        interview.put(keys.ENVIRONMENT, "production")
    _ask_key(interview, question, is_new=elsewhere)
    while interview.asks and not interview.value(keys.API_KEY):
        interview.dialog.say("Honcho Cloud needs a key.")
        interview.ask(keys.API_KEY, question)
    if not interview.value(keys.API_KEY):
        raise UsageError("Honcho Cloud needs a key", hint="Give --key, or set HONCHO_API_KEY")


def _ask_self_hosted(interview: Interview, *, was_there: bool) -> None:
    before = interview.config.get(keys.BASE_URL)
    interview.text(keys.BASE_URL, "URL of the server", "url", before or LOCAL)
    if not was_there and not interview.value(keys.BASE_URL):
        interview.put(keys.BASE_URL, LOCAL)  # what was offered, and nobody said otherwise
    elsewhere = not was_there or interview.value(keys.BASE_URL) != before
    has_key = bool(interview.config.get(keys.API_KEY)) and not elsewhere
    how = f"`{WITHOUT}` takes it away" if has_key else "Enter for none"
    _ask_key(interview, f"Key of this server ({how})", is_new=elsewhere)
    if interview.value(keys.API_KEY) == WITHOUT:
        interview.put(keys.API_KEY, "")
        if _is_variable(interview):
            interview.dialog.say(f"{keys.API_KEY.env} is used as long as it is set.")


def _use_embedded(interview: Interview) -> None:
    """What else is configured stays in the file, and is not used."""
    value = interview.value
    elsewhere = value(keys.API_KEY) or value(keys.BASE_URL) or value(keys.ENVIRONMENT) == "local"
    interview.put(keys.SERVER, "embedded" if elsewhere else interview.config.get(keys.SERVER))


def _ask_key(interview: Interview, question: str, *, is_new: bool) -> None:
    """A key or sign-in of the file that was for another server is not used for this one; the variable's key is."""
    known, grant = interview.config.get(keys.API_KEY), interview.config.grant
    if _is_variable(interview):
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
    if grant is not None and (is_new or (interview.value(keys.API_KEY) != known and _takes_key(interview))):
        interview.put(keys.OAUTH, None)
        interview.dialog.say("The sign-in is taken out of the configuration.")


def _is_variable(interview: Interview) -> bool:
    return interview.config.settings.origin(keys.API_KEY) == "environment"


def _takes_key(interview: Interview) -> bool:
    """Whether a key shall take the place of the sign-in, which is used until then."""
    options = {"key": "use the key, and take the sign-in out", "sign-in": "stay signed in, and do not use the key"}
    if interview.asks and interview.dialog.choose("You are signed in, and there is a key.", options, "key") != "key":
        interview.put(keys.API_KEY, interview.config.get(keys.API_KEY))
        return False
    return True
