"""What the active provider has frozen into agents, asked before each message: a change gives a fresh agent."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from hermes.memory.isolation import Answer, IsolatedProvider
from hermes.memory.provider import MemoryProvider
from hermes.types import Json

log = logging.getLogger("hermes.memory")


class SignatureWatch:
    """A provider kept for one question only; it is never started. The answer in hand stays when a new one is late."""

    def __init__(self, name: str, make: Callable[[], MemoryProvider] | None, *, deadline: float) -> None:
        self._name = name
        self._provider = IsolatedProvider(make) if make is not None else None
        self._deadline = deadline
        self._known: str | None = None
        self._said: str | None = None

    async def current(self) -> str | None:
        """The signature as one text that depends on its values alone; None without a provider or a signature."""
        if self._provider is None:
            return None

        async def ask(provider: MemoryProvider) -> dict[str, Json] | None:
            return provider.cache_busting_signature()

        found = await self._provider.call(
            "cache_busting_signature", ask, expect=(dict, type(None)), deadline=self._deadline
        )
        if isinstance(found, Answer):
            self._known = None if found.value is None else json.dumps(found.value, sort_keys=True, default=repr)
            self._said = None
        elif self._said is None:
            self._said = found.reason
            log.warning("memory provider %s: %s; its agents stay as they are", self._name, found.reason)
        return self._known

    def close(self) -> None:
        """Let the provider go."""
        if self._provider is not None:
            self._provider.close()
