"""Routes of identities: the peer of each account on a chat platform, a preview for any account, and changing a peer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hermes.app import App
from hermes.errors import HermesError, UsageError
from hermes.gateway.platforms import SWITCHES
from hermes.memory.plugin_host import guarded
from hermes.memory.provider import Acquaintance, KnownAs, MappingPreview, MemoryPlugin
from hermes.owner.people import ProfileConsole, read_people
from hermes.types import Json
from hermes.web.drawing import page
from hermes.web.host import WebHost, find_plugin
from hermes.web.routing import PageForm, form_route, host_of, keeper_of, redirect, reload_settings

HERE = "/settings/people"
MAX_ID_CHARS, MAX_NAME_CHARS = 200, 200
SAYS: Mapping[str, str] = {"mapped": "Changed. What is said from now on goes there."}
NO_PROVIDER = "no memory provider is on"


class Listener(Struct):
    """A dialog without a person: it collects output and refuses questions. See `hermes.memory.provider.Dialog`."""

    said: list[str] = field(default_factory=list)
    can_ask: bool = False

    def ask(self, text: str, default: str = "", *, secret: bool = False) -> str:  # noqa: ARG002
        raise UsageError(f"nobody can be asked here: {text}", hint="")

    def choose(self, text: str, options: Mapping[str, str], default: str) -> str:  # noqa: ARG002
        raise UsageError(f"nobody can be asked here: {text}", hint="")

    def say(self, text: str) -> None:
        self.said.append(text)


class PageConsole(ProfileConsole, frozen=True):
    """Implements `hermes.memory.provider.PluginConsole` for a form, which has all answers."""

    dialog: Listener = field(default_factory=Listener)

    def of_profile(self, name: str) -> PageConsole:
        return PageConsole(App.load(name), self.dialog)

    def print_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        self.dialog.said += [f"{label} {value}" for label, value in lines]

    def print_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Do nothing: the page shows no tables."""

    def print_json(self, value: Json) -> None:
        """Do nothing: the page shows no JSON."""


class SeenPeople(Struct):
    """The content of the page. `asked` is the peer of the requested account, `preview` the effect of a change."""

    known: Sequence[KnownAs] = ()
    asked: KnownAs | None = None
    preview: MappingPreview | None = None
    problem: str = ""


async def show(request: Request) -> Response:
    query = request.query_params
    return await _draw(request, {name: query.get(name, "") for name in ("platform", "id", "account", "name")})


async def _draw(request: Request, asked: PageForm, status: int = 200, problem: str = "") -> Response:
    problem = problem or await reload_settings(request)
    host = host_of(request)
    seen = await asyncio.to_thread(_look, host, asked)
    values: dict[str, Any] = {"seen": seen, "asked": asked, "platforms": sorted(SWITCHES), "account": asked["account"]}
    done = SAYS.get(request.query_params.get("done", ""), "")
    status = 400 if seen.problem else status
    return page(request, "identities.html", status, **values, problem=problem or seen.problem, done=done)


def _look(host: WebHost, asked: PageForm) -> SeenPeople:
    """Read the content of the page. Blocks."""
    seen = SeenPeople()
    try:
        plugin = find_plugin(host)
        if plugin is None:
            return SeenPeople(problem=NO_PROVIDER)
        people = read_people(host.app)
        seen.known = guarded(plugin.name, "identify", lambda: plugin.identify(people))
        if asked["id"].strip():
            seen.asked = _find(plugin, people, asked["platform"], asked["id"].strip())
        if asked["account"] and asked["name"].strip():
            seen.preview = _preview(plugin, people, asked)
    except HermesError as error:
        seen.problem = error.line()
    return seen


def _find(plugin: MemoryPlugin, people: Sequence[Acquaintance], platform: str, user_id: str) -> KnownAs | None:
    """Return the present or future peer of an account."""
    if platform not in SWITCHES:
        raise UsageError(f"there is no platform '{platform[:40]}'", hint=f"There are {', '.join(sorted(SWITCHES))}")
    if len(user_id) > MAX_ID_CHARS:
        raise UsageError(f"an id has at most {MAX_ID_CHARS} characters", hint="")
    known = next((one for one in people if (one.platform, one.user_id) == (platform, user_id)), None)
    person = known or Acquaintance(platform, user_id)
    found = guarded(plugin.name, "identify", lambda: plugin.identify([person]))
    return next((one for one in found if one.account == person), None)


def _preview(plugin: MemoryPlugin, people: Sequence[Acquaintance], asked: PageForm) -> MappingPreview:
    account, name = asked["account"], asked["name"].strip()
    if len(account) > MAX_ID_CHARS or len(name) > MAX_NAME_CHARS:
        raise UsageError(f"an id and a name have at most {MAX_ID_CHARS} characters", hint="")
    return guarded(plugin.name, "preview_mapping", lambda: plugin.preview_mapping(people, account, name))


async def change(request: Request, form: PageForm) -> Response:
    """Give an account the previewed peer. If the mapping has changed since, it is shown and nothing is done."""
    asked = {**dict.fromkeys(("platform", "id"), ""), "account": form.get("account", ""), "name": form.get("name", "")}

    def run(host: WebHost) -> None:
        if (plugin := find_plugin(host)) is None:
            raise UsageError(NO_PROVIDER, hint="")
        now = _preview(plugin, read_people(host.app), asked)
        if now.before != form.get("before"):
            raise UsageError(f"{now.account} is {now.before} by now", hint="Look at the change again")
        merge, is_me = form.get("memory") == "merge", bool(form.get("me"))
        console = PageConsole(host.app)
        guarded(plugin.name, "map_account", lambda: plugin.map_account(console, now, merge=merge, is_me=is_me))

    async with keeper_of(request).editing:
        try:
            await asyncio.to_thread(run, host_of(request))
        except HermesError as error:
            return await _draw(request, asked, 400, error.line())
    return redirect(f"{HERE}?done=mapped")


def routes() -> list[Route]:
    return [Route(HERE, show), form_route(HERE, change)]
