"""Finding endpoints and their models."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from hermes.errors import ModelError
from hermes.llm.discover import PROBES, ListedModel, LocalEndpoint, Probe, chat_models, find_local, list_models
from hermes.types import Json
from tests.llm.calling import KEY, closed_port
from tests.llm.loopback import Answer, LoopbackServer, fails

OLLAMA, LM_STUDIO, LLAMA_CPP = PROBES


def page(body: Json) -> Answer:
    return Answer(body=json.dumps(body))


def at(probe: Probe, server: LoopbackServer) -> Probe:
    return replace(probe, port=server.port)


OLLAMA_PAGES = {
    "/api/tags": page({"models": [{"name": "qwen3:8b"}, {"name": "gemma3:4b"}]}),
    "/api/ps": page({"models": [{"name": "qwen3:8b", "context_length": 4096}]}),
}
LM_STUDIO_PAGES = {
    "/v1/models": page({"data": [{"id": "gemma"}]}),
    "/api/v0/models": page({"data": [{"id": "gemma", "max_context_length": 9, "loaded_context_length": 8192}]}),
}
LLAMA_CPP_PAGES = {
    "/v1/models": page({"object": "list", "data": [{"id": "model.gguf"}]}),
    "/props": page({"default_generation_settings": {"n_ctx": 16384}}),
}


async def test_every_kind_of_server_on_this_machine_is_found() -> None:
    async with (
        LoopbackServer(pages=OLLAMA_PAGES) as ollama,
        LoopbackServer(pages=LM_STUDIO_PAGES) as studio,
        LoopbackServer(pages=LLAMA_CPP_PAGES) as llama,
    ):
        found = await find_local((at(OLLAMA, ollama), at(LM_STUDIO, studio), at(LLAMA_CPP, llama)), timeout=30)
        assert found == [
            LocalEndpoint("ollama", ollama.base_url, ("qwen3:8b", "gemma3:4b"), 4096),
            LocalEndpoint("lm-studio", studio.base_url, ("gemma",), 8192),
            LocalEndpoint("llama.cpp", llama.base_url, ("model.gguf",), 16384),
        ]


async def test_a_server_that_does_not_tell_its_context_length_is_found_without_it() -> None:
    async with LoopbackServer(pages={"/api/tags": page({"models": []})}) as server:
        assert await find_local((at(OLLAMA, server),), timeout=30) == [LocalEndpoint("ollama", server.base_url, ())]


@pytest.mark.parametrize("answer", [fails(404), page({"hello": 1}), Answer(body="<html>"), Answer(ending="drop")])
async def test_another_program_on_the_port_is_not_taken_for_one(answer: Answer) -> None:
    async with LoopbackServer(pages={"/v1/models": answer}) as server:
        assert await find_local((at(LLAMA_CPP, server),), timeout=30) == []


async def test_a_port_that_is_closed_or_silent_is_passed_over() -> None:
    with closed_port() as port:
        async with LoopbackServer(pages={"/v1/models": Answer(body="{}", delay=60)}) as server:
            assert await find_local((replace(OLLAMA, port=port), at(LLAMA_CPP, server)), timeout=0.1) == []


async def test_models_are_listed_in_the_endpoints_order_with_their_context_lengths() -> None:
    models = [{"id": "b", "max_model_len": 4096}, {"id": "a", "context_length": 9000}, {"id": "c"}, {"no": "name"}]
    models.append({"id": "d", "context_length": 10**30})
    models.append({"id": "e", "meta": {"n_ctx": 8192, "n_ctx_train": 32768}})  # llama.cpp
    async with LoopbackServer(pages={"/v1/models": page({"data": models})}) as server:
        listed = await list_models(server.base_url, KEY)
    known = [ListedModel("b", 4096), ListedModel("a", 9000), ListedModel("c"), ListedModel("d"), ListedModel("e", 8192)]
    assert listed == known


def test_models_made_for_something_else_are_passed_over_where_others_are_there() -> None:
    named = [
        "nomic-embed-text",
        "bge-reranker",
        "whisper-1",
        "tts-1-hd",
        "DALL-E-3",
        "omni-moderation",
        "tea-2",
        "tea-1",
    ]
    assert chat_models(named) == ["tea-2", "tea-1"]
    assert chat_models(["nomic-embed-text"]) == ["nomic-embed-text"], "there is nothing else"


@pytest.mark.parametrize("answer", [fails(401, f"bad key {KEY}"), page({"hello": 1}), Answer(body="<html>")])
async def test_an_endpoint_that_lists_nothing_is_an_error_and_not_an_empty_list(answer: Answer) -> None:
    async with LoopbackServer(pages={"/v1/models": answer}) as server:
        with pytest.raises(ModelError) as raised:
            await list_models(server.base_url, KEY)
    assert f"127.0.0.1:{server.port}" in raised.value.line()
    assert KEY not in raised.value.line()
