"""The model's part of `hermes doctor`: asks the endpoint for its list of models, which costs no tokens."""

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

LIST_TIMEOUT_SECONDS = 5.0
"""Time limit for the endpoint's answer."""
CHECK = "model"


def check_model(home: Home) -> Iterator[Finding]:
    """Check that the configured model is available. Problems are warnings: an endpoint may return at any time."""
    try:
        settings = read_configuration(home).settings
    except SettingsError:
        return  # reported by the settings check
    if not has_model(settings):
        yield Finding(CHECK, "ok", "none is configured: answers come from memory alone", "`hermes model` finds one")
        return
    url, name = settings.get(BASE_URL) or OPENAI, settings.get(MODEL)
    where = f"{name or 'its first model'} at {BASE_URL.shown(url)}"
    try:
        listed = asyncio.run(list_models(url, settings.get(API_KEY) or None, timeout=LIST_TIMEOUT_SECONDS))
    except ModelError as error:
        yield Finding(CHECK, "warn", f"{where}: {error.message}", "`hermes model` sends it a request and shows details")
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
