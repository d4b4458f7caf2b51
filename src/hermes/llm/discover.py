"""Discovery of model servers on this machine, and of the models that an endpoint offers.

The models of the configured endpoint: a cached list, each of them to open, and a default where none is
configured.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Literal

from msgspec import Struct

from hermes.clock import Clock
from hermes.errors import ModelError
from hermes.llm.assemble import mapping, mappings, string
from hermes.llm.connection import ConnectionPool, TimeBudget, Timeouts
from hermes.llm.events import ModelEvent, ModelFailed
from hermes.llm.failures import ModelFault, bad_reply, from_status, read_error
from hermes.llm.model import Endpoint, Model, ModelRequest
from hermes.llm.tool_use import ToolAbility
from hermes.types import Json

MAX_LIST_BYTES = 16 * 1024 * 1024
MAX_CONTEXT_TOKENS = 2**53
"""An upper bound for plausible context lengths; larger values are ignored."""
CONTEXT_LENGTH_KEYS = ("context_length", "max_model_len", "context_window")
"""The keys under which endpoints report a model's context length."""
NON_CHAT_WORDS = ("embed", "rerank", "whisper", "tts", "dall-e", "moderation")
"""Parts of model names that mark models for other uses than chat."""
PROBE_TIMEOUT_SECONDS = 0.3
"""Time limit for each request to a local server."""


class NoModelListError(ModelError):
    """An endpoint answers but does not list its models. A configured model may still work."""


class ListedModel(Struct, frozen=True):
    """A model that an endpoint offers, with its context length if the endpoint reports one."""

    name: str
    context_length: int | None = None


LocalServerKind = Literal["ollama", "lm-studio", "llama.cpp"]
"""The kinds of local server that are probed."""


class LocalEndpoint(Struct, frozen=True):
    """A model server on this machine. `context_length` is that of the loaded model, if reported."""

    kind: LocalServerKind
    base_url: str
    models: tuple[str, ...]
    context_length: int | None = None


class Probe(Struct, frozen=True):
    """How to recognise one kind of server: the path that lists its models, and the one that reports a context
    length."""

    kind: LocalServerKind
    port: int
    models_path: str
    context_path: str
    read_context: Callable[[Json], int | None]


def _largest(values: list[Json]) -> int | None:
    counts = [value for value in values if isinstance(value, int) and 0 < value < MAX_CONTEXT_TOKENS]
    return max(counts, default=None)


PROBES = (
    Probe(
        "ollama",
        11434,
        "/api/tags",
        "/api/ps",
        lambda body: _largest([model.get("context_length") for model in mappings(mapping(body).get("models"))]),
    ),
    Probe(
        "lm-studio",
        1234,
        "/v1/models",
        "/api/v0/models",
        lambda body: _largest([model.get("loaded_context_length") for model in mappings(mapping(body).get("data"))]),
    ),
    Probe(
        "llama.cpp",
        8080,
        "/v1/models",
        "/props",
        lambda body: _largest([mapping(mapping(body).get("default_generation_settings")).get("n_ctx")]),
    ),
)


async def find_local(probes: tuple[Probe, ...] = PROBES, timeout: float = PROBE_TIMEOUT_SECONDS) -> list[LocalEndpoint]:
    """Return the model servers on this machine in the order of `probes`. Each request may take `timeout` seconds."""
    found = await asyncio.gather(*(_probe(probe, timeout) for probe in probes))
    return [endpoint for endpoint in found if endpoint is not None]


async def list_models(base_url: str, api_key: str | None = None, timeout: float = 10.0) -> list[ListedModel]:
    """Return an endpoint's models in its own order. Raises ModelError if it cannot list them."""
    endpoint = Endpoint.parse(base_url, api_key)
    try:
        models = _read_models(await _fetch(endpoint, "/models", timeout))
        if models is None:
            raise bad_reply(endpoint, "no list of models")
    except ModelFault as fault:
        answers = fault.kind in ("bad_request", "bad_reply")
        raise (NoModelListError if answers else ModelError)(fault.message) from fault
    return models


def chat_models(names: Sequence[str]) -> list[str]:
    """Return the models that look like chat models by name, or all of them if none does. The first is the default."""
    return [name for name in names if not any(word in name.lower() for word in NON_CHAT_WORDS)] or list(names)


async def _probe(probe: Probe, timeout: float) -> LocalEndpoint | None:
    """Return the server that answers a probe; None without an answer of this kind."""
    root = Endpoint.parse(f"http://127.0.0.1:{probe.port}")
    try:
        models = _read_models(await _fetch(root, probe.models_path, timeout))
    except ModelFault:
        return None
    if models is None:
        return None
    try:
        context_length = probe.read_context(await _fetch(root, probe.context_path, timeout))
    except ModelFault:
        context_length = None
    return LocalEndpoint(probe.kind, root.url("/v1"), tuple(model.name for model in models), context_length)


async def _fetch(endpoint: Endpoint, path: str, timeout: float) -> Json:
    """Return the JSON at `path`. Raises ModelFault."""
    timeouts = Timeouts(connect=timeout, first_byte=timeout, idle=timeout, total=timeout, named="")
    connection = ConnectionPool(endpoint, timeouts)
    try:
        async with connection.exchange("GET", path, TimeBudget(timeout)) as answer:
            text = await answer.text(MAX_LIST_BYTES)
    finally:
        await connection.close()
    if answer.status != 200:
        raise from_status(endpoint, answer.status, read_error(text))
    try:
        return json.loads(text)
    except ValueError as error:
        raise bad_reply(endpoint, read_error(text).message, "check the URL; most end in /v1") from error


def _read_models(body: Json) -> list[ListedModel] | None:
    """Return the models of a list in OpenAI's or Ollama's shape, or None if it has neither shape."""
    entries = mapping(body).get("data", mapping(body).get("models"))
    if not isinstance(entries, list):
        return None
    named = [(string(entry.get("id")) or string(entry.get("name")), entry) for entry in mappings(entries)]
    return [ListedModel(name, _context_length(entry)) for name, entry in named if name]


def _context_length(entry: Mapping[str, Json]) -> int | None:
    """Return a model's context length. llama.cpp reports the loaded length beside the model's maximum."""
    return _largest([*(entry.get(key) for key in CONTEXT_LENGTH_KEYS), mapping(entry.get("meta")).get("n_ctx")])


LIST_CACHE_SECONDS = 60.0
"""A list is reused for this long."""


class ModelOffer(Struct):
    """The models to choose from at the configured endpoint. The endpoint is first contacted by `list`."""

    endpoint: str
    """The address for people, without a password."""
    default: str
    """The configured model; "" for the first chat model of the list."""
    find: Callable[[], Coroutine[None, None, Sequence[ListedModel]]]
    open: Callable[[str, int | None], Model]
    """Open a model by name, with its context length if known. The caller closes it."""
    clock: Clock
    tool_use: ToolAbility | None = None
    """Decides which models are offered tools; None if all are."""
    _asking: asyncio.Task[Sequence[ListedModel]] | None = None
    _asked_at: float = 0.0
    _listed: Sequence[ListedModel] = ()
    _talking: Sequence[str] = ()

    @property
    def answering(self) -> str:
        """The model for sessions that chose none; "" while that is unknown."""
        return self.default or next(iter(self._talking), "")

    @property
    def remark(self) -> str:
        """A notice for people if several models exist and none was chosen; else ""."""
        if self.default or len(self._talking) < 2:
            return ""
        return (
            f"{self.answering} answers, the first of {len(self._talking)} at {self.endpoint}; `hermes model` shows "
            "them and lets you choose one."
        )

    async def list(self) -> Sequence[ListedModel]:
        """Return the models in the endpoint's order, at most a minute old. Raises ModelError if it cannot list them.

        Concurrent callers share one request; cancelling one caller does not cancel the request for the others.
        """
        stale = self.clock.now() - self._asked_at > LIST_CACHE_SECONDS
        if self._asking is None or (self._asking.done() and (stale or _failed(self._asking))):
            self._asked_at = self.clock.now()
            self._asking = asyncio.create_task(self.find())
            self._asking.add_done_callback(_failed)
        listed = await asyncio.shield(self._asking)
        self._listed, self._talking = listed, chat_models([one.name for one in listed])
        return listed

    def context_length(self, name: str) -> int | None:
        """Return a model's context length if the latest list has it."""
        return next((one.context_length for one in self._listed if one.name == name), None)


def _failed(request: asyncio.Task[Sequence[ListedModel]]) -> bool:
    """Return True if the request failed. Reading the exception also prevents asyncio's warning that nobody did."""
    return request.cancelled() or request.exception() is not None


HOW_TO_NAME = "`hermes config set model.default NAME` names the model"
UNNAMED_MODEL = "default"
"""The model name sent to an endpoint that lists no models."""


class ConfiguredModel:
    """The `Model` for sessions that chose none. Opening it needs no network: if no model is configured, the first
    request fetches the endpoint's list, and the name is "" until then. Its context has `length` tokens; if that
    `is_guess`, the length from the list is used once it is known."""

    def __init__(self, offer: ModelOffer, length: int, *, is_guess: bool) -> None:
        self._offer = offer
        self._length = length
        self._is_guess = is_guess
        self._found: Model | None = None
        self._looking: asyncio.Task[Sequence[ListedModel]] | None = None

    @property
    def name(self) -> str:
        return self._found.name if self._found else self._offer.answering

    @property
    def context_length(self) -> int:
        listed = self._offer.context_length(self.name) if self._is_guess else None
        return listed or self._length

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if self._found is None:
            try:
                if not self._offer.default:
                    await self._offer.list()
                elif self._is_guess:
                    self._fetch_list_in_background()
            except ModelError as error:
                advice = f" ({HOW_TO_NAME})" if isinstance(error, NoModelListError) else ""
                yield ModelFailed("refused", f"{error.line()}{advice}", retryable=True)
                return
            self._found = self._offer.open(self._offer.answering or UNNAMED_MODEL, None)
        async with aclosing(self._found.stream(request)) as events:
            async for event in events:
                yield event

    def _fetch_list_in_background(self) -> None:
        """Fetch the list in the background: the request need not wait, since the model is known."""
        self._looking = asyncio.create_task(self._offer.list())
        self._looking.add_done_callback(_failed)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        if self._found is not None:
            await self._found.close()
