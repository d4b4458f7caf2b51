"""What works of a provider and what does not: said once when it starts, and once when it ends.

One per provider and process. A hook may fail in one conversation and work in another; the log says when the first one
fails and when the last one works again, and each conversation of the owner's is told of what concerns it.
"""

from __future__ import annotations

import logging

from hermes.memory.provider import STILL_IN_FORCE

log = logging.getLogger("hermes.memory")

EVERYWHERE = ""
"""Whose failure concerns every conversation: the plugin's own hooks, deliveries."""

MAX_LOGGED_REASONS = 20
"""Reasons of one failing hook that are logged until it works again."""

OFFERED = frozenset({"tools", "prompt_block"})
"""What a session offers: a flaw of it is no outage of the provider, which is told as one, whichever hooks it fails."""

LATE = "memory was not there in time: this reply goes without it"


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
        """The hook did what it should. After a failure it is logged."""
        failing = self._failing.get(hook)
        if failing is None or failing.pop(whose, None) is None or failing:
            return
        del self._failing[hook], self._logged[hook]
        log.info("memory provider %s: %s works again", self._provider, hook)

    def forget(self, whose: str) -> None:
        """A conversation is closed: what failed in it is no longer known."""
        for hook in [hook for hook, failing in self._failing.items() if failing.pop(whose, None) and not failing]:
            del self._failing[hook], self._logged[hook]

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
        was_out, is_out = self.failing.keys() - OFFERED, failing.keys() - OFFERED
        began = [hook for hook in failing if hook not in self.failing and not (was_out and hook in is_out)]
        ended = [hook for hook in self.failing if hook not in failing and not (is_out and hook in was_out)]
        self.failing = dict(failing)
        lines = []
        if began:
            reason = failing[began[0]]
            goes_on = "" if reason.endswith(STILL_IN_FORCE) else "; going on without it"
            lines.append(f"memory provider {self._provider}: {reason}{goes_on}")
        if ended:
            rest = ", but not all of it" if failing else ""
            lines.append(f"memory provider {self._provider} works again{rest}")
        return lines


class Lateness:
    """Turns that memory brought nothing to because it was not there in time: the first of them in a row is said."""

    def __init__(self) -> None:
        self._is_late = False
        self._is_told = False

    def recalled(self, text: str, *, missed: bool) -> None:
        """What a turn was given."""
        self._is_late = missed and not text
        self._is_told = self._is_told and self._is_late

    def news(self, failing: dict[str, str]) -> list[str]:
        """The line to say, once; none where it is said what fails."""
        is_new = self._is_late and not self._is_told and not failing
        self._is_told = self._is_told or self._is_late
        return [LATE] if is_new else []
