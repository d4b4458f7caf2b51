"""The first `hermes chat` of a home: where models run on this machine it asks which one shall answer, else it says the
ways to get one. Scripts are not asked, and nobody is asked twice."""

from __future__ import annotations

import asyncio

from hermes.app import App
from hermes.assembly import has_model
from hermes.cli.dialog import TerminalDialog, can_ask
from hermes.cli.model import WAYS, use_endpoint
from hermes.cli.output import printable
from hermes.llm.discover import LocalEndpoint, find_local, talking

NONE = "none"
SHOWN = 9
"""How many models are offered; `hermes model` shows them all."""


def offer_model(app: App) -> bool:
    """Let the person choose a model at the first start. True when the settings have changed."""
    if has_model(app.settings) or app.home.state_file.exists() or not can_ask():
        return False
    dialog = TerminalDialog()
    offered = _talkers(asyncio.run(find_local()))
    if not offered:
        dialog.say("\n".join(["No model is configured. There are three ways:", *WAYS, ""]))
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


def _talkers(found: list[LocalEndpoint]) -> dict[str, LocalEndpoint]:
    """The models that talk, by name, in the order of their endpoints; of two with one name, the first."""
    talkers: dict[str, LocalEndpoint] = {}
    for endpoint in found:
        for name in talking(endpoint.models):
            if printable(name) == name and name != NONE:
                talkers.setdefault(name, endpoint)
    return talkers
