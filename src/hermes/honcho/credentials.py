"""Credentials of requests: a fixed key, or the token of a sign-in, which is renewed while in use."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol

from hermes.clock import Clock
from hermes.errors import HermesError
from hermes.honcho.failures import SignedOut
from hermes.honcho.grant import SignIn
from hermes.honcho.renewal import LOGIN, Renewal

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
            raise SignedOut("the sign-in is being renewed, which takes longer than this can wait")
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
