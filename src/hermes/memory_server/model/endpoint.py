"""The state of one model endpoint in this process: the request form it accepts, and whether it is down."""

from __future__ import annotations

import asyncio
import logging

from hermes.clock import Clock
from hermes.llm.discover import list_models
from hermes.llm.endpoint import Endpoint
from hermes.llm.events import ModelFailed
from hermes.llm.offer import ConfiguredModel, ModelOffer
from hermes.llm.openai_compatible import OpenAICompatible
from hermes.llm.timeouts import Retries, Timeouts
from hermes.memory_server.model.answer import ModelFailure
from hermes.memory_server.model.settings import GUESSED_WINDOW_TOKENS, ModelClass, ModelSettings

log = logging.getLogger(__name__)
TIMEOUTS = Timeouts(first_byte=900.0, idle=300.0, silence=900.0, total=1800.0, named="")
"""Long timeouts, since a small machine may read a long prompt for minutes; callers have their own deadlines."""
FIRST_BACK_OFF_SECONDS, MAX_BACK_OFF_SECONDS = 5.0, 600.0
PROBE_SECONDS = 60.0
"""While one request probes whether the endpoint is back, all others are refused for at most this long."""
IMMEDIATE_DOWN_KINDS = ("refused", "auth", "rate_limited")
"""Failures that mark an endpoint as down immediately; others do so after `MAX_FAILURES` in a row."""
MAX_FAILURES = 3


class ModelEndpoint:
    """A model at an endpoint. Construction does not use the network."""

    def __init__(self, settings: ModelSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self.takes_schema = self.takes_tools = True
        """True if the endpoint accepts `response_format` and `tools`; learned from its refusals."""
        self.thinks = False
        """True if the model spends answer tokens on thoughts, and so needs more of them."""
        self.is_tight = False
        """True if the endpoint refused a request as too long; less of its window is used since."""
        self.tested: ModelClass | None = None
        """Class that the self-test found."""
        self.testing: asyncio.Task[None] | None = None
        self.last_failure: ModelFailed | None = None
        self.last_failure_at: float | None = None
        self._failures = 0
        self._back_off = 0.0
        self._down_until = 0.0
        self.is_down = False
        key = settings.key or None
        where = Endpoint.parse(settings.url, key)
        self.place = f"{where.scheme}://{where.netloc}{where.path}"
        offer = ModelOffer(self.place, settings.name, lambda: list_models(settings.url, key), self._open, clock)
        is_guess = settings.window is None
        self.model = ConfiguredModel(offer, settings.window or GUESSED_WINDOW_TOKENS, is_guess=is_guess)

    def _open(self, name: str, length: int | None) -> OpenAICompatible:
        return OpenAICompatible(
            self.settings.url,
            name,
            api_key=self.settings.key or None,
            context_length=length or self.settings.window or GUESSED_WINDOW_TOKENS,
            timeouts=TIMEOUTS,
            retries=Retries(max_retries=0),  # each request is counted, so the client must not repeat it
            clock=self._clock,
        )

    def refuse(self) -> ModelFailure | None:
        """Return the reason why the endpoint must not be asked now, else None. After the back-off one request goes
        through."""
        now = self._clock.now()
        left = self._down_until - now
        if 0 < left <= MAX_BACK_OFF_SECONDS:
            return ModelFailure("down", self.last_failure.message if self.last_failure else "it failed", left)
        if self.is_down:
            self._down_until = now + PROBE_SECONDS
        return None

    def worked(self) -> bool:
        """Record a success. Return True if the endpoint was down before."""
        was_down, self.is_down = self.is_down, False
        self._failures, self._back_off, self._down_until = 0, 0.0, 0.0
        if was_down:
            log.info("memory server: the model at %s answers again", self.place)
        return was_down

    def failed(self, failed: ModelFailed) -> ModelFailure:
        """Record a failure. It is logged once; each further failure extends the back-off."""
        now = self._clock.now()
        self.last_failure, self.last_failure_at = failed, now
        self._failures += 1
        if failed.kind not in IMMEDIATE_DOWN_KINDS and self._failures < MAX_FAILURES and not self.is_down:
            return ModelFailure(failed.kind, failed.message, failed.retry_after or 0.0)
        wished = max(failed.retry_after or 0.0, 2 * self._back_off, FIRST_BACK_OFF_SECONDS)
        self._back_off = min(wished, MAX_BACK_OFF_SECONDS)
        self._down_until = now + self._back_off
        if not self.is_down:
            log.warning("memory server: answers are made without a model for now: %s", failed.message)
        self.is_down = True
        return ModelFailure(failed.kind, failed.message, self._back_off)
