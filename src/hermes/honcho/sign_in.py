"""Signing in and out: the way that fits the person's machine, storage, and `hermes honcho login` and `logout`."""

from __future__ import annotations

import sys
import threading
import time
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec import Struct

from hermes.errors import NotFoundError, ProviderError, UsageError
from hermes.files import check_room, unwritable
from hermes.honcho import keys
from hermes.honcho.browser_sign_in import sign_in_by_code
from hermes.honcho.config_file import Block, Edit, edit_document, read_document, set_keys
from hermes.honcho.configuration import CLOUD, ROOT, HonchoConfiguration, is_cloud_url
from hermes.honcho.grant import SignIn, TokenResponse, read_sign_in, suggested
from hermes.honcho.oauth import Endpoints, TokenError, check_page, find_endpoints, post_form
from hermes.honcho.remarks import describe_auth
from hermes.honcho.server import Machine, configured_server, find_server
from hermes.honcho.workbench import find_bench
from hermes.memory.provider import Dialog
from hermes.redaction import hide_url
from hermes.settings.layers import DEFAULT

if TYPE_CHECKING:
    from hermes.honcho.browser_sign_in import BrowserSignIn

Way = Literal["auto", "browser", "device", "paste"]
REVOKE_SECONDS = 5.0
OTHER_WORKSPACE = (
    "on the page you chose the workspace {chosen}, and this profile uses {used}, which the sign-in may not open. "
    "`hermes memory setup honcho --yes --unchecked --workspace {chosen}` uses {chosen}; to keep {used}, run "
    "`hermes honcho login` again and name it on the page."
)
REMOTE = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")


class SignedIn(Struct, frozen=True):
    """A new sign-in, and the person's choices at consent."""

    sign_in: SignIn
    suggested: Mapping[str, Any]


def login(
    ctx: typer.Context,
    device: Annotated[bool, typer.Option("--device", help="Sign in with a code that is typed elsewhere.")] = False,
    paste: Annotated[bool, typer.Option("--paste", help="Paste the address that the browser ends at.")] = False,
) -> None:
    """Sign in to the configured server: with a browser here, or with a code on another device."""
    bench = find_bench(ctx)
    config = bench.load().checked()
    server = configured_server(config)
    if server.kind == "embedded":
        hint = "`hermes memory setup honcho` chooses Honcho Cloud or a server of your own"
        raise UsageError("our own memory server needs no sign-in", hint=hint)
    way: Way = "device" if device else "paste" if paste else "auto"
    made = Signer(bench.console.dialog, bench.machine).sign_in(server.url, way)
    config, before = bench.load().checked(), own_sign_in(bench.machine)  # minutes later
    bench.save(set_keys({**made.sign_in.as_keys(), **keep_unset(config, made.suggested)}))
    revoke_replaced(before, bench.machine)
    bench.machine.choose()
    chosen, used = made.suggested.get(keys.WORKSPACE.key), bench.load().workspace
    if chosen and chosen != used:
        bench.console.dialog.say(f"Note: {OTHER_WORKSPACE.format(chosen=chosen, used=used)}")
    bench.console.dialog.say(f"Signed in to {server.shown}: {describe_auth(bench.load(), time.time())}.")


def logout(ctx: typer.Context) -> None:
    """Sign out: remove the tokens from the configuration, and revoke them at the server."""
    bench = find_bench(ctx)
    sign_out(bench.machine)
    config = bench.load()
    server = find_server(config)
    bench.console.print_lines([("server", server.shown), ("auth", describe_auth(config, time.time()))])
    if not server.key:
        bench.console.dialog.say(
            "Signed out. Where the server wants a key, what is said waits in the outbox until you sign in again: "
            "`hermes honcho login`."
        )


class Signer(Struct, frozen=True):
    """Signs a person in at a terminal."""

    dialog: Dialog
    machine: Machine

    def is_offered(self, server: str) -> bool:
        """Return True if a server offers sign-in. The cloud is not checked."""
        return is_cloud_url(server) or find_endpoints(server, self.machine.env).is_offered

    @property
    def usual_way(self) -> Literal["browser", "device"]:
        return "browser" if can_open_browser(self.machine.env) else "device"

    def sign_in(self, server: str, way: Way) -> SignedIn:
        """Sign the person in. Raises ProviderError, and HomeError if the sign-in could not be stored."""
        try:
            return self._sign_in(server, way)
        except KeyboardInterrupt:
            self.dialog.say("\nInterrupted: nobody is signed in anew, and nothing was stored.")
            raise

    def _sign_in(self, server: str, way: Way) -> SignedIn:
        from hermes.honcho.browser_sign_in import BrowserSignIn  # it loads an HTTP server

        check_storable(self.machine)
        endpoints = find_endpoints(server, self.machine.env)
        if way == "auto":
            way = "paste" if self.usual_way == "device" and not endpoints.device else self.usual_way
        if way == "device":
            return self._sign_in_by_code(endpoints)
        check_page(endpoints)
        with BrowserSignIn(endpoints, "cli", shown_path(self.machine)) as waiting:
            if way == "browser":
                self.dialog.say("A browser opens for you to sign in. If none does, open this address:")
                threading.Thread(target=_open_browser, args=(waiting.url,), daemon=True).start()
            else:
                self.dialog.say("Open this address in a browser and sign in:")
            self.dialog.say(waiting.url)
            if way == "browser":
                self.dialog.say("Waiting for up to five minutes; Ctrl-C ends it.")
            if way == "paste":
                self._ask_address(waiting)
            return make_signed_in(endpoints, waiting.finish())

    def _sign_in_by_code(self, endpoints: Endpoints) -> SignedIn:
        if not endpoints.device:
            hint = "`hermes honcho login --paste` works there"
            raise ProviderError(f"{hide_url(endpoints.server)} offers no sign-in by code", hint=hint)
        return make_signed_in(endpoints, sign_in_by_code(endpoints, "cli", self.dialog.say))

    def _ask_address(self, waiting: BrowserSignIn) -> None:
        """Ask for the address until it is valid; an empty answer waits for a browser on this machine."""
        if not self.dialog.can_ask:
            return
        self.dialog.say("The last page may not load: its address, which begins with http://127.0.0.1, is all it takes.")
        while address := self.dialog.ask("Paste that address, or Enter to wait for a browser on this machine"):
            try:
                waiting.take_pasted(address)
                return
            except UsageError as error:
                self.dialog.say(error.message)


def make_signed_in(endpoints: Endpoints, answer: TokenResponse) -> SignedIn:
    """Return the sign-in in a token response. Raises TokenError if it could never be renewed."""
    if not answer.refresh_token:
        raise TokenError("the server sent no refresh token")
    now = time.time()
    first = SignIn("", "", None, endpoints.client_id, endpoints.token, endpoints.server, now, endpoints.scope)
    return SignedIn(first.renewed(answer, now), suggested(answer.config))


def sign_out(machine: Machine) -> None:
    """Remove the sign-in in force from the file, and revoke it if the server supports that. The server stays
    configured, so that memory waits for it. Raises NotFoundError if nobody is signed in."""
    config = machine.load().checked()
    if config.sign_in is None and own_sign_in(machine) is None:
        raise NotFoundError("nobody is signed in here", hint="`hermes honcho status` shows what is sent to the server")
    if config.has_foreign_sign_in:
        raise UsageError(f"the sign-in at the root of {config.file} is another program's", hint="Sign out there")
    removed: list[SignIn] = []
    edit_document(machine.places, _drop(removed, at_root=config.sign_in_layer == ROOT, server=find_server(config).url))
    for one in removed:
        revoke(one, machine.env)


def _drop(removed: list[SignIn], *, at_root: bool, server: str) -> Edit:
    def edit(block: Block, root: Block) -> None:
        target = root if at_root else block
        if (found := read_sign_in(target)) is not None:
            removed[:] = [found]
            del target[keys.API_KEY.key], target[keys.OAUTH.key]
        if server == CLOUD and not any(one.get(keys.BASE_URL.key) for one in (block, root)):
            block[keys.BASE_URL.key] = CLOUD

    return edit


def own_sign_in(machine: Machine) -> SignIn | None:
    """Return the sign-in in the host block, even one that was made for another server."""
    return read_sign_in(read_document(machine.places.existing(), machine.places).block)


def revoke_replaced(before: SignIn | None, machine: Machine) -> None:
    """Revoke the earlier sign-in of the host block if it was replaced or removed."""
    now = own_sign_in(machine)
    if before is not None and (now is None or now.granted_at != before.granted_at or now.server != before.server):
        revoke(before, machine.env)


def revoke(sign_in: SignIn, env: Mapping[str, str]) -> None:
    """Revoke a grant at the server. Failures are ignored."""
    url = find_endpoints(sign_in.made_for, env).revoke if sign_in.made_for else ""
    form = {"token": sign_in.refresh_token, "token_type_hint": "refresh_token", "client_id": sign_in.client_id}
    if url:
        with suppress(ProviderError):
            post_form(url, form, REVOKE_SECONDS)


def keep_unset(config: HonchoConfiguration, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those values whose keys nobody has set."""
    rows = {row.key: row for row in keys.TABLE}
    return {name: value for name, value in values.items() if config.settings.origin(rows[name]) == DEFAULT}


def check_storable(machine: Machine) -> None:
    """Raise HomeError if a sign-in could not be stored, before anybody makes one."""
    folder = (machine.places.existing() or machine.places.default).parent
    try:
        if folder.exists():
            check_room(folder)
    except OSError as error:
        raise unwritable(folder, error) from error


def shown_path(machine: Machine) -> str:
    """Return the configuration's path for display: relative to the user's folder, or its name alone."""
    path = machine.places.existing() or machine.places.default
    home = Path(machine.env["HOME"]) if machine.env.get("HOME") else Path.home()
    return f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else path.name


def can_open_browser(env: Mapping[str, str]) -> bool:
    """Return True if a browser opened here is visible to the person."""
    if env.get("BROWSER"):
        return True
    if any(env.get(name) for name in REMOTE):
        return False
    return sys.platform in ("darwin", "win32") or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))


def _open_browser(url: str) -> None:
    with suppress(webbrowser.Error, OSError):
        webbrowser.open(url)
