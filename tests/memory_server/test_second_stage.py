"""Vectors of a second embedder rank messages, conclusions and answers; a card is made without a model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from hermes.memory_server.db.schema import open_database, open_for_work
from hermes.memory_server.minilm import MiniLm
from tests.memory_server.inside import serving
from tests.memory_server.sdk import eventually

LIFE = (
    ("2025-01-02T08:00:00Z", "My name is Dana and I live in Chicago."),
    ("2025-01-03T08:00:00Z", "My husband's name is Tom."),
    ("2025-01-04T08:00:00Z", "I'm allergic to penicillin."),
    ("2025-01-05T08:00:00Z", "Our vet is Dr. Simmons at the clinic on Damen."),
    ("2025-01-06T08:00:00Z", "How do you get grass stains out of white pants?"),
    ("2025-01-07T08:00:00Z", "We just adopted a dog! She's a beagle mix called Pepper."),
    ("2025-07-19T08:00:00Z", "We have a new vet, Dr. Abrams on North Avenue."),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    folder: Path = tmp_path_factory.mktemp("life")
    async with serving(open_database(folder), work=open_for_work(folder), finer=MiniLm()) as client:
        said = [{"content": text, "peer_id": "dana", "created_at": at} for at, text in LIFE]
        path = "/v3/workspaces/w/sessions/s/messages"
        (await client.post(path, json={"messages": said})).raise_for_status()

        async def health() -> dict[str, object]:
            answer: dict[str, object] = (await client.get("/health")).json()["finer_vectors"]
            return answer

        async def conclusions() -> list[str]:
            found = await client.post("/v3/workspaces/w/conclusions/list", json={})
            return [row["content"] for row in found.json()["items"]]

        await eventually(conclusions, lambda held: any("Abrams" in line for line in held))
        await eventually(health, lambda state: state["messages_without"] == 0)
        yield client


async def ask(client: httpx.AsyncClient, question: str) -> str:
    answer = await client.post("/v3/workspaces/w/peers/dana/chat", json={"query": question})
    return str(answer.raise_for_status().json()["content"])


@pytest.mark.asyncio(loop_scope="module")
async def test_what_holds_now_is_first_in_search_and_conclusions(told: httpx.AsyncClient) -> None:
    question = {"query": "Who is our vet?"}
    asked = {**question, "top_k": 1, "filters": {"observer": "dana", "observed": "dana"}}

    async def first(path: str, body: dict[str, object]) -> str:
        return str((await told.post(f"/v3/workspaces/w/{path}", json=body)).json()[0]["content"])

    # A question that waited too long for its vector goes without, and the next ones for two seconds.
    await eventually(lambda: first("search", {**question, "limit": 1}), lambda found: "Abrams" in found)
    await eventually(lambda: first("conclusions/query", asked), lambda found: "Abrams" in found)


@pytest.mark.asyncio(loop_scope="module")
async def test_answer_begins_with_the_whole_message_that_fits_best(told: httpx.AsyncClient) -> None:
    lines = [line for line in (await ask(told, "What's the name of my dog?")).splitlines() if line.startswith("- ")]
    assert lines[0].endswith("dana: We just adopted a dog! She's a beagle mix called Pepper.")


@pytest.mark.asyncio(loop_scope="module")
async def test_question_whose_words_nothing_comes_close_to_has_no_answer(told: httpx.AsyncClient) -> None:
    assert await ask(told, "When does my passport expire?") == "None"
    assert "was not told the answer" not in await ask(told, "Who is our vet?")


@pytest.mark.asyncio(loop_scope="module")
async def test_card_has_name_health_and_family_without_a_dream(told: httpx.AsyncClient) -> None:
    card = "\n".join((await told.get("/v3/workspaces/w/peers/dana/card")).json()["peer_card"])
    assert "My name is Dana" in card
    assert "penicillin" in card
    assert "Tom" in card
    assert "grass stains" not in card
