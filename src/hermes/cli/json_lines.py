"""The output of `hermes chat --json`: one line per event, and for a single question a last line with its outcome.
Scripts rely on this format: docs/scripting.md describes it, and fields are never removed."""

from __future__ import annotations

import json
from typing import Literal

from msgspec import Struct, to_builtins

from hermes.errors import HermesError
from hermes.events import Failed, Replied, Stopped, TurnEvent

INTERRUPTED_EXIT_CODE = 130


class TokenUsage(Struct, frozen=True):
    """Token counts as reported by the endpoint."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Ended(Struct, frozen=True):
    """The last line for a single question. `reply` is partial if the turn was stopped or failed."""

    reason: Literal["replied", "stopped", "failed", "refused"]
    """`refused` means that no turn was started."""
    exit_code: int
    session_id: str | None = None
    reply: str = ""
    usage: TokenUsage | None = None
    """Usage reported by the endpoint; None if it reports none."""
    error: str | None = None


def outcome_of(last: TurnEvent | HermesError) -> Ended:
    """Return the outcome from a turn's last event, or from the error that prevented the turn."""
    match last:
        case Replied(session_id=session_id, text=text):
            has_usage = last.prompt_tokens is not None or last.completion_tokens is not None
            used = TokenUsage(last.prompt_tokens, last.completion_tokens) if has_usage else None
            return Ended("replied", 0, session_id, text, used)
        case Stopped(session_id=session_id, text=text):
            return Ended("stopped", INTERRUPTED_EXIT_CODE, session_id, text)
        case Failed(session_id=session_id, message=message, text=text):
            return Ended("failed", 1, session_id, text, error=message)
        case HermesError():
            return Ended("refused", last.exit_code, error=last.line())
        case _:
            raise AssertionError(f"a turn ends with its reply, a stop or a failure, not with {last}")


def event_line(event: TurnEvent | Ended) -> str:
    """Return an event as one line of JSON; `type` is its class name."""
    return json.dumps({"type": type(event).__name__, **to_builtins(event)}, ensure_ascii=False)
