"""Endpoint failures and their meaning for a person: tables, and the functions that read them.

    HTTP status, error body, error in the stream, transport error ──> ModelFault(kind, one line) ──> ModelFailed

A line names the host, what happened and what to do. Secrets are removed before a line is cut to length.
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
from hermes.llm.events import ModelFailed, ModelFailureKind, Reply
from hermes.llm.model import Endpoint
from hermes.redaction import hide_tokens
from hermes.types import Json

TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
MESSAGE_KEYS = ("message", "msg", "detail", "error_description", "error")
CODE_KEYS = ("code", "type", "status")
MAX_NESTING_DEPTH = 6
"""Limits how deep an error is unwrapped: proxies nest the error of the endpoint behind them once or twice."""


class ErrorBody(Struct, frozen=True):
    """The innermost message of an error, all codes on the way to it, and the HTTP status if one of them is one."""

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
    """Read an error that is already parsed JSON."""
    codes: list[str] = []
    message = mend(_read(value, codes, MAX_NESTING_DEPTH))
    statuses = [int(code) for code in codes if code.isdecimal() and 400 <= int(code[:4]) <= 599]
    return ErrorBody(message, tuple(codes), statuses[-1] if statuses else None)


def _read(value: Json, codes: list[str], depth: int) -> str:
    """Return the message in `value`; add codes found on the way to `codes`."""
    if depth == 0 or value is None:
        return ""
    if isinstance(value, str):
        return _read_text(value, codes, depth)
    if isinstance(value, list):
        return next((said for entry in value if (said := _read(entry, codes, depth - 1))), "")
    fields = mapping(value)
    codes.extend(str(fields[key]) for key in CODE_KEYS if isinstance(fields.get(key), str | int))
    # A router's own message says less than the error it got from the endpoint behind it.
    inner = _read(string(mapping(fields.get("metadata")).get("raw")), codes, depth - 1)
    return inner or next((said for key in MESSAGE_KEYS if (said := _read(fields.get(key), codes, depth - 1))), "")


def _read_text(text: str, codes: list[str], depth: int) -> str:
    if not text.lstrip().startswith("{"):
        return text.strip()
    try:
        return _read(json.loads(text), codes, depth - 1) or text
    except (ValueError, RecursionError):
        return text


MAX_DETAIL_CHARS = 240


class ModelFault(Exception):
    """A failure that becomes the last event of a call. It is not raised outside this package."""

    def __init__(self, kind: ModelFailureKind, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after

    def to_event(self, partial: Reply) -> ModelFailed:
        return ModelFailed(self.kind, self.message, self.kind in RETRYABLE_KINDS, partial, self.retry_after)


RETRIED_KINDS: frozenset[ModelFailureKind] = frozenset({"refused", "rate_limited", "server", "interrupted"})
"""Failures that are retried automatically. Not a timeout: after minutes of silence, a retry would wait as long
again."""
RETRYABLE_KINDS: frozenset[ModelFailureKind] = RETRIED_KINDS | {"timeout", "bad_reply"}
"""Failures after which the same request may succeed later."""

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
"""The phrases below are searched only for these statuses: rate limits mention too many tokens, too."""

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
"""How OpenAI, llama.cpp, Ollama, LM Studio, vLLM, SGLang, TGI, Anthropic, Google and others report a full context."""

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
"""Keys are names of httpx classes, so that this table does not import httpx."""

CONNECT_ERROR_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "refuses the connection: is it running?"),
    (socket.gaierror, "is not a known name: check the URL and the network"),
    (ssl.SSLCertVerificationError, "has a certificate that is not trusted: check the URL, or set SSL_CERT_FILE"),
    (ssl.SSLError, "does not speak TLS here: is it http:// and not https://?"),
)
"""Reasons for a failed connection, the most specific first."""


def from_status(endpoint: Endpoint, status: int, body: ErrorBody, retry_after: float | None = None) -> ModelFault:
    """Return the fault for a response whose status is not 200."""
    kind, advice = _judge(status, body)
    said = _detail(endpoint, body.message)
    line = f"{endpoint.netloc} answered {status}" + (f" ({said})" if said else "") + (f": {advice}" if advice else "")
    return ModelFault(kind, line, retry_after)


def from_stream(endpoint: Endpoint, body: ErrorBody) -> ModelFault:
    """Return the fault for an error that was sent inside the stream."""
    status = body.status or (400 if "invalid_request_error" in body.codes else 500)
    kind, advice = _judge(status, body)
    said = _detail(endpoint, body.message) or "no reason given"
    return ModelFault(kind, f"{endpoint.netloc} broke off ({said})" + (f": {advice}" if advice else ""))


def from_transport(endpoint: Endpoint, error: BaseException) -> ModelFault:
    """Return the fault for a transport error."""
    names = [kind.__name__ for kind in type(error).__mro__]
    kind, what = next((TRANSPORT[name] for name in names if name in TRANSPORT), ("refused", "cannot be reached"))
    if "ConnectError" in names:
        causes = list(_causes(error))
        what = next(
            (said for cause, said in CONNECT_ERROR_CAUSES if any(isinstance(one, cause) for one in causes)), what
        )
    return ModelFault(kind, f"{endpoint.netloc} {what}")


def bad_reply(endpoint: Endpoint, what: str, advice: str = "is the URL that of a model endpoint?") -> ModelFault:
    """Return the fault for a response of status 200 that is not a reply."""
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
    """Return `text` on one line, without secrets and control characters, cut to length."""
    hidden = hide_tokens(endpoint.hide(text))
    line = " ".join("".join(character if character.isprintable() else " " for character in hidden).split())
    return line if len(line) <= MAX_DETAIL_CHARS else line[: MAX_DETAIL_CHARS - 1] + "…"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _causes(inner)
        error = error.__cause__ or error.__context__
