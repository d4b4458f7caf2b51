"""Where Honcho is: our own server, the cloud, or one by its URL; and the key for it."""

from __future__ import annotations

from hermes.errors import UsageError
from hermes.honcho import keys
from hermes.honcho.interview import Interview
from hermes.honcho.server import LOCAL, meant_server

CLOUD_PAGE = "https://app.honcho.dev"
SERVERS = {
    "embedded": "our own memory server on this machine: no account, no key, no network",
    "cloud": f"Honcho Cloud, with a key from {CLOUD_PAGE}",
    "self-hosted": "a Honcho server of your own, by its URL",
}


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
    elsewhere = bool(config.get(keys.BASE_URL)) or config.get(keys.ENVIRONMENT) == "local"
    interview.put(keys.BASE_URL, "")
    interview.put(keys.ENVIRONMENT, "production")
    if interview.asks:
        interview.dialog.say("Signing in with a browser comes with a later version; a key works now.")
    _ask_key(interview, f"Key (from {CLOUD_PAGE})", is_new=elsewhere)
    while interview.asks and not interview.value(keys.API_KEY):
        interview.dialog.say("Honcho Cloud needs a key.")
        _ask_key(interview, f"Key (from {CLOUD_PAGE})", is_new=True)
    if not interview.value(keys.API_KEY):
        raise UsageError("Honcho Cloud needs a key", hint="Give --key, or set HONCHO_API_KEY")


def _ask_self_hosted(interview: Interview, *, was_there: bool) -> None:
    before = interview.config.get(keys.BASE_URL)
    interview.text(keys.BASE_URL, "URL of the server", "url", before or LOCAL)
    if not was_there and not interview.value(keys.BASE_URL):
        interview.put(keys.BASE_URL, LOCAL)  # what was offered, and nobody said otherwise
    elsewhere = not was_there or interview.value(keys.BASE_URL) != before
    _ask_key(interview, "Key of this server (empty for none)", is_new=elsewhere)


def _use_embedded(interview: Interview) -> None:
    """What else is configured stays in the file, and is not used."""
    value = interview.value
    elsewhere = value(keys.API_KEY) or value(keys.BASE_URL) or value(keys.ENVIRONMENT) == "local"
    interview.put(keys.SERVER, "embedded" if elsewhere else interview.config.get(keys.SERVER))


def _ask_key(interview: Interview, question: str, *, is_new: bool) -> None:
    """A key that was for another server is not sent to this one."""
    known = interview.config.get(keys.API_KEY)
    if (given := interview.option("key")) is not None:
        interview.put(keys.API_KEY, given)
    elif not interview.asks:
        if is_new and known:
            interview.put(keys.API_KEY, "")
    else:
        if is_new and known:
            interview.dialog.say("The key so far is for another server: it is not used for this one.")
        interview.put(keys.API_KEY, interview.dialog.ask(question, "" if is_new else known, secret=True))
