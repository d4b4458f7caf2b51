"""The interface of a model, as the other packages use it.

The address of a model endpoint, with secrets that are sent to it but never shown.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from hermes.errors import SettingsError
from hermes.llm.events import ModelEvent
from hermes.loopback import is_loopback
from hermes.types import Json, ToolSpec


class ModelRequest(Struct, frozen=True):
    """One call to a model: messages in wire format, and the tools it may call. `max_tokens` None means the endpoint's
    default. `tokens` is the estimated size of the request, if already counted."""

    messages: Sequence[dict[str, Json]]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    tokens: int | None = None
    response_format: Json = None
    """A response format in OpenAI's notation; few endpoints support it."""
    may_resend: Callable[[], Awaitable[bool]] | None = None
    """Called before a refused request is sent again in another form; a result of False prevents that."""


def tool_to_wire(tool: ToolSpec) -> dict[str, Json]:
    """Return the tool in the format of OpenAI-compatible endpoints."""
    described = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": described}


class Model(Protocol):
    """A model that can be called."""

    @property
    def name(self) -> str:
        """The model's name at the endpoint."""

    @property
    def context_length(self) -> int:
        """The maximum of request and reply together, in tokens."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply as it arrives; the last event is Completed or ModelFailed. Must not raise for endpoint
        failures.

        Wrap it in `contextlib.aclosing` to hang up at once when leaving early.
        """

    async def close(self) -> None:
        """Close connections. A later `stream` opens new ones."""


URL_HINT = "It looks like https://api.example.com/v1 or http://127.0.0.1:11434/v1"
KEY_HINT = "Copy the key again, without spaces"
SHORT_SECRET_CHARS = 8
UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104 - nothing is bound: as targets, these addresses mean this machine


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A validated address. `repr` and `hide` keep its key out of sight."""

    scheme: str
    netloc: str
    path: str
    query: str
    _authorization: str | None = field(repr=False)
    _secrets: tuple[str, ...] = field(repr=False)

    @classmethod
    def parse(cls, base_url: str, api_key: str | None = None) -> Endpoint:
        """Parse a URL and key. A user and password in the URL become a header. Raises SettingsError if either is
        unusable."""
        parts = _split(base_url)
        key = (api_key or "").strip()
        if not key.isascii() or not key.isprintable() or " " in key:
            raise SettingsError("the API key contains characters that are not allowed in a key", hint=KEY_HINT)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        basic = base64.b64encode(f"{user}:{password}".encode()).decode() if user or password else ""
        authorization = f"Bearer {key}" if key else f"Basic {basic}" if basic else None
        return cls(
            scheme=parts.scheme.lower(),
            netloc=parts.netloc.rpartition("@")[2],
            path=parts.path.rstrip("/").removesuffix("/chat/completions"),
            query=parts.query,
            _authorization=authorization,
            _secrets=tuple(secret for secret in (key, password, basic) if secret),
        )

    @property
    def is_loopback(self) -> bool:
        """True if the endpoint is on this machine, so that no proxy may be used."""
        host = (urlsplit(f"//{self.netloc}").hostname or "").rstrip(".")
        return is_loopback(host) or host.endswith(".localhost") or host in UNSPECIFIED

    def url(self, path: str) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}{path}" + (f"?{self.query}" if self.query else "")

    def headers(self) -> dict[str, str]:
        """Return the Authorization header, if there is one."""
        return {"Authorization": self._authorization} if self._authorization else {}

    def hide(self, text: str) -> str:
        """Return `text` with the secrets replaced, for people and logs."""
        for secret in self._secrets:
            # A short key ("none", "x") is only a secret where it stands alone.
            edge = r"(?<!\w){}(?!\w)" if len(secret) < SHORT_SECRET_CHARS else "{}"
            text = re.sub(edge.format(re.escape(secret)), "***", text)
        return text


def _split(base_url: str) -> SplitResult:
    try:
        parts = urlsplit(base_url.strip())
        usable = parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() for character in base_url.strip()):
        shown = base_url.strip().rpartition("@")[2]
        raise SettingsError(f"'{shown}' is not the URL of a model endpoint", hint=URL_HINT)
    return parts
