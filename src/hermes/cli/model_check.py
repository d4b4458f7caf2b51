"""Whether the model that is configured is there, for `hermes doctor`: its endpoint is asked for the list of its models,
which costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from hermes.assembly import OPENAI, has_model
from hermes.configuration import read_configuration
from hermes.doctor import Finding
from hermes.errors import ModelError, SettingsError
from hermes.home import Home
from hermes.llm.discover import chat_models, list_models
from hermes.settings import API_KEY, BASE_URL, MODEL

PATIENCE = 5.0
"""Seconds that the endpoint may take."""
CHECK = "model"


def check_model(home: Home) -> Iterator[Finding]:
    """What the endpoint says; it changes nothing. What is wrong is a warning: it may be there again in a minute."""
    try:
        settings = read_configuration(home).settings
    except SettingsError:
        return  # the check of the settings says so
    if not has_model(settings):
        yield Finding(CHECK, "ok", "none is configured: answers come from memory alone", "`hermes model` finds one")
        return
    url, name = settings.get(BASE_URL) or OPENAI, settings.get(MODEL)
    where = f"{name or 'its first model'} at {BASE_URL.shown(url)}"
    try:
        listed = asyncio.run(list_models(url, settings.get(API_KEY) or None, timeout=PATIENCE))
    except ModelError as error:
        yield Finding(CHECK, "warn", f"{where}: {error.message}", "`hermes model` asks it something and says more")
        return
    names = [model.name for model in listed]
    if not name and (several := chat_models(names)):
        where = f"{several[0]}, the first of {len(several)} at {BASE_URL.shown(url)},"
    if name and name not in names:
        known = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        yield Finding(
            CHECK, "warn", f"{where} is not among its models: {known}", "`hermes config set model.default NAME`"
        )
        return
    yield Finding(CHECK, "ok", f"{where} is there")
