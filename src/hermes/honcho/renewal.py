"""Renewal of a sign-in: once for all tasks, threads and processes, and stored before use.

    lock ── read the file ── renewed already? use it ── reserve disk space ── exchange ── store ── use

The lock is the one that a stock Hermes takes for its own renewals. A process killed between response and store leaves
the spent token in the file; the next process sends it again, and for a short time servers return the same tokens.

Credentials of requests: a fixed key, or the token of a sign-in, which is renewed while in use.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from hermes.clock import Clock
from hermes.errors import HermesError, HomeError, ProviderError
from hermes.files import locked, room_held, unwritable
from hermes.honcho.config_file import ConfigPlaces, edit_locked_document, read_document
from hermes.honcho.configuration import CLOUD, ROOT, HonchoConfiguration
from hermes.honcho.failures import SignedOut
from hermes.honcho.grant import SignIn, TokenResponse, put_sign_in, read_sign_in
from hermes.honcho.oauth import TokenError, ask_token, default_token_url

LOGIN = "`hermes honcho login` signs in again"
NOT_RENEWED = "the sign-in to Honcho cannot be renewed now"
STILL_RENEWING = "the sign-in is being renewed, which takes longer than this can wait"
SIGNED_OUT = "nobody is signed in to Honcho any more"


class RenewalTimings(Struct, frozen=True):
    """Timeouts and pauses of a renewal, in seconds."""

    request: float = 9.0
    retry_after: float = 2.0
    """The delay before a lost response is requested again. It is short: later the server considers the token stolen."""
    total: float = 20.0
    pause: float = 30.0
    """The pause after a failure that may pass."""
    refused_pause: float = 600.0
    """The pause after a final refusal, unless somebody signs in meanwhile."""
    lock: float = 25.0


class Renewal:
    """Renews the sign-in of one profile. Thread-safe; every method blocks."""

    def __init__(
        self,
        places: ConfigPlaces,
        load: Callable[[], HonchoConfiguration],
        now: Callable[[], float],
        timings: RenewalTimings,
    ) -> None:
        self._places = places
        self._load = load
        self._now = now
        self._timings = timings
        self._turn = threading.Lock()
        self._failed: _Failed | None = None
        self._unstored: tuple[str, SignIn] | None = None

    def renew(self, spent: str) -> SignIn:
        """Return the sign-in whose access token replaces `spent`. Raises ProviderError or HomeError with a readable
        message."""
        with self._turn:
            config = self._load()
            if config.file is None or config.sign_in is None:
                config.checked()  # a file that is broken says that
                raise ProviderError(SIGNED_OUT, hint=LOGIN)
            if config.has_foreign_sign_in:
                raise ProviderError(f"the sign-in at the root of {config.file} is another program's", hint=LOGIN)
            with locked(config.file, timeout=self._timings.lock):
                return self._renew_locked(config, config.file, spent)

    def _renew_locked(self, config: HonchoConfiguration, path: Path, spent: str) -> SignIn:
        known = self._read(config, path)
        if known.access_token != spent and not known.has_ended(self._now()):
            return known  # another process has renewed it
        self._check_pause(known)
        try:
            with room_held(path.parent) as release:
                renewed = self._exchange(known)
                release()
                self._store(config, path, renewed)
        except TokenError as error:
            return self._refused(config, path, known, error)
        except OSError as error:
            self._pause(known, unwritable(path, error), self._timings.pause)
            raise unwritable(path, error) from error
        except HomeError as error:
            self._pause(known, error, self._timings.pause)
            raise
        self._failed = self._unstored = None
        return renewed

    def _exchange(self, known: SignIn) -> SignIn:
        """Exchange the refresh token, or return tokens from an earlier exchange that could not be stored."""
        if self._unstored is not None and self._unstored[0] == known.refresh_token:
            return self._unstored[1]
        renewed = known.renewed(self._ask(known), self._now())
        self._unstored = (known.refresh_token, renewed)
        return renewed

    def _ask(self, known: SignIn) -> TokenResponse:
        """Send the refresh token, and once more after a failure that may pass."""
        timings, end = self._timings, time.monotonic() + self._timings.total
        url = known.token_endpoint or default_token_url(known.server or CLOUD)
        form = {"grant_type": "refresh_token", "refresh_token": known.refresh_token, "client_id": known.client_id}
        try:
            return ask_token(url, form, timings.request)
        except TokenError as error:
            if error.is_final:
                raise
        time.sleep(timings.retry_after)
        return ask_token(url, form, min(timings.request, max(0.1, end - time.monotonic())))

    def _refused(self, config: HonchoConfiguration, path: Path, known: SignIn, error: TokenError) -> SignIn:
        """Return the sign-in if another program renewed it without our lock; else raise ProviderError."""
        now = self._read(config, path)
        if now.refresh_token != known.refresh_token and not now.has_ended(self._now()):
            return now
        if error.is_final:
            what: HermesError = ProviderError(f"Honcho no longer accepts the sign-in ({error.code})", hint=LOGIN)
            self._pause(known, what, self._timings.refused_pause)
        else:
            what = ProviderError(f"{NOT_RENEWED}: {error.message}", hint="")
            self._pause(known, what, self._timings.pause)
        raise what

    def _read(self, config: HonchoConfiguration, path: Path) -> SignIn:
        """Read the sign-in strictly: an unreadable file must not cost a token. Raises SettingsError or
        ProviderError."""
        document = read_document(path, self._places)
        found = read_sign_in(document.root if _is_at_root(config) else document.block)
        if found is None:
            raise ProviderError(SIGNED_OUT, hint=LOGIN)
        return found

    def _store(self, config: HonchoConfiguration, path: Path, renewed: SignIn) -> None:
        edit_locked_document(path, self._places, put_sign_in(renewed, at_root=_is_at_root(config)))

    def _check_pause(self, known: SignIn) -> None:
        failed = self._failed
        if failed is not None and failed.mark == _mark(known) and time.monotonic() < failed.until:
            raise ProviderError(failed.message, hint=failed.hint)

    def _pause(self, known: SignIn, error: HermesError, seconds: float) -> None:
        self._failed = _Failed(_mark(known), time.monotonic() + seconds, error.message, error.hint)


class _Failed(Struct, frozen=True):
    """The last failure, with a hash of its refresh token and the time until which that is not sent again."""

    mark: str
    until: float
    message: str
    hint: str


def _is_at_root(config: HonchoConfiguration) -> bool:
    return config.sign_in_layer == ROOT


def _mark(sign_in: SignIn) -> str:
    """Return a hash that identifies the refresh token."""
    return sha256(sign_in.refresh_token.encode()).hexdigest()


log = logging.getLogger(__name__)
FINAL_REFUSAL_SECONDS = 30.0
"""After a token was replaced because of a refusal, another refusal within this time is final."""


class Credentials(Protocol):
    """A source of the key for each request."""

    async def key(self, until: float) -> str:
        """Return the key for a request. Raises SignedOut."""

    async def after_refusal(self, key: str, until: float) -> str | None:
        """Return another key after a refusal; None without one. Raises SignedOut."""


class FixedCredentials:
    """One key for every request."""

    def __init__(self, key: str) -> None:
        self._key = key

    async def key(self, until: float) -> str:  # noqa: ARG002 - the shape
        return self._key

    async def after_refusal(self, key: str, until: float) -> str | None:  # noqa: ARG002
        return None


class SignInCredentials:
    """The current token of one sign-in, for all tasks of an event loop.

    Requests read it from memory. Shortly before it expires one task renews it while others keep using it; after expiry
    they wait for the renewal. A failed renewal before expiry is only logged.
    """

    def __init__(self, renewal: Renewal, clock: Clock) -> None:
        self._renewal = renewal
        self._clock = clock
        self._current: SignIn | None = None
        self._adopted = ""
        self._renewing: asyncio.Task[SignIn] | None = None
        self._logged = ""
        self._refused_at = -FINAL_REFUSAL_SECONDS
        self._early_from = 0.0

    def adopt(self, sign_in: SignIn) -> None:
        """Use the sign-in of the file, unless the file still has the one that was adopted before."""
        if sign_in.access_token != self._adopted:
            self._adopted, self._current = sign_in.access_token, sign_in

    async def key(self, until: float) -> str:
        now, current = self._clock.now(), self._sign_in()
        if current.has_ended(now):
            return (await self._renewed(current, until)).access_token
        if current.is_due(now) and now >= self._early_from:
            self._begin(current)
        return current.access_token

    async def after_refusal(self, key: str, until: float) -> str | None:
        current = self._sign_in()
        if current.access_token != key:
            return current.access_token  # another task has renewed it
        if self._renewing is None and time.monotonic() - self._refused_at < FINAL_REFUSAL_SECONDS:
            raise SignedOut(f"the server refuses the sign-in. {LOGIN}")
        self._refused_at = time.monotonic()
        return (await self._renewed(current, until)).access_token

    async def settle(self, seconds: float) -> None:
        """Wait for a running renewal, so that its new token is stored."""
        if self._renewing is not None:
            await asyncio.wait({self._renewing}, timeout=seconds)

    def _sign_in(self) -> SignIn:
        assert self._current is not None, "it is adopted before it is used"
        return self._current

    async def _renewed(self, spent: SignIn, until: float) -> SignIn:
        """Wait for the shared renewal; a caller's timeout does not cancel it."""
        renewing = self._begin(spent)
        await asyncio.wait({renewing}, timeout=max(0.0, until - self._clock.now()))
        if not renewing.done():
            raise SignedOut(STILL_RENEWING)
        try:
            return renewing.result()
        except HermesError as error:
            raise SignedOut(error.line()) from error

    def _begin(self, spent: SignIn) -> asyncio.Task[SignIn]:
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(spent), name="renewing the sign-in")
            self._renewing.add_done_callback(self._ended)
        return self._renewing

    async def _renew(self, spent: SignIn) -> SignIn:
        renewed = await asyncio.to_thread(self._renewal.renew, spent.access_token)
        self._current, self._adopted = renewed, renewed.access_token
        now, ends = self._clock.now(), renewed.expires_at
        # A token with a short life is due at once: half of that life passes before the next.
        self._early_from = now + (ends - now) / 2 if ends is not None and renewed.is_due(now) else now
        return renewed

    def _ended(self, task: asyncio.Task[SignIn]) -> None:
        """Log a failed renewal once; possibly no request awaited it."""
        self._renewing = None
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._logged = ""
        elif (message := error.line() if isinstance(error, HermesError) else repr(error)) != self._logged:
            self._logged = message
            log.warning("%s", message)
