"""`hermes model`: show, test and choose the chat model, and find local model servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, get_args

import typer
from msgspec import to_builtins

from hermes.app import App
from hermes.assembly import open_model, open_offer
from hermes.cli.dialog import TerminalDialog, can_ask
from hermes.cli.output import note, print_json, printable, say, say_advice
from hermes.cli.own_name import advise
from hermes.cli.start import AsJson, load_app
from hermes.config_file import write_setting
from hermes.errors import ModelError, NotFoundError, UsageError
from hermes.llm.discover import (
    ListedModel,
    LocalEndpoint,
    LocalServerKind,
    ModelOffer,
    chat_models,
    find_local,
)
from hermes.llm.model import Model
from hermes.owner.models import try_model
from hermes.settings import BASE_URL, CONTEXT_LENGTH, MODEL
from hermes.slash.models import find_model
from hermes.types import Json

KINDS: tuple[LocalServerKind, ...] = get_args(LocalServerKind)
WAYS_TO_GET_A_MODEL = (
    "  1. On this machine: start Ollama, LM Studio or llama.cpp, then `hermes model`",
    "  2. Any OpenAI-compatible endpoint: `hermes config set model.base_url URL`, and `hermes config set model.api_key "
    "KEY` where it needs one",
    "  3. None: keep talking; messages are stored, and answers come from memory alone",
)
"""Ways to get a model."""
MAX_LISTED = 40
"""Number of an endpoint's models that are listed."""
HOW_TO_CHOOSE = "`hermes model NAME` chooses one."
HOW_TO_SEE = "`hermes model` lists the models"


def model(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The model to use from now on.")] = None,
    use: Annotated[
        LocalServerKind | None, typer.Option("--use", metavar="KIND", help=f"Use a local server: {', '.join(KINDS)}.")
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="Test again whether the model can use tools.")] = False,
    json: AsJson = False,
) -> int:
    """Show the chat model, test it, and choose another one of its endpoint. If none is configured, look for Ollama, LM
    Studio and llama.cpp on this machine."""
    app = load_app(ctx)
    if use:
        return asyncio.run(_use(app, use, name))
    offer = open_offer(app)
    if test:
        return asyncio.run(_test_tools(app, offer, name, json))
    if name:
        return asyncio.run(_choose(app, offer, name))
    if offer is None:
        return asyncio.run(_find_servers(json))
    code, listed = asyncio.run(_show(app, offer, json))
    if listed and not json and can_ask():
        _let_choose(app, offer, listed)
    return code


async def _find_servers(as_json: bool) -> int:
    """Print the model servers found on this machine, for a home without a model."""
    found = await find_local()
    if as_json:
        print_json({"configured": None, "found": [to_builtins(endpoint) for endpoint in found]})
        return 0
    say("No model is configured: answers come from memory alone.")
    for endpoint in found:
        say(f"Found {endpoint.kind} at {endpoint.base_url} with {', '.join(endpoint.models) or 'no models'}.")
        say(advise(f"  `hermes model --use {endpoint.kind}` uses it"))
    if not found:
        say("No model server was found on this machine. There are three ways to get a model:")
        for line in WAYS_TO_GET_A_MODEL:
            say_advice(line)
    return 0


async def _show(app: App, offer: ModelOffer, as_json: bool) -> tuple[int, Sequence[ListedModel]]:
    """Print the configured model and the endpoint's other models. Returns the exit code and the models to choose
    from."""
    try:
        listed = await offer.list()
    except ModelError:  # the test reports it
        listed = ()
    configured = open_model(app, offer)
    assert configured is not None, "there is an endpoint"
    shown = await _test(app, configured)
    shown["tools"] = _tools(offer, configured.name)
    if as_json:
        print_json({"configured": {**shown, "models": [one.name for one in listed]}})
    else:
        say(f"{shown['model'] or 'Its first model'} at {offer.endpoint}, {configured.context_length:,} tokens")
        say(f"It answers ({shown['seconds']:.1f} s)." if shown["ok"] else f"It does not answer: {shown['error']}")
        say(f"Tools: {shown['tools']['described']}")
        if not can_ask():
            _print_listed(offer, listed)
    return 0 if shown["ok"] else 1, listed if len(listed) > 1 else ()


def _tools(offer: ModelOffer, name: str) -> dict[str, Json]:
    """Return whether tools are offered to a model, and why."""
    use = offer.tool_use
    assert use is not None, "the configured offer knows"
    return {"offered": use.is_offered(name), "setting": use.setting(name), "described": use.describe(name)}


async def _test_tools(app: App, offer: ModelOffer | None, name: str | None, as_json: bool) -> int:
    """Test whether a model can use tools. The exit code is 1 if the endpoint gave no verdict."""
    if offer is None or offer.tool_use is None:
        raise UsageError("no model is configured", hint="`hermes model` finds one on this machine")
    tested = offer.open(name, None) if name else open_model(app, offer)
    assert tested is not None, "there is an endpoint"
    try:
        verdict = await offer.tool_use.test(tested)
    finally:
        await tested.close()
    shown = {"model": tested.name, **_tools(offer, tested.name), "tested": verdict is not None}
    if as_json:
        print_json(shown)
    else:
        if verdict is None:
            say(f"{tested.name or 'It'} could not be tested; `hermes model` shows whether it answers.")
        else:
            say(f"{tested.name} {'passed the test' if verdict.can_use else f'failed the test: {verdict.why}'}.")
        say(f"Tools: {shown['described']}")
    return 1 if verdict is None else 0


def _print_listed(offer: ModelOffer, listed: Sequence[ListedModel]) -> None:
    if not listed:
        return
    say(f"{offer.endpoint} has:")
    for one in listed[:MAX_LISTED]:
        say(f"{'*' if one.name == offer.answering else ' '} {printable(one.name)}")
    if len(listed) > MAX_LISTED:
        say(f"  … and {len(listed) - MAX_LISTED} more, which --json lists")
    if len(listed) > 1:
        say(advise(HOW_TO_CHOOSE))


def _let_choose(app: App, offer: ModelOffer, listed: Sequence[ListedModel]) -> None:
    """Prompt for a model; Enter keeps the current one."""
    now = offer.answering
    options = {one.name: f"{one.context_length:,} tokens" if one.context_length else "" for one in listed[:MAX_LISTED]}
    options.setdefault(now, "configured" if all(one.name != now for one in listed) else "")
    if len(listed) > MAX_LISTED:
        say(advise(f"{len(listed) - MAX_LISTED} more exist; `hermes model NAME` chooses any of them."))
    printed = {name: meaning for name, meaning in options.items() if printable(name) == name}
    chosen = TerminalDialog().choose(f"{offer.endpoint} has these models. Which one should answer?", printed, now)
    if chosen != offer.default:
        _take(app, chosen)


async def _choose(app: App, offer: ModelOffer | None, name: str) -> int:
    """Switch to another model of the configured endpoint."""
    if offer is None:
        raise UsageError("no model is configured", hint="`hermes model` finds one on this machine")
    _, remark = await find_model(offer, name, HOW_TO_SEE)
    if remark:
        note(remark)
    _take(app, name)
    return 0


def _take(app: App, name: str) -> None:
    write_setting(app.home.config_file, MODEL, name)
    say(f"From now on {name} answers.")
    if app.env.get(MODEL.env or ""):
        note(f"{MODEL.env} is set in the environment and overrides it.")


async def _test(app: App, configured: Model) -> dict[str, Json]:
    tried = await try_model(configured)
    shown: dict[str, Json] = {
        "model": tried.name,
        "base_url": BASE_URL.shown(app.settings.get(BASE_URL)),
        "context_length": configured.context_length,
        "ok": not tried.problem,
        "seconds": tried.seconds,
    }
    if tried.problem:
        shown["error"] = tried.problem
    return shown


async def _use(app: App, kind: LocalServerKind, name: str | None) -> int:
    found = await find_local()
    endpoint = next((endpoint for endpoint in found if endpoint.kind == kind), None)
    if endpoint is None:
        here = ", ".join(other.kind for other in found) or "nothing"
        hint = f"Found: {here}. Start it first, or choose another of {', '.join(KINDS)}"
        raise NotFoundError(f"no {kind} answers on this machine", hint=hint)
    chosen = name or next(iter(chat_models(endpoint.models)), "")
    if chosen not in endpoint.models:
        raise NotFoundError(f"{kind} has no model '{chosen}'", hint=f"It has: {', '.join(endpoint.models) or 'none'}")
    use_endpoint(app, endpoint, chosen)
    say(f"From now on {chosen} at {endpoint.base_url} answers.")
    return 0


def use_endpoint(app: App, endpoint: LocalEndpoint, name: str) -> None:
    """Make this the chat model, in config.yaml."""
    path = app.home.config_file
    write_setting(path, BASE_URL, endpoint.base_url)
    write_setting(path, MODEL, name)
    if endpoint.context_length:
        write_setting(path, CONTEXT_LENGTH, endpoint.context_length)
