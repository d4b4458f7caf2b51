"""Defects of the reference server (3.0.12) that this server does not have, with a test for each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from honcho import Honcho

from tests.memory_server.sdk import connected, eventually
from tests.memory_server.serving import kill, running, start

pytestmark = pytest.mark.processes


async def test_search_from_a_peers_perspective_includes_its_earlier_messages(honcho: Honcho) -> None:
    session, alice = honcho.session("talk"), honcho.peer("alice")
    session.add_messages(alice.message("My cat is called Mozart."))
    session.add_messages(alice.message("It rains."))
    found = honcho.search("Mozart", filters={"peer_perspective": "alice"})
    assert found[0].content == "My cat is called Mozart."


async def test_perspective_ends_when_a_peer_leaves_and_begins_again_when_it_returns(honcho: Honcho) -> None:
    session, alice, bob = honcho.session("talk"), honcho.peer("alice"), honcho.peer("bob")
    session.add_messages([bob.message("before she came")])
    session.add_peers(alice)
    session.add_messages([bob.message("while she was there", created_at="2001-01-01T00:00:00Z")])
    session.remove_peers(alice)
    session.add_messages([bob.message("while she was away")])
    session.add_peers(alice)
    session.add_messages([bob.message("after she returned")])
    seen = {message.content for message in honcho.search("she", filters={"peer_perspective": "alice"})}
    assert seen == {"while she was there", "after she returned"}


async def test_who_stays_when_the_members_are_said_anew_has_not_been_away(honcho: Honcho) -> None:
    session, alice, bob = honcho.session("talk"), honcho.peer("alice"), honcho.peer("bob")
    session.add_messages([bob.message("before anything changed")])
    session.set_peers([alice, bob])
    session.set_peers([bob])
    seen = {message.content for message in honcho.search("changed", filters={"peer_perspective": "bob"})}
    assert seen == {"before anything changed"}
    assert honcho.search("changed", filters={"peer_perspective": "alice"}) == []


async def test_clone_stays_in_its_workspace_when_another_has_a_session_of_that_name(
    honcho: Honcho, workspace: str
) -> None:
    async with connected(honcho.base_url, workspace + "-other") as other:
        for client, text in ((honcho, "ours"), (other, "theirs")):
            client.session("talk").add_messages([client.peer("alice").message(text)])
        copy = honcho.session("talk").clone()
        assert [message.content for message in copy.messages()] == ["ours"]


@pytest.mark.contract("9.1")
async def test_message_acknowledged_before_a_kill_is_processed_afterwards(tmp_path: Path) -> None:
    served = start(tmp_path, "--no-worker")
    async with connected(served.url, "w") as client:
        client.session("talk").add_messages([client.peer("alice").message("I live in Malta.")])
    kill(served)
    with running(tmp_path) as again:
        async with connected(again.url, "w") as client:
            alice = client.peer("alice")
            text = await eventually(lambda: asyncio.to_thread(alice.representation))
            assert "Malta" in text


async def test_queue_status_of_an_observer_counts_what_will_change_its_view(honcho: Honcho) -> None:
    session, alice = honcho.session("talk"), honcho.peer("alice")
    session.add_messages([alice.message("I live in Malta.")])
    assert honcho.queue_status(observer="alice").total_work_units == 1
    assert honcho.queue_status(observer="bob").total_work_units == 0


@pytest.mark.parametrize("query", ["What's the cat's name?", "cat-like; Mozart.", '"Mozart" AND (', "mozart*"])
async def test_punctuation_in_a_query_is_no_operator_and_words_are_still_ranked(honcho: Honcho, query: str) -> None:
    session, alice = honcho.session("talk"), honcho.peer("alice")
    session.add_messages([alice.message(f"Filler number {n}.") for n in range(30)])
    session.add_messages(alice.message("The cats are named Mozart and Haydn."))
    assert honcho.search(query, limit=3)[0].content == "The cats are named Mozart and Haydn."


async def test_part_of_a_word_and_words_without_spaces_are_found(honcho: Honcho) -> None:
    session, alice = honcho.session("talk"), honcho.peer("alice")
    session.add_messages(
        [alice.message("私はマルタに住んでいます"), alice.message("Unrelated."), alice.message("Xylophones!")]
    )
    assert honcho.search("マルタ", limit=1)[0].content == "私はマルタに住んでいます"
    assert honcho.search("ylophon", limit=1)[0].content == "Xylophones!"


async def test_server_starts_without_a_network(tmp_path: Path) -> None:
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    with running(tmp_path, HF_HUB_OFFLINE="1", HOME=str(tmp_path), **nowhere) as served, served.client() as http:
        made = http.post("/v3/workspaces/w/sessions/s/messages", json={"messages": [{"content": "hi", "peer_id": "a"}]})
        assert made.json()[0]["token_count"] == 1


async def test_small_talk_is_remembered_at_once_and_not_after_half_an_hour(honcho: Honcho) -> None:
    session, alice = honcho.session("talk"), honcho.peer("alice")
    session.add_messages([alice.message("I like tea.")])
    text = await eventually(lambda: asyncio.to_thread(alice.representation))
    assert "I like tea." in text
