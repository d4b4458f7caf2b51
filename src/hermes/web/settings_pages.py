"""Routes of settings: the memory provider, its use, and every setting that the command line knows.

A form carries the values that it was rendered with, so that it never overwrites a change by somebody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hermes.config_file import write_setting
from hermes.errors import HermesError, ProviderError, SettingsError, UsageError
from hermes.memory.command_host import guarded
from hermes.memory.provider import SettingInForce
from hermes.memory.registry import NONE, provider_names
from hermes.redaction import HIDDEN
from hermes.settings import PROVIDER, TABLE, find_setting
from hermes.settings.kinds import in_words
from hermes.web import connecting
from hermes.web.drawing import page
from hermes.web.host import WebHost, find_plugin
from hermes.web.routing import PageForm, form_route, host_of, keeper_of, redirect, reload_settings

OURS = "hermes"
"""The settings of config.yaml; a provider's table has the provider's name."""
SET, SEEN = "set:", "seen:"
"""Prefixes of a setting's name in a form: the requested value, and the value that the form was rendered with."""
MADE = "the page"
MAX_KEY_CHARS = 80
SAYS: Mapping[str, str] = {"saved": "Saved. It takes effect with the next message.", "same": "Nothing was changed."}
ALONE = "Nothing is remembered but the built-in notes."


class ProviderChoice(Struct, frozen=True):
    """The available providers, the one in force, and its summary."""

    names: Sequence[str]
    chosen: str
    summary: str
    fixed: str = ""
    """The environment variable that chooses the provider and so prevents a change on the page; "" if none does."""


def read_choice(host: WebHost) -> ProviderChoice:
    """Return the choice of providers. Blocks, because it loads them."""
    settings, names = host.app.settings, provider_names(host.app.home.plugins)
    chosen = settings.get(PROVIDER)
    try:
        plugin = find_plugin(host)
        summary = ALONE if plugin is None else plugin.summary
    except ProviderError as error:
        summary = error.line()
    return ProviderChoice(sorted({*names, chosen}, key=lambda name: name == NONE), chosen, summary)


def read_rows(host: WebHost, table: str) -> list[SettingInForce]:
    """Return the settings of a table with their values. Blocks. Raises UsageError for an unknown table."""
    settings = host.app.settings
    if table == OURS:
        return [SettingInForce(row, row.shown(settings.get(row)), settings.where(row)) for row in TABLE]
    plugin = find_plugin(host)
    if plugin is None or plugin.name != table:
        raise UsageError(f"there is no table of settings '{table[:60]}'", hint="Follow the links of the page")
    return list(guarded(table, "settings_in_force", plugin.settings_in_force))


def is_fixed(host: WebHost, row: SettingInForce) -> bool:
    """Return True if an environment variable sets a setting of config.yaml, so that the file cannot."""
    return row.setting.env_wins and host.app.settings.origin(row.setting) == "environment"


def find_changes(rows: Sequence[SettingInForce], form: PageForm) -> dict[str, str]:
    """Return the settings that a form changes. Raises UsageError if one was changed since the form was rendered."""
    now, changed = {row.setting.key: row for row in rows}, dict[str, str]()
    for name, value in form.items():
        key = name.removeprefix(SET)
        if key == name:
            continue
        row = now.get(key)
        if row is not None and row.setting.secret:
            changed |= {key: value} if value else {}
            continue
        standing = "" if row is None else in_words(row.value)
        if value.strip() == form.get(f"{SEEN}{key}", standing):
            continue
        if standing not in (form.get(f"{SEEN}{key}", standing), value.strip()):
            hint = "Your value is still in the form; send it again to set it all the same"
            raise UsageError(f"{key} was changed since the page was loaded: it is {standing or 'empty'} now", hint=hint)
        changed[key] = refuse_hidden(key, value.strip())
    return changed


def refuse_hidden(key: str, value: str) -> str:
    """Return a value that was typed whole. Raises UsageError if a part of it is hidden."""
    if HIDDEN in value:
        raise UsageError(f"{key} still has {HIDDEN} where a password is hidden", hint="Type the whole value")
    return value


async def save(request: Request, table: str, form: PageForm) -> bool:
    """Save the changes of a form; return False without changes. Raises HermesError, and then changes nothing."""
    keeper = keeper_of(request)
    async with keeper.editing:
        await keeper.refresh()
        host = keeper.host
        rows = await asyncio.to_thread(read_rows, host, table)
        if not (changed := find_changes(rows, form)):
            return False
        await asyncio.to_thread(write_ours if table == OURS else _write_providers, host, changed)
        await keeper.refresh()
    return True


def write_ours(host: WebHost, changed: Mapping[str, str]) -> None:
    """Write settings to config.yaml. Raises SettingsError before anything is written."""
    parsed = [(row, row.parse(value, MADE)) for row, value in ((find_setting(key), changed[key]) for key in changed)]
    for row, value in parsed:
        if row.env_wins and host.app.settings.origin(row) == "environment":
            hint = f"Start `hermes web` without {row.env} to change it here"
            raise SettingsError(f"{row.key} comes from {host.app.settings.where(row)}, which wins", hint=hint)
        if row is PROVIDER and value not in (names := provider_names(host.app.home.plugins)):
            raise SettingsError(f"there is no memory provider '{value[:60]}'", hint=f"Known: {', '.join(names)}")
    for row, value in parsed:
        write_setting(host.app.home.config_file, row, value)


def _write_providers(host: WebHost, changed: Mapping[str, str]) -> None:
    if (plugin := find_plugin(host)) is not None:
        guarded(plugin.name, "save_config", lambda: plugin.save_config(changed))


async def show_memory(request: Request) -> Response:
    return await _draw_memory(request)


async def _draw_memory(
    request: Request, status: int = 200, problem: str = "", drafts: PageForm | None = None
) -> Response:
    """Render the page of memory settings."""
    problem = problem or await reload_settings(request)
    host = host_of(request)
    choice = await asyncio.to_thread(read_choice, host)
    rows: list[SettingInForce] = []
    try:
        rows = [] if choice.chosen == NONE else await asyncio.to_thread(read_rows, host, choice.chosen)
    except HermesError as error:
        problem = problem or error.line()
    [provider] = [one for one in read_rows(host, OURS) if one.setting is PROVIDER]
    return _page(
        request, "settings.html", status, choice=choice, rows=[one for one in rows if one.question], provider=provider,
        fixed=is_fixed(host, provider), connect=await connecting.look(request, choice.chosen),
        problem=problem, drafts=drafts or {}, trouble=await host.trouble(),
    )  # fmt: skip


async def show_all(request: Request) -> Response:
    return await _draw_all(request, request.query_params.get("table", OURS))


async def _draw_all(
    request: Request, table: str, status: int = 200, problem: str = "", drafts: PageForm | None = None
) -> Response:
    problem = problem or await reload_settings(request)
    host = host_of(request)
    rows = await asyncio.to_thread(read_rows, host, table)
    chosen = host.app.settings.get(PROVIDER)
    tables = [OURS] if chosen == NONE else [OURS, chosen]
    key = request.query_params.get("key", "")[:MAX_KEY_CHARS]
    row = next((one for one in rows if one.setting.key == key), None)
    if key and row is None:
        problem = problem or f"there is no setting '{key}' in {table}"
    return _page(
        request, "all_settings.html", status, tables=tables, table=table, rows=rows, row=row, problem=problem,
        drafts=drafts or {},
    )  # fmt: skip


def _page(request: Request, template: str, status: int, **values: Any) -> HTMLResponse:
    done = SAYS.get(request.query_params.get("done", ""), "")
    return page(request, template, status, **{"done": done, "words": in_words, **values})


async def change_memory(request: Request, form: PageForm) -> Response:
    """Save the provider or its settings."""
    table = form.get("table", "")
    try:
        changed = await save(request, table, form)
    except HermesError as error:
        return await _draw_memory(request, 400, error.line(), form)
    return redirect(f"/settings?done={'saved' if changed else 'same'}")


async def change_one(request: Request, form: PageForm) -> Response:
    """Save any setting of a table."""
    table = form.get("table", "")
    try:
        changed = await save(request, table, form)
    except HermesError as error:
        return await _draw_all(request, table, 400, error.line(), form)
    return redirect(f"/settings/all?table={table}&done={'saved' if changed else 'same'}")


def routes() -> list[Route]:
    return [
        Route("/settings", show_memory),
        form_route("/settings", change_memory),
        Route("/settings/all", show_all),
        form_route("/settings/all", change_one),
        *connecting.sign_in_routes(),
    ]
