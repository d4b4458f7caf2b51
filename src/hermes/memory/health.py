"""The health of a provider. A failure is reported once when it starts, and once when it ends.

There is one health per provider and process. A hook may fail in one conversation and work in another: the log reports
the first failure and the last recovery, and each conversation of the owner gets notices about what affects it.
"""

from __future__ import annotations

import logging

from hermes.memory.provider import STILL_IN_FORCE

log = logging.getLogger("hermes.memory")

EVERYWHERE = ""
"""The key of failures that affect all conversations: the plugin's own hooks, deliveries."""

MAX_LOGGED_REASONS = 20
"""Limits the logged reasons of one failing hook until it works again."""

OFFERED_BY_SESSION = frozenset({"tools", "prompt_block"})
"""Hooks with fixed offers of a session. Their errors are reported apart from an outage, which is one notice however
many hooks fail."""

LATE_NOTICE = "memory did not answer in time: this reply goes without it"


class ProviderHealth:
    """The health of one provider, hook by hook and conversation by conversation."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._failing: dict[str, dict[str, str]] = {}
        self._logged: dict[str, set[str]] = {}

    def missed(self, hook: str, reason: str, whose: str = EVERYWHERE) -> None:
        """Record that the hook failed, and log each new reason."""
        logged = self._logged.setdefault(hook, set())
        if reason not in logged and len(logged) < MAX_LOGGED_REASONS:
            logged.add(reason)
            named = reason if hook in reason else f"{reason} ({hook})"
            log.warning("memory provider %s: %s", self._provider, named)
        self._failing.setdefault(hook, {})[whose] = reason

    def worked(self, hook: str, whose: str = EVERYWHERE) -> None:
        """Record a success, and log it after a failure."""
        failing = self._failing.get(hook)
        if failing is None or failing.pop(whose, None) is None or failing:
            return
        del self._failing[hook], self._logged[hook]
        log.info("memory provider %s: %s works again", self._provider, hook)

    def forget(self, whose: str) -> None:
        """Drop the failures of a closed conversation."""
        for hook in [hook for hook, failing in self._failing.items() if failing.pop(whose, None) and not failing]:
            del self._failing[hook], self._logged[hook]

    def failing(self, whose: str = EVERYWHERE) -> dict[str, str]:
        """Return the reasons of current failures by hook, of all conversations and of this one."""
        concerned = {whose, EVERYWHERE}
        return {
            hook: next(reason for who, reason in failing.items() if who in concerned)
            for hook, failing in self._failing.items()
            if concerned & failing.keys()
        }


class Told:
    """The health notices that one conversation has received."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self.failing: dict[str, str] = {}
        """The failures that the conversation knows of."""

    def news(self, failing: dict[str, str]) -> list[str]:
        """Return at most one line about new failures, and one about recovery."""
        was_out, is_out = self.failing.keys() - OFFERED_BY_SESSION, failing.keys() - OFFERED_BY_SESSION
        began = [hook for hook in failing if hook not in self.failing and not (was_out and hook in is_out)]
        ended = [hook for hook in self.failing if hook not in failing and not (is_out and hook in was_out)]
        self.failing = dict(failing)
        lines = []
        if began:
            reason = failing[began[0]]
            continues = "" if reason.endswith(STILL_IN_FORCE) else "; going on without it"
            lines.append(f"memory provider {self._provider}: {reason}{continues}")
        if ended:
            rest = ", but not all of it" if failing else ""
            lines.append(f"memory provider {self._provider} works again{rest}")
        return lines


class LateRecallNotice:
    """Reports the first turn in a row that got no recalled text because memory was too late."""

    def __init__(self) -> None:
        self._is_late = False
        self._is_reported = False

    def recalled(self, text: str, *, missed: bool) -> None:
        """Record the recall of a turn."""
        self._is_late = missed and not text
        self._is_reported = self._is_reported and self._is_late

    def news(self, failing: dict[str, str]) -> list[str]:
        """Return the notice once; nothing if failures are reported anyway."""
        is_new = self._is_late and not self._is_reported and not failing
        self._is_reported = self._is_reported or self._is_late
        return [LATE_NOTICE] if is_new else []
