"""What works of a provider and what does not: a person is told once when it starts, and once when it ends."""

from __future__ import annotations

import logging

log = logging.getLogger("hermes.memory")


class Health:
    """The health of one provider, hook by hook."""

    def __init__(self, provider: str) -> None:
        self.failures = 0
        """How often a hook gave nothing that could be used, also where it was skipped because of another."""
        self.failing: dict[str, str] = {}
        """Why, by hook, as long as it lasts."""
        self._provider = provider
        self._began: dict[str, str] = {}
        self._ended: dict[str, None] = {}

    def missed(self, hook: str, reason: str) -> None:
        """The hook failed. The first time it is said."""
        self.failures += 1
        if hook not in self.failing:
            log.warning("memory provider %s: %s", self._provider, reason)
            self._began[hook] = reason
            self._ended.pop(hook, None)
        self.failing[hook] = reason

    def skipped(self) -> None:
        """A hook was not called because of another one, whose failure was said."""
        self.failures += 1

    def worked(self, hook: str) -> None:
        """The hook did what it should. After a failure it is said."""
        if self.failing.pop(hook, None) is not None:
            log.info("memory provider %s: %s works again", self._provider, hook)
            self._ended[hook] = None

    def take_notices(self) -> list[str]:
        """What a person should hear now: at most one line about failures and one about recoveries."""
        lines = []
        if self._began:
            first, *others = self._began
            also = f" (so did {', '.join(others)})" if others else ""
            lines.append(f"memory provider {self._provider}: {self._began[first]}{also}; going on without it")
        if self._ended:
            lines.append(f"memory provider {self._provider} works again ({', '.join(self._ended)})")
        self._began, self._ended = {}, {}
        return lines
