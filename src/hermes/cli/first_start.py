"""The first `hermes chat` of a home: where models run on this machine it asks which one shall answer, else it says the
ways to get one. Scripts are not asked, and nobody is asked twice."""

from __future__ import annotations

import asyncio
from importlib import import_module

from msgspec.structs import replace

from hermes.app import App
from hermes.assembly import has_model
from hermes.cli.dialog import TerminalDialog, can_ask, confirm
from hermes.cli.model import WAYS_TO_GET_A_MODEL, use_endpoint
from hermes.cli.output import note, printable
from hermes.config_file import load_shared_env
from hermes.embedded.place import Place, find_place
from hermes.errors import HermesError
from hermes.llm.discover import LocalEndpoint, chat_models, find_local
from hermes.settings import BASE_URL

NONE = "none"
MODEL_FILE, MEMORY_FILE = "model.json", "memory.db"
"""Of a memory folder; said here again, since nothing of the server is imported."""
MAY_MEMORY = (
    "Memory on this machine works from the text alone. It can also ask {} at {} to answer, summarise and conclude. "
    "What was said in your own conversations is then sent there, and what guests said is not."
)
SHOWN = 9
"""How many models are offered; `hermes model` shows them all."""


def offer_model(app: App) -> bool:
    """Let the person choose a model at the first start. True when the settings have changed."""
    if has_model(app.settings) or app.home.state_file.exists() or not can_ask():
        return False
    dialog = TerminalDialog()
    offered = _talkers(asyncio.run(find_local()))
    if not offered:
        dialog.say("\n".join(["No model is configured. There are three ways:", *WAYS_TO_GET_A_MODEL, ""]))
        return False
    options = {name: f"{one.kind} at {one.base_url}" for name, one in list(offered.items())[:SHOWN]}
    options[NONE] = "go on without one: answers come from memory alone"
    chosen = dialog.choose("A model runs on this machine. Which one shall answer?", options, next(iter(options)))
    if chosen == NONE:
        dialog.say("`hermes model` shows how to take one later.\n")
        return False
    use_endpoint(app, offered[chosen], chosen)
    dialog.say(f"From now on {chosen} answers.\n")
    return True


def offer_to_memory(app: App, *, may_ask: bool) -> None:
    """Ask once whether memory may use the model that answers here, and carry a later change of that model over. Where
    nobody can be asked it may not; `hermes memory model` changes it. Other profiles than the default one, whose models
    may differ, neither ask nor change it."""
    place = find_place(app.home, load_shared_env(app.home))
    if not has_model(app.settings) or app.home.path != app.home.shared:
        return
    if not (place.folder / MODEL_FILE).exists():
        if may_ask and can_ask() and (place.folder / MEMORY_FILE).exists():
            _ask_for_memory(app, place)
        return
    try:
        import_module("hermes.cli.memory_model").sync_host(app)  # by name: few homes have the file
    except HermesError as error:
        note(f"hermes: {error.line()}")


def _ask_for_memory(app: App, place: Place) -> None:
    models = import_module("hermes.cli.memory_model")
    found = models.read_host(app)
    said = BASE_URL.shown(found.url)
    TerminalDialog().say(MAY_MEMORY.format(found.name or "its first model", said))
    agreed = confirm("May memory use it?")
    models.write_settings(place, found if agreed else replace(found, source="off", url="", name="", key=""))
    TerminalDialog().say("`hermes memory model` shows it and changes it.\n")


def _talkers(found: list[LocalEndpoint]) -> dict[str, LocalEndpoint]:
    """The models that talk, by name, in the order of their endpoints; of two with one name, the first."""
    talkers: dict[str, LocalEndpoint] = {}
    for endpoint in found:
        for name in chat_models(endpoint.models):
            if printable(name) == name and name != NONE:
                talkers.setdefault(name, endpoint)
    return talkers
