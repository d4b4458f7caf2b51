"""`hermes model`: which model answers, does it, and what is there on this machine."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Annotated, get_args

import typer
from msgspec import to_builtins

from hermes.app import App
from hermes.assembly import open_model
from hermes.cli.output import print_json, say
from hermes.cli.own_name import advise
from hermes.cli.start import AsJson, load_app
from hermes.config_file import write_setting
from hermes.errors import NotFoundError, UsageError
from hermes.llm.discover import LocalEndpoint, LocalServerKind, find_local
from hermes.llm.events import Completed, ModelFailed
from hermes.llm.model import Model, ModelRequest
from hermes.settings import BASE_URL, CONTEXT_LENGTH, MODEL
from hermes.types import Json

KINDS: tuple[LocalServerKind, ...] = get_args(LocalServerKind)
WAYS = (
    "  1. On this machine: start Ollama, LM Studio or llama.cpp, then `hermes model`",
    "  2. Any OpenAI-compatible endpoint: `hermes config set model.base_url URL`, and `hermes config set model.api_key "
    "KEY` where it needs one",
    "  3. None: talk on; what you say is kept, and answers come from memory alone",
)
"""How to get a model."""
QUESTION = [{"role": "user", "content": "Answer with the one word: ready"}]


def model(
    ctx: typer.Context,
    use: Annotated[
        LocalServerKind | None, typer.Option("--use", metavar="KIND", help=f"Use what runs here: {', '.join(KINDS)}.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="With --use: which of its models.")] = None,
    json: AsJson = False,
) -> int:
    """Show the configured model and test it. Without one, look for Ollama, LM Studio and llama.cpp on this machine."""
    if name and not use:
        raise UsageError("--name goes with --use", hint="`hermes config set model.default NAME` names a model alone")
    app = load_app(ctx)
    return asyncio.run(_use(app, use, name) if use else _show(app, json))


async def _show(app: App, as_json: bool) -> int:
    configured = open_model(app.settings)
    if configured is not None:
        return await _test(app, configured, as_json)
    found = await find_local()
    if as_json:
        print_json({"configured": None, "found": [to_builtins(endpoint) for endpoint in found]})
        return 0
    say("No model is configured: answers come from memory alone.")
    for endpoint in found:
        say(f"Found {endpoint.kind} at {endpoint.base_url} with {', '.join(endpoint.models) or 'no models'}.")
        say(advise(f"  `hermes model --use {endpoint.kind}` takes it"))
    if not found:
        say("Nothing was found on this machine. There are three ways:")
        for line in WAYS:
            say(advise(line))
    return 0


async def _test(app: App, configured: Model, as_json: bool) -> int:
    began = time.perf_counter()
    try:
        async with aclosing(configured.stream(ModelRequest(QUESTION, max_tokens=200))) as events:
            last = [event async for event in events][-1]
    finally:
        await configured.close()
    seconds = time.perf_counter() - began
    shown: dict[str, Json] = {
        "model": configured.name,
        "base_url": BASE_URL.shown(app.settings.get(BASE_URL)),
        "context_length": configured.context_length,
        "ok": isinstance(last, Completed),
        "seconds": round(seconds, 2),
    }
    if isinstance(last, ModelFailed):
        shown["error"] = last.message
    if as_json:
        print_json({"configured": shown})
    else:
        say(f"{configured.name} at {shown['base_url'] or 'OpenAI'}, {configured.context_length:,} tokens")
        say(f"It answers ({seconds:.1f} s)." if shown["ok"] else f"It does not answer: {shown['error']}")
    return 0 if shown["ok"] else 1


async def _use(app: App, kind: LocalServerKind, name: str | None) -> int:
    found = await find_local()
    endpoint = next((endpoint for endpoint in found if endpoint.kind == kind), None)
    if endpoint is None:
        here = ", ".join(other.kind for other in found) or "nothing"
        hint = f"Found: {here}. Start it first, or choose another of {', '.join(KINDS)}"
        raise NotFoundError(f"no {kind} answers on this machine", hint=hint)
    chosen = name or next(iter(endpoint.models), "")
    if chosen not in endpoint.models:
        raise NotFoundError(f"{kind} has no model '{chosen}'", hint=f"It has: {', '.join(endpoint.models) or 'none'}")
    use_endpoint(app, endpoint, chosen)
    say(f"From now on {chosen} at {endpoint.base_url} answers.")
    return 0


def use_endpoint(app: App, endpoint: LocalEndpoint, name: str) -> None:
    """Have this model answer from now on, by config.yaml."""
    path = app.home.config_file
    write_setting(path, BASE_URL, endpoint.base_url)
    write_setting(path, MODEL, name)
    if endpoint.context_length:
        write_setting(path, CONTEXT_LENGTH, endpoint.context_length)
