"""Sign-in from a page: started and polled by the page's server, while a thread waits for the browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from hermes.errors import HermesError, ProviderError, UsageError
from hermes.honcho import keys
from hermes.honcho.browser_sign_in import BrowserSignIn
from hermes.honcho.config_file import edit_document, set_keys
from hermes.honcho.configuration import CLOUD, HonchoConfiguration
from hermes.honcho.oauth import Endpoints, SignInSource, check_page, find_endpoints
from hermes.honcho.remarks import describe_grant
from hermes.honcho.server import Machine, configured_server, find_server
from hermes.honcho.sign_in import (
    SignedIn,
    check_storable,
    keep_unset,
    make_signed_in,
    own_sign_in,
    revoke,
    revoke_replaced,
    shown_path,
    sign_out,
)
from hermes.memory.provider import ConnectStatus
from hermes.redaction import hide_url

STAYS_HERE = "until then memory stays on this machine"
ERROR_SECONDS = 20.0
"""How long a failure is shown, unless another sign-in begins."""


class WebSignIn:
    """See `hermes.memory.provider.Connect`. At most one sign-in runs; starting another ends it."""

    def __init__(self, machine: Machine, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._machine = machine
        self._monotonic = monotonic
        self._lock, self._storing = threading.Lock(), threading.Lock()
        self._waiting: BrowserSignIn | None = None
        self._failed: tuple[str, float] | None = None

    def begin(self, source: SignInSource) -> str:
        check_storable(self._machine)
        endpoints = find_endpoints(_meant_url(self._machine.load().checked()), self._machine.env)
        check_page(endpoints)
        waiting = BrowserSignIn(endpoints, source, shown_path(self._machine))
        self._replace(waiting)
        threading.Thread(target=self._finish, args=(waiting, endpoints), name="sign-in", daemon=True).start()
        return waiting.url

    def status(self) -> ConnectStatus:
        with self._lock:
            waiting, failed = self._waiting, self._failed
        if waiting is not None:
            return ConnectStatus("waiting")
        if failed is not None and self._monotonic() < failed[1]:
            return ConnectStatus("error", failed[0])
        config = self._machine.load()
        if (grant := config.grant) is not None:
            return ConnectStatus("connected", describe_grant(grant, time.time()))
        kept = f"; {STAYS_HERE}" if find_server(config).kind == "embedded" else ""
        return ConnectStatus("idle", f"at {hide_url(_meant_url(config))}{kept}")

    def callback(self, query: Mapping[str, str]) -> None:
        with self._lock:
            waiting = self._waiting
        if waiting is None:
            raise ProviderError("no sign-in is waiting", hint="Begin it again")
        try:
            waiting.take(query)
        except UsageError as error:
            raise ProviderError(error.message, hint="") from error

    def disconnect(self) -> None:
        self._replace(None)
        if self._machine.load().sign_in is not None or own_sign_in(self._machine) is not None:
            sign_out(self._machine)

    def _replace(self, waiting: BrowserSignIn | None) -> None:
        with self._storing, self._lock:  # what ends a sign-in comes before it is stored, or after it
            before, self._waiting, self._failed = self._waiting, waiting, None
        if before is not None:
            before.close()

    def _store(self, waiting: BrowserSignIn, made: SignedIn) -> bool:
        """Store a sign-in and revoke the one that it replaces; return False if it was ended meanwhile."""
        config, before = self._machine.load().checked(), own_sign_in(self._machine)
        used = {keys.SERVER.key: "auto"} if config.get(keys.SERVER) == "embedded" else {}
        edit = set_keys({**made.sign_in.as_keys(), **keep_unset(config, made.suggested), **used})
        with self._storing:
            if self._waiting is not waiting:
                return False
            edit_document(self._machine.places, edit)
            self._machine.choose()
            self._machine = replace(self._machine, is_chosen=True)
        revoke_replaced(before, self._machine)
        return True

    def _finish(self, waiting: BrowserSignIn, endpoints: Endpoints) -> None:
        """Wait for the tokens and store them; suggested keys that somebody has set stay."""
        problem = ""
        try:
            made = make_signed_in(endpoints, waiting.finish())
            if not self._store(waiting, made):
                revoke(made.sign_in, self._machine.env)
        except HermesError as error:
            problem = error.line()
        with self._lock:
            if self._waiting is waiting:
                self._waiting = None
                self._failed = (problem, self._monotonic() + ERROR_SECONDS) if problem else None
        waiting.close()


def _meant_url(config: HonchoConfiguration) -> str:
    """Return the URL of the server to sign in to: the configured one, else Honcho Cloud."""
    server = configured_server(config)
    return CLOUD if server.kind == "embedded" else server.url
