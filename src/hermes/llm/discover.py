"""Endpoints on this machine, and the models of an endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from hermes.errors import ModelError
from hermes.llm.assemble import mapping, mappings, string
from hermes.llm.connection import ConnectionPool
from hermes.llm.endpoint import Endpoint
from hermes.llm.failures import ModelFault, bad_reply, from_status, read_error
from hermes.llm.patience import Patience, Timeouts
from hermes.types import Json

LARGEST_LIST = 16 * 1024 * 1024
MOST_TOKENS = 2**53
"""No context is as long: what an endpoint says beyond it is no length."""
LENGTHS = ("context_length", "max_model_len", "context_window")
"""How endpoints call the length of a model's context."""
NO_TALK = ("embed", "rerank", "whisper", "tts", "dall-e", "moderation")
"""What the names of models hold that are made for something else than talking."""
GLANCE = 0.3
"""Seconds that each question to this machine may take."""


class NoModelListError(ModelError):
    """An endpoint answers, and does not list its models: a name that is configured may be asked for all the same."""


class ListedModel(Struct, frozen=True):
    """A model that an endpoint offers, with its context length where the endpoint tells."""

    name: str
    context_length: int | None = None


LocalServerKind = Literal["ollama", "lm-studio", "llama.cpp"]
"""The kinds of server that are looked for."""


class LocalEndpoint(Struct, frozen=True):
    """Something on this machine that answers. `context_length` is what it has loaded, where it tells."""

    kind: LocalServerKind
    base_url: str
    models: tuple[str, ...]
    context_length: int | None = None


class Probe(Struct, frozen=True):
    """How to recognise one kind of server: a path that lists its models, and one that tells its context length."""

    kind: LocalServerKind
    port: int
    models_path: str
    context_path: str
    read_context: Callable[[Json], int | None]


def _largest(values: list[Json]) -> int | None:
    counts = [value for value in values if isinstance(value, int) and 0 < value < MOST_TOKENS]
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


async def find_local(probes: tuple[Probe, ...] = PROBES, timeout: float = GLANCE) -> list[LocalEndpoint]:
    """The model servers that run on this machine, in the order of `probes`; each is given `timeout` to answer."""
    found = await asyncio.gather(*(_probe(probe, timeout) for probe in probes))
    return [endpoint for endpoint in found if endpoint is not None]


async def list_models(base_url: str, api_key: str | None = None, timeout: float = 10.0) -> list[ListedModel]:
    """The models that an endpoint offers, in its own order. Raises ModelError when it does not say."""
    endpoint = Endpoint.parse(base_url, api_key)
    try:
        models = _read_models(await _fetch(endpoint, "/models", timeout))
        if models is None:
            raise bad_reply(endpoint, "no list of models")
    except ModelFault as fault:
        answers = fault.kind in ("bad_request", "bad_reply")
        raise (NoModelListError if answers else ModelError)(fault.message) from fault
    return models


def talking(names: Sequence[str]) -> list[str]:
    """Those of an endpoint's models that talk, to go by their names; all of them where none seems to. The first answers
    where nobody chose one."""
    return [name for name in names if not any(word in name.lower() for word in NO_TALK)] or list(names)


async def _probe(probe: Probe, timeout: float) -> LocalEndpoint | None:
    """What answers there, or None when nothing does that we know."""
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
    """The JSON at `path`, or a ModelFault."""
    timeouts = Timeouts(connect=timeout, first_byte=timeout, idle=timeout, total=timeout, named="")
    connection = ConnectionPool(endpoint, timeouts)
    try:
        async with connection.exchange("GET", path, Patience(timeout)) as answer:
            text = await answer.text(LARGEST_LIST)
    finally:
        await connection.close()
    if answer.status != 200:
        raise from_status(endpoint, answer.status, read_error(text))
    try:
        return json.loads(text)
    except ValueError as error:
        raise bad_reply(endpoint, read_error(text).message, "check the URL; most end in /v1") from error


def _read_models(body: Json) -> list[ListedModel] | None:
    """The models of a list in OpenAI's or Ollama's shape, None when it is neither."""
    entries = mapping(body).get("data", mapping(body).get("models"))
    if not isinstance(entries, list):
        return None
    named = [(string(entry.get("id")) or string(entry.get("name")), entry) for entry in mappings(entries)]
    return [ListedModel(name, _context_length(entry)) for name, entry in named if name]


def _context_length(entry: Mapping[str, Json]) -> int | None:
    """What an endpoint tells of a model; llama.cpp tells what it has loaded beside what the model could take."""
    return _largest([*(entry.get(key) for key in LENGTHS), mapping(entry.get("meta")).get("n_ctx")])
