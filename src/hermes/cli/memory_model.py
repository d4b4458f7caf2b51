"""`hermes memory model`: show, test and change the memory server's model and what may be sent to it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from msgspec.structs import asdict, replace

from hermes.app import App
from hermes.assembly import has_model
from hermes.cli.memory import Data, place_of, server_model_lines
from hermes.cli.output import note, print_json, printable, say
from hermes.cli.start import AsJson, find_home, load_app
from hermes.clock import SystemClock
from hermes.config_file import load_shared_env
from hermes.embedded.rendezvous import Place, find_place
from hermes.errors import ModelError, SettingsError, UsageError
from hermes.files import read_file, replace_file
from hermes.llm.model import Endpoint
from hermes.memory_server.model.settings import (
    FILE,
    OPENAI_URL,
    ModelClass,
    ModelSettings,
    is_same_place,
    read_settings,
    to_json,
)
from hermes.owner.models import QUESTION, MemoryModelState, TriedModel
from hermes.owner.status import read_server
from hermes.settings import API_KEY, BASE_URL, CONTEXT_LENGTH, MODEL
from hermes.types import Json

MAX_KEY_FILE_BYTES = 16 * 1024
MAX_TEST_TOKENS = 400
TEST_TIMEOUT_SECONDS = 180.0
AUTO = "auto"
ADDRESS_FIELDS = ("url", "name", "key", "key_env", "window", "source")
"""Fields whose change is tested before it is saved."""


def model(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Option(help="An OpenAI-compatible endpoint; most end in /v1.")] = None,
    name: Annotated[str | None, typer.Option(help="The model's name; empty: the endpoint's first.")] = None,
    key_env: Annotated[str | None, typer.Option(help="The variable (environment or .env) that holds the key.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="A file with the key, which is copied to model.json.")] = None,
    window: Annotated[str | None, typer.Option(help="Context length in tokens; auto: as the endpoint reports.")] = None,
    class_: Annotated[
        Literal["point", "compose", "auto"] | None,
        typer.Option("--class", help="point: selects lines only. compose: also writes text. auto: found by a test."),
    ] = None,
    cap_calls: Annotated[int | None, typer.Option(help="Calls per workspace and day (UTC).")] = None,
    cap_tokens: Annotated[int | None, typer.Option(help="Tokens per workspace and day (UTC).")] = None,
    guests: Annotated[
        Literal["on", "off"] | None, typer.Option(help="Whether messages of people other than the owner may be sent.")
    ] = None,
    workspace: Annotated[str | None, typer.Option(help="Change the settings of this workspace only.")] = None,
    host: Annotated[bool, typer.Option("--host", help="Use the same model as `hermes chat`.")] = False,
    env: Annotated[bool, typer.Option("--env", help="Take the model from HERMES_MEMORY_MODEL_*.")] = False,
    off: Annotated[bool, typer.Option("--off", help="Use no model.")] = False,
    test: Annotated[
        bool | None,
        typer.Option("--test/--no-test", help="Test the model now. A new address is always tested, unless --no-test."),
    ] = None,
    data: Data = None,
    json: AsJson = False,
) -> int:
    """Show, test and change the model that the memory server uses; without one, memory works from the text alone. The
    settings are in model.json of the memory folder, readable by its owner only. A running server picks up changes."""
    place = place_of(ctx, data)
    before = _read_before(place, is_replaced=off or host or env or url is not None)
    given = _address(lambda: load_app(ctx), before, url=url, host=host, env=env, off=off)
    simple: dict[str, Any] = {"name": name, "cap_calls": cap_calls, "cap_tokens": cap_tokens}
    simple |= {"window": None if window is None else _read_window(window), "model_class": class_}
    given |= {field: value for field, value in simple.items() if value is not None}
    given |= {field: None for field in ("window", "model_class") if given.get(field) == AUTO}
    if key_env is not None or key_file is not None:
        given |= {"key_env": key_env or "", "key": "" if key_file is None else _read_key(key_file)}
    if guests is not None:
        given["guests"] = guests == "on"
    after = _change(before, given, workspace)
    in_use = after if workspace is None else after.for_workspace(workspace)
    in_use.check()
    resolved = in_use if in_use.source == "off" else in_use.resolved(load_shared_env(find_home(ctx)))
    tested = _try(place, before, in_use, resolved, test)
    if tested is not None and tested["error"] and given:
        hint = "Nothing was changed. Add `--no-test` to save the settings anyway"
        raise ModelError(f"the memory model does not answer: {tested['error']}", hint=hint)
    if given:
        write_settings(place, after)
    return _show(ctx, place, in_use, tested, json)


def _read_before(place: Place, *, is_replaced: bool) -> ModelSettings:
    """Return the saved settings. An invalid file is ignored if all of it is replaced."""
    try:
        return read_settings(place.folder) or ModelSettings()
    except SettingsError:
        if not is_replaced:
            raise
        return ModelSettings()


def _address(
    load: Callable[[], App], before: ModelSettings, *, url: str | None, host: bool, env: bool, off: bool
) -> dict[str, Any]:
    """Return the address fields given by the options."""
    if sum((host, env, off, url is not None)) > 1:
        raise UsageError("--url, --host, --env and --off exclude each other", hint="Give one of them")
    if host:
        found = read_host(load())
        return {field: getattr(found, field) for field in ADDRESS_FIELDS}
    if url is None:
        return {"source": "env"} if env else {"source": "off"} if off else {}
    # a key is never sent to another address than it was given for
    forgotten = {} if is_same_place(url, before.url) else {"key": "", "key_env": ""}
    return {"source": "own", "url": url, **forgotten}


def _try(
    place: Place, before: ModelSettings, in_use: ModelSettings, resolved: ModelSettings, wish: bool | None
) -> dict[str, Json] | None:
    """Test the model if asked to, or if its address is new."""
    is_new = any(getattr(in_use, field) != getattr(before, field) for field in ADDRESS_FIELDS)
    if in_use.source == "off" or wish is False or not (wish or is_new):
        return None
    return asyncio.run(_test(place, resolved))


def _read_window(text: str) -> int | str:
    if text == AUTO:
        return AUTO
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(
            f"--window is '{text}', which is not a number of tokens", hint="Give a number, or auto"
        ) from error


def _change(before: ModelSettings, given: Mapping[str, Any], workspace: str | None) -> ModelSettings:
    """Return the settings with the given changes, for all workspaces or one."""
    if workspace is None or not given:
        return replace(before, **given)
    own = {**before.workspaces.get(workspace, {}), **given}
    return replace(before, workspaces={**before.workspaces, workspace: own})


def _read_key(path: Path) -> str:
    try:
        return read_file(path, MAX_KEY_FILE_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the key in {path}: {error}") from error


def read_host(app: App) -> ModelSettings:
    """Return the host's model as settings of a memory folder. Raises UsageError where the host has none."""
    if not has_model(app.settings):
        raise UsageError("no model is configured for `hermes chat`", hint="`hermes model` shows how to get one")
    get = app.settings.get
    return ModelSettings(
        source="host",
        url=get(BASE_URL) or OPENAI_URL,
        name=get(MODEL),
        key=get(API_KEY) or "",
        window=get(CONTEXT_LENGTH) if app.settings.is_given(CONTEXT_LENGTH) else None,
    )


def write_settings(place: Place, settings: ModelSettings) -> None:
    """Write the settings file, readable by its owner only."""
    replace_file(place.folder / FILE, to_json(settings))


def sync_host(app: App) -> None:
    """Copy a changed chat model to the memory folder, if the folder uses the chat model."""
    place = find_place(app.home, load_shared_env(app.home))
    found = read_settings(place.folder)
    if found is None or found.source != "host" or not has_model(app.settings):
        return
    now = read_host(app)
    fresh = replace(found, **{field: getattr(now, field) for field in ADDRESS_FIELDS})
    if fresh != found:
        write_settings(place, fresh)


class HomeMemoryModel:
    """See `hermes.owner.models.MemoryModelConsole`: the file of the memory folder that a home uses."""

    def read(self, app: App) -> MemoryModelState:
        try:
            found = read_settings(_place(app).folder) or ModelSettings()
        except SettingsError as error:
            return MemoryModelState(described=[error.line()])
        where = found.url and Endpoint.parse(found.url).url("").split("?")[0]
        has_key, described = (
            bool(found.key or found.key_env),
            [] if found.source == "off" else model_lines(found, where),
        )
        return MemoryModelState(
            found.source, where, found.name, has_key=has_key, guests=found.guests, described=described
        )

    def test(self, app: App, given: Mapping[str, Any]) -> TriedModel:
        wanted = self._wanted(app, given)
        wanted.check()
        tested = asyncio.run(_test(_place(app), wanted.resolved(load_shared_env(app.home))))
        return TriedModel(str(tested["name"]), float(str(tested["seconds"])), str(tested["error"] or ""))

    def save(self, app: App, given: Mapping[str, Any]) -> None:
        wanted = self._wanted(app, given)
        wanted.check()
        write_settings(_place(app), wanted)

    @staticmethod
    def _wanted(app: App, given: Mapping[str, Any]) -> ModelSettings:
        source = given["source"]
        before = _read_before(_place(app), is_replaced=source in ("off", "own", "host"))
        url = given.get("url", "") if source == "own" else None
        fields = _address(lambda: app, before, url=url, host=source == "host", env=source == "env", off=source == "off")
        if source == "own":
            fields |= {"name": given["name"], **({"key": given["key"], "key_env": ""} if given["key"] else {})}
        return replace(before, **fields, guests=given["guests"])


def _place(app: App) -> Place:
    return find_place(app.home, load_shared_env(app.home))


async def _test(place: Place, settings: ModelSettings) -> dict[str, Json]:
    """Send one request, counted against the caps. Returns the model's name, the seconds and the error."""
    from hermes.memory_server.db.schema import open_database  # imported late: `hermes chat` imports this module
    from hermes.memory_server.model.calls import SELF_TEST_WORKSPACE_ID
    from hermes.memory_server.model.door import ModelDoor

    logging.getLogger("hermes.memory_server").addHandler(logging.NullHandler())  # what goes wrong is said here
    began = time.perf_counter()
    database = open_database(place.folder)
    door = ModelDoor(database, SystemClock())
    try:
        found = door.open(settings, SELF_TEST_WORKSPACE_ID)
        answer = await found.ask(
            "self_test", QUESTION, max_tokens=MAX_TEST_TOKENS, deadline_seconds=TEST_TIMEOUT_SECONDS
        )
    finally:
        await door.close()
        await database.close()
    error = None if answer.failure is None else answer.failure.reason
    seconds = round(time.perf_counter() - began, 2)
    return {"name": found.name, "window": found.window_tokens, "seconds": seconds, "error": error}


def _show(ctx: typer.Context, place: Place, settings: ModelSettings, tested: Json, as_json: bool) -> int:
    server = read_server(find_home(ctx)) if place == find_place(find_home(ctx), load_shared_env(find_home(ctx))) else {}
    running = (server.get("health") or {}).get("model")
    where = settings.url and Endpoint.parse(settings.url).url("").split("?")[0]
    shown = {
        **{field: value for field, value in asdict(settings).items() if field not in ("key", "workspaces")},
        "url": where,
        "has_key": bool(settings.key or settings.key_env),
        "file": str(place.folder / FILE),
        "server": running,
        "test": tested,
    }
    if as_json:
        print_json(shown)
    else:
        for line in model_lines(settings, where):
            say(printable(line))
        for line in server_model_lines(running) if running else ():
            say(printable(f"server    {line.strip()}"))
        if tested is not None and not tested["error"]:
            say(printable(f"{tested['name']} answers ({tested['seconds']:.1f} s)."))
    if tested is not None and tested["error"]:
        note(f"It does not answer: {printable(tested['error'])}")
        return 1
    return 0


def model_lines(settings: ModelSettings, where: str) -> list[str]:
    """Describe the settings in lines of text."""
    if settings.source == "off":
        return [
            "No model: memory answers, summarises and concludes from the text alone.",
            "`hermes memory model --host` uses the model of `hermes chat`, `--url URL --name NAME` another one.",
        ]
    kept = {"own": "", "host": " (the model of `hermes chat`)", "env": " (from the environment)"}[settings.source]
    who = "of everybody" if settings.guests else "of your own conversations alone (`--guests on` adds those of others)"
    trusted: ModelClass | str = settings.model_class or "tested at its first use"
    return [
        f"{settings.name or 'The first model'} at {where or 'the address in HERMES_MEMORY_MODEL_URL'}{kept}",
        f"sent      words {who}",
        f"class     {trusted}",
        f"caps      {settings.cap_calls:,} calls and {settings.cap_tokens:,} tokens per workspace and day (UTC)",
    ]
