"""What can go wrong with an endpoint, and what it means to a person: a few tables and the functions that read them.

    HTTP status, error body, error in the stream, transport error ──> ModelFault(kind, one line) ──> ModelFailed

A line names the host, what happened and what to do. Secrets are taken out before a line is cut to length.
"""

from __future__ import annotations

import html
import json
import re
import socket
import ssl
from collections.abc import Iterator

from msgspec import Struct

from hermes.llm.assemble import mapping, mend, string
from hermes.llm.endpoint import Endpoint
from hermes.llm.events import ModelFailed, ModelFailureKind, Reply
from hermes.redaction import hide_tokens
from hermes.types import Json

TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
MESSAGE_KEYS = ("message", "msg", "detail", "error_description", "error")
CODE_KEYS = ("code", "type", "status")
DEEPEST = 6
"""Proxies wrap the error of the endpoint behind them, as JSON or as text of JSON, once or twice."""


class ErrorBody(Struct, frozen=True):
    """The innermost message, every code on the way to it, and the HTTP status if one of them was one."""

    message: str
    codes: tuple[str, ...] = ()
    status: int | None = None


def read_error(text: str) -> ErrorBody:
    """Read an error's body: JSON in any known shape, a web page, or plain text."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return read_error_value(json.loads(text))
        except (ValueError, RecursionError):
            return ErrorBody(text)
    if text.lstrip().startswith("<"):
        title = TITLE.search(text)
        return ErrorBody(f"a web page titled '{html.unescape(title[1].strip())}'" if title else "a web page")
    return ErrorBody(text.strip())


def read_error_value(value: Json) -> ErrorBody:
    """Read an error that is JSON already."""
    codes: list[str] = []
    message = mend(_read(value, codes, DEEPEST))
    statuses = [int(code) for code in codes if code.isdecimal() and 400 <= int(code[:4]) <= 599]
    return ErrorBody(message, tuple(codes), statuses[-1] if statuses else None)


def _read(value: Json, codes: list[str], depth: int) -> str:
    """The message in `value`; codes found on the way are added to `codes`."""
    if depth == 0 or value is None:
        return ""
    if isinstance(value, str):
        return _read_text(value, codes, depth)
    if isinstance(value, list):
        return next((said for entry in value if (said := _read(entry, codes, depth - 1))), "")
    fields = mapping(value)
    codes.extend(str(fields[key]) for key in CODE_KEYS if isinstance(fields.get(key), str | int))
    # What a router was told by the endpoint behind it says more than its own words.
    inner = _read(string(mapping(fields.get("metadata")).get("raw")), codes, depth - 1)
    return inner or next((said for key in MESSAGE_KEYS if (said := _read(fields.get(key), codes, depth - 1))), "")


def _read_text(text: str, codes: list[str], depth: int) -> str:
    if not text.lstrip().startswith("{"):
        return text.strip()
    try:
        return _read(json.loads(text), codes, depth - 1) or text
    except (ValueError, RecursionError):
        return text


LONGEST_DETAIL = 240


class ModelFault(Exception):
    """A failure on its way to becoming the last event. It does not leave this room."""

    def __init__(self, kind: ModelFailureKind, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after

    def to_event(self, partial: Reply) -> ModelFailed:
        return ModelFailed(self.kind, self.message, self.kind in RETRYABLE, partial, self.retry_after)


TRIED_AGAIN: frozenset[ModelFailureKind] = frozenset({"refused", "rate_limited", "server", "interrupted"})
"""What we try again ourselves. Not a time-out: who was silent for minutes would only be silent for as long again."""
RETRYABLE: frozenset[ModelFailureKind] = TRIED_AGAIN | {"timeout", "bad_reply"}
"""The same request may succeed later."""

STATUSES: dict[int, tuple[ModelFailureKind, str]] = {
    400: ("bad_request", ""),
    401: ("auth", "check the key"),
    402: ("auth", "the account has no credit left"),
    403: ("auth", "check the key and what it may use"),
    404: ("bad_request", "no such model or path; check the model's name and the URL"),
    405: ("bad_request", "check the URL; most end in /v1"),
    408: ("server", "try again"),
    413: ("context_too_long", "the request is too large; make it shorter"),
    422: ("bad_request", ""),
    425: ("server", "try again"),
    429: ("rate_limited", "too many requests; wait and try again"),
}

CODES: dict[str, tuple[ModelFailureKind, str]] = {
    "context_length_exceeded": ("context_too_long", "make the conversation shorter"),
    "exceed_context_size_error": ("context_too_long", "make the conversation shorter"),
    "insufficient_quota": ("auth", "the account has no credit left"),
    "billing_not_active": ("auth", "the account has no credit left"),
    "invalid_api_key": ("auth", "check the key"),
    "authentication_error": ("auth", "check the key"),
    "permission_error": ("auth", "check the key and what it may use"),
    "model_not_found": ("bad_request", "no such model; check the model's name"),
    "not_found_error": ("bad_request", "no such model or path; check the model's name and the URL"),
    "rate_limit_exceeded": ("rate_limited", "too many requests; wait and try again"),
    "rate_limit_error": ("rate_limited", "too many requests; wait and try again"),
    "overloaded_error": ("server", "try again later"),
}

CONTEXT_STATUSES = frozenset({400, 413, 422, 500})
"""Only with these are the words below looked for: a rate limit speaks of too many tokens, too."""

CONTEXT_PHRASES = (
    r"maximum (context|model|prompt|input|sequence) length",
    r"context (length|window|size|limit).{0,40} exceeded",
    r"exceed\w*.{0,60}(context|max\w*)[ _](length|window|size|limit|model|seq)",
    r"exceed\w* the max(imum)?.{0,30} (length|tokens|context)",
    r"(prompt|input|request)( is)? too (long|large)",
    r"too many input tokens",
    r"longer than the (model's )?(context|maximum)",
    r"(greater|larger) than the (context|maximum)",
    r"context the overflows",
    r"n_keep.{0,20}n_ctx",
    r"reduce the length of the (messages|prompt|input)",
    r"tokens.{0,4} \+ .{0,4}max_new_tokens",
)
"""How OpenAI, llama.cpp, Ollama, LM Studio, vLLM, SGLang, TGI, Anthropic, Google and others say it."""

CONTEXT_WORDS = re.compile("|".join(CONTEXT_PHRASES), re.IGNORECASE)

TRANSPORT: dict[str, tuple[ModelFailureKind, str]] = {
    "ConnectTimeout": ("refused", "does not accept the connection: is it running?"),
    "ReadTimeout": ("timeout", "sent nothing for too long"),
    "WriteTimeout": ("timeout", "takes no data"),
    "PoolTimeout": ("refused", "is busy with our other requests"),
    "ReadError": ("interrupted", "closed the connection before the reply ended"),
    "WriteError": ("interrupted", "closed the connection while the request was sent"),
    "CloseError": ("interrupted", "closed the connection before the reply ended"),
    "ConnectError": ("refused", "cannot be reached: is it running?"),
    "ProxyError": ("refused", "cannot be reached through the proxy: check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY"),
    "UnsupportedProtocol": ("bad_request", "has a URL that is neither http nor https"),
    "LocalProtocolError": ("bad_request", "cannot be sent this request"),
    "RemoteProtocolError": ("interrupted", "closed the connection before the reply ended"),
    "DecodingError": ("bad_reply", "sent data that cannot be unpacked"),
    "TooManyRedirects": ("bad_request", "redirects without end: check the URL"),
    "InvalidURL": ("bad_request", "has a URL that cannot be used"),
}
"""By the name of httpx's class, so that reading this table does not import it."""

CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "refuses the connection: is it running?"),
    (socket.gaierror, "is not a known name: check the URL and the network"),
    (ssl.SSLCertVerificationError, "has a certificate that is not trusted: check the URL, or set SSL_CERT_FILE"),
    (ssl.SSLError, "does not speak TLS here: is it http:// and not https://?"),
)
"""Why no connection was made, most telling first."""


def from_status(endpoint: Endpoint, status: int, body: ErrorBody, retry_after: float | None = None) -> ModelFault:
    """What an answer other than 200 means."""
    kind, advice = _judge(status, body)
    said = _detail(endpoint, body.message)
    line = f"{endpoint.netloc} answered {status}" + (f" ({said})" if said else "") + (f": {advice}" if advice else "")
    return ModelFault(kind, line, retry_after)


def from_stream(endpoint: Endpoint, body: ErrorBody) -> ModelFault:
    """What an error that came in place of a chunk means."""
    status = body.status or (400 if "invalid_request_error" in body.codes else 500)
    kind, advice = _judge(status, body)
    said = _detail(endpoint, body.message) or "no reason given"
    return ModelFault(kind, f"{endpoint.netloc} broke off ({said})" + (f": {advice}" if advice else ""))


def from_transport(endpoint: Endpoint, error: BaseException) -> ModelFault:
    """What a failed connection means."""
    names = [kind.__name__ for kind in type(error).__mro__]
    kind, what = next((TRANSPORT[name] for name in names if name in TRANSPORT), ("refused", "cannot be reached"))
    if "ConnectError" in names:
        causes = list(_causes(error))
        what = next((said for cause, said in CAUSES if any(isinstance(one, cause) for one in causes)), what)
    return ModelFault(kind, f"{endpoint.netloc} {what}")


def bad_reply(endpoint: Endpoint, what: str, advice: str = "is the URL that of a model endpoint?") -> ModelFault:
    """An answer of 200 that is no reply."""
    return ModelFault("bad_reply", f"{endpoint.netloc} sent {_detail(endpoint, what)}: {advice}")


def _judge(status: int, body: ErrorBody) -> tuple[ModelFailureKind, str]:
    if status in CONTEXT_STATUSES and CONTEXT_WORDS.search(body.message):
        return CODES["context_length_exceeded"]
    if status == 413:
        return STATUSES[413]
    if known := next((CODES[code] for code in body.codes if code in CODES), None):
        return known
    if status in STATUSES:
        return STATUSES[status]
    if 300 <= status < 400:
        return "bad_request", "it redirects; use the URL that it points to"
    return ("bad_request", "") if status < 500 else ("server", "try again later")


def _detail(endpoint: Endpoint, text: str) -> str:
    """`text` on one line, without secrets and control characters, cut to length."""
    hidden = hide_tokens(endpoint.hide(text))
    line = " ".join("".join(character if character.isprintable() else " " for character in hidden).split())
    return line if len(line) <= LONGEST_DETAIL else line[: LONGEST_DETAIL - 1] + "…"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _causes(inner)
        error = error.__cause__ or error.__context__
