"""Sign-in to the memory provider: the link beside its choice, and the endpoints that any page may use.

The link has a separate page, which scripts fetch every two seconds. Without scripts, a person reloads it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hermes.app import App
from hermes.errors import HermesError, NotFoundError, ProviderError
from hermes.memory.command_host import guarded, make_plugin
from hermes.memory.connect_routes import connect_routes, refuse_foreign
from hermes.memory.provider import Connect, ConnectStatus
from hermes.memory.registry import NONE
from hermes.owner.status import quiet_host
from hermes.settings import PROVIDER
from hermes.web.api import TOKEN
from hermes.web.drawing import page
from hermes.web.host import WebHost
from hermes.web.routing import PageForm, form_route, host_of, redirect, reload_settings

HERE = "/settings/connect"


class ShownConnect(Struct, frozen=True):
    """The state of a sign-in. `url` is the provider's page while the sign-in is pending."""

    name: str
    state: str
    detail: str = ""
    url: str = ""

    @property
    def mark(self) -> str:
        """The version of the state; a page that shows it needs no update."""
        return f"{self.name} {self.state} {self.detail}"


class Connects:
    """The sign-ins of this process, one per profile and provider. They remember pending sign-ins."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Connect | None] = {}
        self._lock = threading.Lock()
        self.urls: dict[str, str] = {}
        """The provider's page that was opened last, by the provider's name."""

    def find(self, app: App, profile: str, name: str) -> Connect | None:
        """Return the sign-in of a profile ("" is the page's profile); None if the provider has none. Blocks. Raises
        ProviderError, and NotFoundError for an unknown profile."""
        own = app.home.profile or "default"
        key = (profile or own, name)
        with self._lock:
            if key not in self._made:
                found = app if key[0] == own else App.load(key[0])
                plugin = make_plugin(name, found.home.plugins, quiet_host(found))
                self._made[key] = guarded(name, "connect", plugin.connect)
            return self._made[key]


def _connects(request: Request) -> Connects:
    found: Connects = request.app.state.connects
    return found


async def look(request: Request, name: str) -> ShownConnect | None:
    """Return the state of this profile's sign-in; None for a provider without one."""
    if name == NONE:
        return None
    connects, app = _connects(request), host_of(request).app

    def read() -> ConnectStatus | None:
        connect = connects.find(app, "", name)
        return None if connect is None else connect.status()

    try:
        status = await asyncio.to_thread(read)
    except HermesError as error:
        return ShownConnect(name, "error", error.line())
    if status is None:
        return None
    url = connects.urls.get(name, "") if status.state == "waiting" else ""
    return ShownConnect(name, status.state, status.detail, url)


async def show(request: Request) -> Response:
    """Show the link. Responds with 204 to a script whose page shows the present state."""
    await reload_settings(request)
    host = host_of(request)
    shown = await look(request, host.app.settings.get(PROVIDER))
    if shown is not None and request.query_params.get("seen") == shown.mark and "hx-request" in request.headers:
        return Response(status_code=204)
    return _draw(request, shown)


def _draw(request: Request, shown: ShownConnect | None, **more: Any) -> Response:
    return page(request, "connect.html", connect=shown, **more)


async def begin(request: Request, _: PageForm) -> Response:
    """Start a sign-in and redirect to the provider's page in a new window."""
    app = host_of(request).app
    name, connects = app.settings.get(PROVIDER), _connects(request)

    def run() -> str:
        if (connect := connects.find(app, "", name) if name != NONE else None) is None:
            raise NotFoundError(f"the memory provider {name!r} has no sign-in", hint="Choose another one")
        return connect.begin("web")

    url = connects.urls[name] = await asyncio.to_thread(run)
    if not url.startswith(("https://", "http://")):
        raise ProviderError(f"{name} returned no web address for the sign-in", hint="")
    return page(request, "leave.html", url=url)


async def disconnect(request: Request, _: PageForm) -> Response:
    app = host_of(request).app
    name, connects = app.settings.get(PROVIDER), _connects(request)

    def run() -> None:
        if (connect := connects.find(app, "", name) if name != NONE else None) is not None:
            connect.disconnect()

    await asyncio.to_thread(run)
    return redirect("/settings")


def sign_in_routes() -> list[Route]:
    return [
        Route(HERE, show),
        form_route(HERE, begin),
        form_route("/settings/disconnect", disconnect),
    ]


def endpoints(host: Callable[[], WebHost], connects: Connects) -> list[Route]:
    """Return the endpoints of all providers and profiles. Changes need the CSRF token in a header."""

    def admit(request: Request) -> None:
        refuse_foreign(request)
        request.app.state.door.check_token(request.headers.get(TOKEN, ""))

    return connect_routes(lambda profile, name: connects.find(host().app, profile, name), admit)
