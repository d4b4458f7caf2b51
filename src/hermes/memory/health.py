"""What works of a provider and what does not: said once when it starts, and once when it ends.

One per provider and process. A hook may fail in one conversation and work in another; the log says when the first one
fails and when the last one works again, and each conversation of the owner's is told of what concerns it.
"""

from __future__ import annotations

import logging

log = logging.getLogger("hermes.memory")

EVERYWHERE = ""
"""Whose failure concerns every conversation: the plugin's own hooks, deliveries."""


class Health:
    """The health of one provider, hook by hook and conversation by conversation."""

    def __init__(self, provider: str) -> None:
        self.failures = 0
        """How often a hook gave nothing that could be used, also where it was skipped because of another."""
        self._provider = provider
        self._failing: dict[str, dict[str, str]] = {}

    def missed(self, hook: str, reason: str, whose: str = EVERYWHERE) -> None:
        """The hook failed. The first time it is logged."""
        self.failures += 1
        if hook not in self._failing:
            log.warning("memory provider %s: %s", self._provider, reason)
        self._failing.setdefault(hook, {})[whose] = reason

    def skipped(self) -> None:
        """A hook was not called because of another one, whose failure was said."""
        self.failures += 1

    def worked(self, hook: str, whose: str = EVERYWHERE) -> None:
        """The hook did what it should. After a failure it is logged."""
        failing = self._failing.get(hook)
        if failing is None or failing.pop(whose, None) is None or failing:
            return
        del self._failing[hook]
        log.info("memory provider %s: %s works again", self._provider, hook)

    def forget(self, whose: str) -> None:
        """A conversation is closed: what failed in it is no longer known."""
        for hook in [hook for hook, failing in self._failing.items() if failing.pop(whose, None) and not failing]:
            del self._failing[hook]

    def failing(self, whose: str = EVERYWHERE) -> dict[str, str]:
        """Why, by hook, of all that fails everywhere or in one conversation."""
        concerned = {whose, EVERYWHERE}
        return {
            hook: next(reason for who, reason in failing.items() if who in concerned)
            for hook, failing in self._failing.items()
            if concerned & failing.keys()
        }


class Told:
    """What one conversation was told of a provider's health."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self.failing: dict[str, str] = {}
        """What it was told that fails."""

    def news(self, failing: dict[str, str]) -> list[str]:
        """At most one line about what began to fail since the last time, and one about what works again."""
        began = [hook for hook in failing if hook not in self.failing]
        ended = [hook for hook in self.failing if hook not in failing]
        self.failing = dict(failing)
        lines = []
        if began:
            first, *others = began
            also = f" (so did {', '.join(others)})" if others else ""
            lines.append(f"memory provider {self._provider}: {failing[first]}{also}; going on without it")
        if ended:
            lines.append(f"memory provider {self._provider} works again ({', '.join(ended)})")
        return lines
