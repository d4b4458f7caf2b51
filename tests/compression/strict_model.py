"""A model with a strict context window, as real endpoints have."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hermes.llm.events import ModelFailed, Reply
from hermes.llm.model import ModelRequest
from hermes.llm.tokens import estimate_request
from tests.compression.conversations import is_summary_request
from tests.llm.scripted import ScriptedAnswer, ScriptedModel

TOO_LONG = ModelFailed("context_too_long", "the request is longer than the window", retryable=False)


def strict_model(
    window: int,
    *,
    replies: Iterable[Reply] = (),
    summary: Callable[[], ScriptedAnswer] = lambda: Reply("they spoke of stamps"),
    believed: int | None = None,
) -> ScriptedModel:
    """Returns `replies` in turn, then "fine"; refuses requests longer than `window`. Clients think it has
    `believed`."""
    coming = iter(replies)

    def answer(request: ModelRequest) -> ScriptedAnswer:
        if estimate_request(request.messages, request.tools) > window:
            return TOO_LONG
        return summary() if is_summary_request(request) else next(coming, Reply("fine"))

    return ScriptedModel(answer, context_length=believed or window)


def questions(model: ScriptedModel) -> list[ModelRequest]:
    """Return the requests that did not come from a compressor."""
    return [request for request in model.requests if not is_summary_request(request)]


def summaries(model: ScriptedModel) -> list[ModelRequest]:
    """Return the requests that came from a compressor."""
    return [request for request in model.requests if is_summary_request(request)]
