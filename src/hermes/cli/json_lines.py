"""What `hermes chat --json` prints: each event of a turn as a line, and after one question a last line that says how it
ended. Scripts rely on these lines: docs/scripting.md describes them, and a field that is there stays."""

from __future__ import annotations

import json
from typing import Literal

from msgspec import Struct, to_builtins

from hermes.errors import HermesError
from hermes.events import Failed, Replied, Stopped, TurnEvent

INTERRUPTED = 130


class TokenUsage(Struct, frozen=True):
    """Tokens as the endpoint counted them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Ended(Struct, frozen=True):
    """The last line of one question. `reply` is what was said, with `stopped` and `failed` as far as it came."""

    reason: Literal["replied", "stopped", "failed", "refused"]
    """`refused`: it did not come to a turn."""
    exit_code: int
    session_id: str | None = None
    reply: str = ""
    usage: TokenUsage | None = None
    """What the endpoint says that the turn took; None where it does not say."""
    error: str | None = None


def how_it_ended(last: TurnEvent | HermesError) -> Ended:
    """What a question came to, of its last event or the error that kept it from being asked."""
    match last:
        case Replied(session_id=session_id, text=text):
            is_told = last.prompt_tokens is not None or last.completion_tokens is not None
            used = TokenUsage(last.prompt_tokens, last.completion_tokens) if is_told else None
            return Ended("replied", 0, session_id, text, used)
        case Stopped(session_id=session_id, text=text):
            return Ended("stopped", INTERRUPTED, session_id, text)
        case Failed(session_id=session_id, message=message, text=text):
            return Ended("failed", 1, session_id, text, error=message)
        case HermesError():
            return Ended("refused", last.exit_code, error=last.line())
        case _:
            raise AssertionError(f"a turn ends with its reply, a stop or a failure, not with {last}")


def event_line(event: TurnEvent | Ended) -> str:
    """An event as one line of JSON; `type` is its name."""
    return json.dumps({"type": type(event).__name__, **to_builtins(event)}, ensure_ascii=False)
