"""Vectors of a second embedder: computed in the background, used at once, and never compared with another kind."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import func, select

from hermes.memory_server.db.schema import open_database, open_for_work
from hermes.memory_server.db.tables import finer_progress, finer_vectors, messages
from hermes.memory_server.embedder import PIECE_CHARS, Embedder, EmbeddingEndpoint, Vector
from hermes.memory_server.engine import embedding
from tests.compression.hand_clock import HandClock
from tests.memory_server.embeddings import DIMENSION, Answer, FavouriteWordEmbedder, endpoint, in_favour_of, vectors
from tests.memory_server.inside import serving
from tests.memory_server.sdk import eventually
from tests.memory_server.serving import kill, start, stop
from tests.memory_server.storage import transaction

SAID = [f"We talked about the garden, part {n}." for n in range(58)]
TALK = [*SAID[:30], "We talked about the walnut tree in the garden.", *SAID[30:], "The plum tree of the garden is old."]
QUESTION = "What about the garden?"


@asynccontextmanager
async def served(folder: Path, finer: Embedder | None) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(open_database(folder), work=open_for_work(folder), finer=finer) as client:
        yield client


async def fill(client: httpx.AsyncClient) -> None:
    for number in range(3):  # sessions of 20 messages: what one is about counts the same for all
        part = TALK[20 * number : 20 * number + 20]
        said = [{"content": text, "peer_id": ("ann", "bob")[place % 2]} for place, text in enumerate(part)]
        answer = await client.post(f"/v3/workspaces/w/sessions/s{number}/messages", json={"messages": said})
        assert answer.status_code == 201


async def search(client: httpx.AsyncClient, question: str = QUESTION) -> list[str]:
    answer = await client.post("/v3/workspaces/w/search", json={"query": question, "limit": 60})
    return [row["content"] for row in answer.raise_for_status().json()]


async def finer_health(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get("/health")
    assert answer.status_code == 200, "a search without finer vectors is a search"
    said: dict[str, Any] = answer.json()["finer_vectors"]
    return said


async def all_embedded(client: httpx.AsyncClient) -> None:
    told = await eventually(lambda: finer_health(client), lambda said: said["messages_without"] == 0)
    assert told["state"] == "ok"


@pytest.mark.contract("9.14")
async def test_health_that_nobody_asked_for_a_while_counts_anew(tmp_path: Path) -> None:
    held, clock = FavouriteWordEmbedder("taste", "walnut", most=0), HandClock()
    async with serving(open_database(tmp_path), clock, work=open_for_work(tmp_path), finer=held) as client:
        assert (await finer_health(client))["messages_without"] == 0
        await fill(client)
        clock.advance(3600)
        assert (await finer_health(client))["messages_without"] == 60
        held.goes_on.set()


def spaces(folder: Path) -> set[str]:
    with transaction(folder) as tx:
        return set(tx.execute(select(finer_vectors.c.space).distinct()).scalars())


async def test_finer_vectors_decide_among_the_best_as_soon_as_they_are_there(tmp_path: Path) -> None:
    async with served(tmp_path, None) as client:
        await fill(client)
        plain = await search(client)
        assert "walnut" not in plain[0], "or the test would prove nothing"
    held = FavouriteWordEmbedder("taste", "walnut", most=0)
    async with served(tmp_path, held) as client:
        await held.is_held.wait()
        assert await search(client) == plain, "as long as there are none, all is as it was"
        told = await eventually(lambda: finer_health(client), lambda said: said["messages_without"] is not None)
        assert told == {"embedder": "taste", "state": "ok", "messages_without": 60, "messages_refused": 0}
        held.goes_on.set()
        await all_embedded(client)
        assert "walnut" in (await search(client))[0]
        await client.post(
            "/v3/workspaces/w/sessions/s/messages",
            json={"messages": [{"content": "Another walnut of the garden.", "peer_id": "bob"}]},
        )
        await eventually(lambda: search(client), lambda found: all("walnut" in text for text in found[:2]))


class OneScript(FavouriteWordEmbedder):
    """An embedder that reads only questions, or only other texts; it returns zeros for the rest."""

    def __init__(self, *, reads_questions: bool) -> None:
        super().__init__("one-script", "walnut")
        self._reads_questions = reads_questions

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        read = [text.rstrip().endswith("?") is self._reads_questions for text in texts]
        return [vector * np.float32(known) for vector, known in zip(await super().embed(texts), read, strict=True)]


@pytest.mark.parametrize("reads_questions", [True, False])
async def test_what_the_embedder_cannot_read_is_found_as_without_it(tmp_path: Path, *, reads_questions: bool) -> None:
    async def scored(client: httpx.AsyncClient) -> list[tuple[str, float]]:
        answer = await client.post("/v3/workspaces/w/ext/search", json={"query": QUESTION, "limit": 60})
        return [(row["message"]["content"], row["score"]) for row in answer.raise_for_status().json()]

    async with served(tmp_path, None) as client:
        await fill(client)
        plain = await scored(client)
    async with served(tmp_path, OneScript(reads_questions=reads_questions)) as client:
        await all_embedded(client)
        assert await scored(client) == plain


@pytest.mark.contract("9.14")
async def test_another_embedder_replaces_vectors_and_no_search_compares_two_kinds(tmp_path: Path) -> None:
    async with served(tmp_path, None) as client:
        await fill(client)
        plain = await search(client)
    first = FavouriteWordEmbedder("first", "walnut", most=48)
    async with served(tmp_path, first) as client:
        await first.is_held.wait()
    assert spaces(tmp_path) == {f"first ({DIMENSION} numbers)"}, "it ended in the middle"
    second = FavouriteWordEmbedder("second", "plum", most=0)
    async with served(tmp_path, second) as client:
        await second.is_held.wait()
        assert await search(client) == plain, "vectors of the first are there, and are not looked at"
        second._most = 20
        second.goes_on.set()
        await all_embedded(client)
        assert "plum" in (await search(client))[0]
    assert spaces(tmp_path) == {f"second ({DIMENSION} numbers)"}


async def test_who_comes_back_goes_on_where_it_ended(tmp_path: Path) -> None:
    async with served(tmp_path, None) as client:
        await fill(client)
    first = FavouriteWordEmbedder("taste", "walnut", most=40)
    async with served(tmp_path, first) as client:
        await first.is_held.wait()
    with transaction(tmp_path) as tx:
        done = tx.execute(select(func.count()).select_from(finer_vectors)).scalar_one()
    assert 0 < done < len(TALK)
    again = FavouriteWordEmbedder("taste", "walnut")
    async with served(tmp_path, again) as client:
        await all_embedded(client)
    assert again.texts <= 2 * (len(TALK) - done), "each alone, and together with the one before it"


async def test_of_two_embedders_on_a_folder_the_one_that_began_last_fills_it(tmp_path: Path) -> None:
    async with served(tmp_path, None) as client:
        await fill(client)
    first, second = FavouriteWordEmbedder("first", "walnut", most=0), FavouriteWordEmbedder("second", "plum")
    async with served(tmp_path, first) as one:
        await first.is_held.wait()
        async with served(tmp_path, second) as other:
            await all_embedded(other)
            first.goes_on.set()
            told = await eventually(lambda: finer_health(one), lambda said: said["state"] != "ok")
            assert told["state"] == f"this folder is now embedded with second ({DIMENSION} numbers)"
            assert "plum" in (await search(other))[0]
            assert "walnut" not in (await search(one))[0]
    assert spaces(tmp_path) == {f"second ({DIMENSION} numbers)"}


async def listed(client: httpx.AsyncClient, session: str) -> list[dict[str, Any]]:
    answer = await client.post(f"/v3/workspaces/w/sessions/{session}/messages/list?size=60", json={})
    rows: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
    return rows


async def forget(client: httpx.AsyncClient, session: str, message: dict[str, Any]) -> None:
    answer = await client.delete(f"/v3/workspaces/w/ext/sessions/{session}/messages/{message['id']}")
    answer.raise_for_status()


def embedded(folder: Path) -> dict[str, bytes]:
    """Return the messages that have a vector, each with its first one."""
    both = finer_vectors.join(messages, messages.c.id == finer_vectors.c.message_id)
    query = select(messages.c.content, finer_vectors.c.vector).select_from(both).where(finer_vectors.c.piece == 0)
    with transaction(folder) as tx:
        return {row.content: row.vector for row in tx.execute(query)}


async def test_deleted_message_leaves_no_part_in_any_vector(tmp_path: Path) -> None:
    taste = FavouriteWordEmbedder("taste", "walnut")
    async with served(tmp_path, taste) as client:
        await fill(client)
        await all_embedded(client)
        rows = await listed(client, "s1")
        place, gone = next((n, row) for n, row in enumerate(rows) if "walnut" in row["content"])
        taste._most = 0
        await forget(client, "s1", gone)
        await taste.is_held.wait()
        left = embedded(tmp_path)
        assert rows[place + 1]["content"] not in left, "it was embedded together with the one before it"
        assert rows[place + 2]["content"] in left
        taste.goes_on.set()


async def test_message_after_a_deleted_one_is_embedded_again_and_no_other(tmp_path: Path) -> None:
    taste = FavouriteWordEmbedder("taste", "walnut")
    async with served(tmp_path, taste) as client:
        await fill(client)
        await all_embedded(client)
        before, texts = embedded(tmp_path), taste.texts
        rows = await listed(client, "s1")
        place, gone = next((n, row) for n, row in enumerate(rows) if "walnut" in row["content"])
        await forget(client, "s1", gone)
        after = rows[place + 1]["content"]
        assert await eventually(lambda: _embedded(tmp_path), lambda left: after in left)
        assert embedded(tmp_path)[after] != before[after], "nothing of the walnut is left in it"
        assert embedded(tmp_path).keys() == before.keys() - {gone["content"]}
        assert taste.texts == texts + 1, "itself: what is before it now is no other's"


async def test_vector_made_with_a_message_further_back_goes_with_that_message(tmp_path: Path) -> None:
    taste = FavouriteWordEmbedder("taste", "walnut")
    async with served(tmp_path, taste) as client:
        texts = (("The walnut.", "ann"), ("A gap.", "ann"), ("Yes.", "bob"), ("The end.", "bob"))
        said = [{"content": text, "peer_id": peer} for text, peer in texts]
        await client.post("/v3/workspaces/w/sessions/s/messages", json={"messages": said})
        await all_embedded(client)
        rows = await listed(client, "s")
        await forget(client, "s", rows[1])
        made_with = await eventually(lambda: _embedded(tmp_path), lambda left: "Yes." in left and "A gap." not in left)
        await forget(client, "s", rows[0])
        await eventually(
            lambda: _embedded(tmp_path), lambda left: left.get("Yes.", made_with["Yes."]) != made_with["Yes."]
        )


async def _embedded(folder: Path) -> dict[str, bytes]:
    return embedded(folder)


def refusing(is_refused: Callable[[str], bool]) -> Answer:
    """Return an endpoint that refuses a request if one of its texts is refused."""
    good = in_favour_of("walnut")
    return lambda texts: (400, {"error": "no"}) if any(map(is_refused, texts)) else good(texts)


async def say(client: httpx.AsyncClient, workspace: str, texts: list[str]) -> None:
    said = [{"content": text, "peer_id": "ann"} for text in texts]
    answer = await client.post(f"/v3/workspaces/{workspace}/sessions/s/messages", json={"messages": said})
    assert answer.status_code == 201


async def test_refused_message_is_reported_and_retried_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "POLL_SECONDS", 0.05)
    with endpoint(refusing(lambda text: "poison" in text)) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some")) as client:
            for workspace in ("a", "b"):
                await say(client, workspace, [*SAID[:20], f"A poison for {workspace}.", "After it.", *SAID[20:40]])
            told = await eventually(
                lambda: finer_health(client), lambda it: (it["messages_refused"], it["messages_without"]) == (2, 0)
            )
            assert told["state"] == "ok"
            assert embedded(tmp_path).keys() == {*SAID[:40], "After it."}
            asked = len(there.asked)
            await say(client, "a", ["Something new."])
            await eventually(lambda: _embedded(tmp_path), lambda left: "Something new." in left)
            assert not any("poison" in text for texts in there.asked[asked:] for text in texts), "it is left alone"
        there.answer = in_favour_of("walnut")
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some")) as client:
            await eventually(lambda: _embedded(tmp_path), lambda left: "A poison for a." in left)
            await eventually(lambda: finer_health(client), lambda said: said["messages_refused"] == 0)


async def test_message_is_cut_for_a_model_that_takes_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "POLL_SECONDS", 0.05)
    long = ["字" * 5000, "words " * 300]
    with endpoint(refusing(lambda text: len(text) > 300)) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some")) as client:
            await say(client, "w", [*long, "Short."])
            await eventually(lambda: _embedded(tmp_path), lambda left: left.keys() == {*long, "Short."})


@pytest.mark.parametrize("failure", ["503", "429", "no answer"])
async def test_message_whose_request_fails_for_a_while_is_embedded_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    for name, seconds in {"POLL_SECONDS": 0.05, "FIRST_RETRY_SECONDS": 0.01}.items():
        monkeypatch.setattr(embedding, name, seconds)
    if failure == "no answer":
        monkeypatch.setattr(embedding, "REQUEST_TIMEOUT_SECONDS", 1.0)
    long, good, failed = "words " * 100, in_favour_of("walnut"), list[str]()

    def answer(texts: Any) -> tuple[int, Any]:
        if not any("words" in text for text in texts) or len(failed) == 5:
            return good(texts)
        failed.append(failure)
        if failure == "no answer":
            time.sleep(1.5)
            return good(texts)
        return int(failure), {}

    with endpoint(answer) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some", dimension=DIMENSION)) as client:
            await say(client, "w", [long, "Short."])
            await eventually(lambda: _embedded(tmp_path), lambda left: left.keys() == {long, "Short."})
    assert len(failed) == 5
    assert {text for texts in there.asked for text in texts if "words" in text} <= {long, f"{long}\nShort."}


async def test_message_that_always_fails_stops_no_other_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "POLL_SECONDS", 0.01)
    good = in_favour_of("walnut")
    with endpoint(lambda texts: (500, {}) if any("poison" in text for text in texts) else good(texts)) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some")) as client:
            await say(client, "w", ["A poison.", *SAID[:20]])
            over = {"messages_refused": 1, "messages_without": 0, "state": "ok"}
            await eventually(lambda: finer_health(client), lambda said: {**said, **over} == said)
    assert embedded(tmp_path).keys() == {*SAID[:20]}


async def test_request_is_never_longer_than_a_slow_model_can_answer(tmp_path: Path) -> None:
    with endpoint(in_favour_of("walnut")) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some")) as client:
            await say(client, "w", ["wörd" * 200, "x" * 899, "y" * 890, "z" * 20_000] * 5)
            await all_embedded(client)
            await client.post("/v3/workspaces/w/search", json={"query": "long question " * 300})
    assert len(there.asked) > 10
    assert max(len(text) for texts in there.asked for text in texts) <= PIECE_CHARS
    assert max(sum(map(len, texts)) for texts in there.asked) <= 8000


async def test_batch_that_is_too_much_for_a_model_is_asked_for_in_smaller_parts(tmp_path: Path) -> None:
    good = in_favour_of("walnut")
    with endpoint(lambda texts: (413, {}) if sum(map(len, texts)) > 200 else good(texts)) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some")) as client:
            await fill(client)
            await all_embedded(client)
            assert (await finer_health(client))["messages_refused"] == 0
    assert len(embedded(tmp_path)) == len(TALK)


async def test_endpoint_that_is_down_refuses_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(embedding, "MAX_RETRY_SECONDS", 0.01)
    with endpoint(lambda _texts: (503, {})) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some", dimension=DIMENSION)) as client:
            await fill(client)
            await eventually(lambda: finer_health(client), lambda _said: len(there.asked) > 20)
            told = await finer_health(client)
            assert "status 503" in told["state"]
            there.answer = in_favour_of("walnut")
            await all_embedded(client)
            assert (await finer_health(client))["messages_refused"] == 0
    assert len(embedded(tmp_path)) == len(TALK)


async def test_refused_long_question_stops_neither_short_ones_nor_background_embedding(tmp_path: Path) -> None:
    with endpoint(refusing(lambda text: "enormous" in text)) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some")) as client:
            await fill(client)
            await all_embedded(client)
            for _ in range(3):
                asked = {"query": "enormous question " * 100, "limit": 5}
                assert (await client.post("/v3/workspaces/w/search", json=asked)).status_code == 200
            assert "status 400" in (await finer_health(client))["state"]
            await say(client, "w", ["Something new."])
            await eventually(lambda: _embedded(tmp_path), lambda left: "Something new." in left)
            assert "walnut" in (await search(client))[0]


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ((500, {"error": "broken"}), "status 500"),
        ((200, b"<html>"), "a response without vectors"),
        ((200, {"data": []}), "0 vectors for"),
        ((200, vectors([[0.5] * DIMENSION] * 99)), "vectors for"),
        ((200, vectors([[float("nan")] * DIMENSION])), "an invalid vector"),
    ],
)
async def test_endpoint_that_answers_nonsense_is_told_by_health_and_searches_go_on(
    tmp_path: Path, said: tuple[int, Any], state: str
) -> None:
    async with served(tmp_path, None) as client:
        await fill(client)
        plain = await search(client)
    with endpoint(lambda _texts: said) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some")) as client:
            assert await search(client) == plain
            told = await eventually(lambda: finer_health(client), lambda told: told["state"] != "ok")
            assert state in told["state"]
            assert await search(client) == plain
    assert spaces(tmp_path) == set()


async def test_endpoint_whose_vectors_change_their_size_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "FIRST_RETRY_SECONDS", 0.01)
    with endpoint(in_favour_of("walnut")) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some", "the key")) as client:
            await fill(client)
            await all_embedded(client)
            assert "walnut" in (await search(client))[0]
            there.answer = lambda texts: (200, vectors([[1.0] * (DIMENSION + 1)] * len(texts)))
            assert len(await search(client, "Which garden?")) == 60
            told = await finer_health(client)
            assert "vector of 17 numbers, and earlier one of 16" in told["state"]
            there.answer = in_favour_of("walnut")
            await eventually(lambda: search(client, "Which garden?"), lambda found: "walnut" in found[0])
            assert (await finer_health(client))["state"] == "ok"
        assert there.keys == {"Bearer the key"}


async def test_what_is_secret_in_the_url_of_an_endpoint_is_neither_told_nor_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("httpx", "httpcore"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
    with caplog.at_level(logging.DEBUG), endpoint(in_favour_of("walnut")) as there:
        url = there.url.replace("http://", "http://ann:s3cret@") + "?key=s3cret"
        async with served(tmp_path, EmbeddingEndpoint(url, "some")) as client:
            await fill(client)
            await all_embedded(client)
            there.answer = lambda _texts: (500, {})
            await search(client)
            told = await finer_health(client)
            assert "status 500" in told["state"]
            assert "s3cret" not in str(told)
        assert there.paths == {"/v1/embeddings?key=s3cret"}
    assert spaces(tmp_path) == {f"{there.url} some ({DIMENSION} numbers)"}
    assert "status 500" in caplog.text
    assert "s3cret" not in caplog.text
    assert not any(b"s3cret" in path.read_bytes() for path in tmp_path.iterdir())


async def test_what_goes_to_an_endpoint_on_this_machine_passes_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with endpoint(in_favour_of("walnut")) as there, endpoint(in_favour_of("walnut")) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        [vector] = await EmbeddingEndpoint(there.url, "some").embed(["a walnut"])
        assert len(vector) == DIMENSION
        assert (there.asked, proxy.asked) == ([["a walnut"]], [])


async def test_what_a_turn_asks_for_waits_for_no_finer_vector(tmp_path: Path) -> None:
    view = {"observer_id": "bob", "observed_id": "ann", "searched": True}
    read = {"session_id": "s0", "tokens": 100, "views": [view], "search_query": QUESTION}
    with endpoint(in_favour_of("walnut")) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some", dimension=DIMENSION)) as client:
            await fill(client)
            await all_embedded(client)
            for route, body in (("evidence", {"query": QUESTION}), ("context", read)):
                (await client.post(f"/v3/workspaces/w/ext/{route}", json=body)).raise_for_status()
            assert not any(QUESTION in texts for texts in there.asked)
            await search(client)
            assert any(QUESTION in texts for texts in there.asked), "a search does wait"


async def test_slow_endpoint_keeps_no_search_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"ASK_TIMEOUT_SECONDS": 0.05, "FIRST_RETRY_SECONDS": 3600.0}.items():
        monkeypatch.setattr(embedding, name, seconds)
    over = threading.Event()
    with endpoint(in_favour_of("walnut")) as there:
        async with served(tmp_path, EmbeddingEndpoint(there.url, "some", dimension=DIMENSION)) as client:
            await fill(client)
            await all_embedded(client)

            def answer_late(texts: Any) -> tuple[int, Any]:
                over.wait(200)
                return in_favour_of("walnut")(texts)

            there.answer = answer_late
            assert len(await search(client)) == 60
            assert (await finer_health(client))["state"] == "TimeoutError: no answer in time"
            assert len(await search(client)) == 60
            asked = [texts for texts in there.asked if QUESTION in texts]  # it may hear late of what nobody waits for
            assert len(asked) <= 1, "it is not asked again at once"
            over.set()


@pytest.mark.processes
def test_server_killed_while_it_embeds_goes_on_after_the_next_start(tmp_path: Path) -> None:
    with endpoint(in_favour_of("walnut")) as there:
        chosen = {"HERMES_FINER_EMBEDDER": "endpoint", "HERMES_EMBEDDINGS_URL": there.url}
        server = start(tmp_path)
        with server.client() as client:
            said = [{"content": f"{text} {n}", "peer_id": "ann"} for n in range(5) for text in TALK[:60]]
            for begin in range(0, 300, 100):
                path = "/v3/workspaces/w/sessions/s/messages"
                assert client.post(path, json={"messages": said[begin : begin + 100]}).status_code == 201
        stop(server)
        good, killed = in_favour_of("walnut"), threading.Event()

        def answer(texts: Any) -> tuple[int, Any]:
            if len(there.asked) > 5:
                killed.wait(200)
            return good(texts)

        there.answer = answer
        server = start(tmp_path, **chosen)
        wait_for(lambda: len(there.asked) > 5)
        kill(server)
        killed.set()
        with transaction(tmp_path) as tx:
            before = tx.execute(select(finer_progress.c.upto)).scalar_one()
            assert tx.execute(select(func.max(finer_vectors.c.message_id))).scalar_one() == before < 300
        asked = len(there.asked)
        there.answer = good
        server = start(tmp_path, **chosen)
        with server.client() as client:
            wait_for(lambda: client.get("/health").json()["finer_vectors"]["messages_without"] == 0)
        stop(server)
        again = [text for texts in there.asked[asked:] for text in texts if "\n" not in text and text != "ready"]
        assert sorted(again) == sorted(row["content"] for row in said[before:]), "nothing twice, nothing left out"
    with transaction(tmp_path) as tx:
        assert tx.execute(select(func.count()).select_from(finer_vectors)).scalar_one() == 300


def wait_for(look: Any) -> None:
    end = time.monotonic() + 100
    while not look():
        assert time.monotonic() < end
        time.sleep(0.05)
