"""The first `hermes chat` of a home: asks for the owner's name, and which model on this machine should answer, or
explains how to get one. Asks once, and never in scripts; `hermes setup` asks again."""

from __future__ import annotations

import asyncio
from importlib import import_module

import typer
from msgspec.structs import replace

from hermes.app import App
from hermes.assembly import has_model, open_notes
from hermes.cli.dialog import TerminalDialog, can_ask, confirm_or_text
from hermes.cli.model import WAYS_TO_GET_A_MODEL, use_endpoint
from hermes.cli.output import note, printable
from hermes.cli.start import load_app
from hermes.config_file import load_shared_env, write_setting
from hermes.embedded.rendezvous import Place, find_place
from hermes.errors import HermesError, UsageError
from hermes.home import DEFAULT
from hermes.llm.discover import LocalEndpoint, chat_models, find_local
from hermes.scope import OWNER
from hermes.settings import BASE_URL, MODEL, OWNER_NAME, PROVIDER

NONE = "none"
MODEL_FILE, MEMORY_FILE = "model.json", "memory.db"
"""Files of a memory folder; repeated here so that nothing of the server is imported."""
MAY_MEMORY = (
    "Memory on this machine works from the text alone. It can also ask {} at {} to answer, summarise and conclude. "
    "Your own conversations are then sent there; those of guests are not."
)
NAME_NOTE = "My name is {}."
MAX_OFFERED = 9
"""Number of models offered; `hermes model` lists all."""


SENT_AS_MESSAGE = "That is not yes or no, so it is sent as a message; the next start asks again."
NAME_QUESTION = "What is your name? (Enter skips)"
MAX_NAME_CHARS, MAX_NAME_WORDS = 60, 4
"""Longer answers, and sentences, are not names: they are sent as messages."""
NAMED = "Hello {}! `hermes setup` changes the name."


def offer_start(app: App) -> list[str]:
    """Ask the questions of a home without conversations. Returns answers that were messages instead. May change
    settings."""
    if app.home.state_file.exists() or not can_ask():
        return []
    said = offer_name(app)
    offer_model(app)
    return said


def offer_name(app: App) -> list[str]:
    """Ask for the owner's name, unless the settings or the default home contain it."""
    if app.settings.is_given(OWNER_NAME) or OWNER_NAME.env in app.env:
        return []
    if app.home.profile is not None and (known := App.load(DEFAULT).settings.get(OWNER_NAME)):
        write_setting(app.home.config_file, OWNER_NAME, known)
        return []
    given = TerminalDialog().ask(NAME_QUESTION)
    if (name := read_name(given)) is None:
        return [given] if given else []
    keep_name(app, name)
    TerminalDialog().say(f"{NAMED.format(name)}\n")
    return []


def read_name(given: str) -> str | None:
    """Return the name in an answer, or None."""
    ranking = import_module("hermes.ranking.personal")  # imported late: it takes 35 ms, and few starts ask
    said = ranking.find_name([given])
    name = " ".join(printable(said[0] if said else given).split())
    is_name = (
        len(name) <= MAX_NAME_CHARS and len(name.split()) <= MAX_NAME_WORDS and not set("?!/<>{}0123456789") & set(name)
    )
    greets = import_module("hermes.ranking.traits").find_small_talk(given) is not None
    return name if name and is_name and not greets else None


def keep_name(app: App, name: str) -> None:
    """Store the owner's name as a setting, and as a note for the agent."""
    before = app.settings.get(OWNER_NAME)
    write_setting(app.home.config_file, OWNER_NAME, name)
    notes = open_notes(app, OWNER)
    if before and NAME_NOTE.format(before) in notes.entries("user"):
        notes.forget("user", NAME_NOTE.format(before))
    notes.add("user", NAME_NOTE.format(name))


def setup(ctx: typer.Context) -> None:
    """Set up hermes step by step: your name, the model, the memory, chat platforms."""
    if not can_ask():
        ways = "`hermes config set owner.name NAME`, `hermes model NAME`, `hermes memory setup NAME`"
        raise UsageError("setup needs a terminal for its questions", hint=f"Without one: {ways}")
    while True:
        app = load_app(ctx)
        get = app.settings.get
        options = {
            "name": f"your name ({get(OWNER_NAME) or 'not set'})",
            "model": f"the model that answers ({get(MODEL) or get(BASE_URL) or 'none yet'})",
            "memory": f"the memory provider ({get(PROVIDER)})",
            "platform": "talk over Telegram, Discord or Slack",
            "done": "leave",
        }
        match TerminalDialog().choose("What do you want to set up?", options, "done"):
            case "name":
                if (name := read_name(TerminalDialog().ask(NAME_QUESTION, get(OWNER_NAME)))) is not None:
                    keep_name(app, name)
            case "model":
                if not has_model(app.settings):
                    offer_model(app)
                else:
                    import_module("hermes.cli.model").model(ctx, None, None, False, False)
            case "memory":
                import_module("hermes.cli.memory_status").setup(ctx, None)
            case "platform":
                import_module("hermes.cli.gateway").set_up_platform(ctx, None)
            case _:
                return


def offer_model(app: App) -> bool:
    """Let the user choose a model if none is configured. Returns True if the settings have changed."""
    if has_model(app.settings):
        return False
    dialog = TerminalDialog()
    offered = _talkers(asyncio.run(find_local()))
    if not offered:
        dialog.say("\n".join(["No model is configured. There are three ways:", *WAYS_TO_GET_A_MODEL, ""]))
        return False
    options = {name: f"{one.kind} at {one.base_url}" for name, one in list(offered.items())[:MAX_OFFERED]}
    options[NONE] = "continue without a model: answers come from memory alone"
    chosen = dialog.choose(
        "A model server runs on this machine. Which model should answer?", options, next(iter(options))
    )
    if chosen == NONE:
        dialog.say("`hermes model` chooses one later.\n")
        return False
    use_endpoint(app, offered[chosen], chosen)
    dialog.say(f"From now on {chosen} answers.\n")
    return True


def offer_to_memory(app: App, *, may_ask: bool) -> list[str]:
    """Ask once whether memory may use the chat model, and keep memory's copy of its settings up to date. Without an
    answer memory may not; `hermes memory model` changes that. Only the default profile asks, since other profiles may
    use other models. Returns answers that were messages instead."""
    place = find_place(app.home, load_shared_env(app.home))
    if not has_model(app.settings) or app.home.path != app.home.shared:
        return []
    if not (place.folder / MODEL_FILE).exists():
        if may_ask and can_ask() and (place.folder / MEMORY_FILE).exists():
            return _ask_for_memory(app, place)
        return []
    try:
        import_module("hermes.cli.memory_model").sync_host(app)  # imported late: few homes have the file
    except HermesError as error:
        note(f"hermes: {error.line()}")
    return []


def _ask_for_memory(app: App, place: Place) -> list[str]:
    models = import_module("hermes.cli.memory_model")
    found = models.read_host(app)
    said = BASE_URL.shown(found.url)
    TerminalDialog().say(MAY_MEMORY.format(found.name or "its first model", said))
    agreed = confirm_or_text("May memory use it?")
    if isinstance(agreed, str):
        TerminalDialog().say(f"{SENT_AS_MESSAGE}\n")
        return [agreed]
    models.write_settings(place, found if agreed else replace(found, source="off", url="", name="", key=""))
    TerminalDialog().say("`hermes memory model` shows it and changes it.\n")
    return []


def _talkers(found: list[LocalEndpoint]) -> dict[str, LocalEndpoint]:
    """Return the chat models by name, in the order of their endpoints. Of duplicates the first is used."""
    talkers: dict[str, LocalEndpoint] = {}
    for endpoint in found:
        for name in chat_models(endpoint.models):
            if printable(name) == name and name != NONE:
                talkers.setdefault(name, endpoint)
    return talkers
