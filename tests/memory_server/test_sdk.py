"""Every public method of the official Python SDK against our server, synchronous and asynchronous. The same file runs
with the oldest and newest supported versions, and skips methods that the old one lacks.

The same file runs with the oldest and the newest version we promise; what an old one lacks is skipped.
"""

from __future__ import annotations

from typing import Any

import jwt
import pytest
from honcho import Honcho
from honcho.api_types import (
    PeerConfig,
    ReasoningConfiguration,
    SessionConfiguration,
    SessionPeerConfig,
    WorkspaceConfiguration,
)
from honcho.http.exceptions import (
    AuthenticationError,
    BadRequestError,
    ConflictError,
    NotFoundError,
    UnprocessableEntityError,
)
from pydantic import BaseModel

from tests.memory_server.sdk import Caller, connected, eventually
from tests.memory_server.serving import SECRET, Served

needs_newer = pytest.mark.skipif(not hasattr(Honcho, "scope"), reason="this version of the SDK does not have it")
needs_chat = pytest.mark.skipif(not hasattr(Honcho, "chat"), reason="this version of the SDK does not have it")


async def tell(call: Caller, honcho: Honcho, session: str = "talk", *texts: str) -> Any:
    """Open a session in which alice has said something."""
    opened = await call(honcho.session, session)
    alice = await call(honcho.peer, "alice")
    said = texts or ("I live in Malta.", "I collect stamps from Gozo.")
    await call(opened.add_messages, [alice.message(text) for text in said])
    return opened


async def wait_for_reasoning(call: Caller, honcho: Honcho) -> None:
    def is_done(status: Any) -> bool:
        return bool(status.pending_work_units + status.in_progress_work_units == 0)

    await eventually(lambda: call(honcho.queue_status), is_done)


@pytest.mark.contract("9.1")
async def test_workspace_keeps_metadata_and_configuration(call: Caller, honcho: Honcho, workspace: str) -> None:
    await call(honcho.set_metadata, {"colour": "blue", "deep": {"er": [1, None, True]}})
    assert await call(honcho.get_metadata) == {"colour": "blue", "deep": {"er": [1, None, True]}}
    await call(honcho.set_configuration, WorkspaceConfiguration(reasoning=ReasoningConfiguration(enabled=False)))
    configuration = await call(honcho.get_configuration)
    assert configuration.reasoning.enabled is False
    await call(honcho.refresh)
    assert honcho.metadata == {"colour": "blue", "deep": {"er": [1, None, True]}}
    assert honcho.configuration is not None
    assert workspace in await call.items(await call(honcho.workspaces, {"id": workspace}))


async def test_peer_is_made_once_and_its_metadata_is_replaced(call: Caller, honcho: Honcho) -> None:
    peer = await call(honcho.peer, "alice", metadata={"a": 1}, configuration=PeerConfig(observe_me=False))
    assert await call(peer.get_metadata) == {"a": 1}
    assert (await call(peer.get_configuration)).observe_me is False
    await call(peer.set_metadata, {"b": 2})
    await call(peer.set_configuration, PeerConfig(observe_me=True))
    again = await call(honcho.peer, "alice")
    await call(again.refresh)
    assert again.metadata == {"b": 2}
    assert again.configuration.observe_me is True
    assert [found.id for found in await call.items(await call(honcho.peers))] == ["alice"]


async def test_session_keeps_its_metadata_and_merges_its_configuration(call: Caller, honcho: Honcho) -> None:
    session = await call(honcho.session, "talk", metadata={"a": 1})
    await call(session.set_metadata, {"b": 2})
    await call(session.set_configuration, SessionConfiguration(reasoning=ReasoningConfiguration(enabled=False)))
    assert await call(session.get_metadata) == {"b": 2}
    assert (await call(session.get_configuration)).reasoning.enabled is False
    await call(session.refresh)
    assert session.is_active is True
    assert [found.id for found in await call.items(await call(honcho.sessions))] == ["talk"]


async def test_members_join_are_configured_and_leave(call: Caller, honcho: Honcho) -> None:
    session = await call(honcho.session, "talk")
    alice, bob = await call(honcho.peer, "alice"), await call(honcho.peer, "bob")
    await call(session.add_peers, [(alice, SessionPeerConfig(observe_me=True, observe_others=False)), bob])
    assert [peer.id for peer in await call(session.peers)] == ["alice", "bob"]
    await call(session.set_peer_configuration, bob, SessionPeerConfig(observe_others=True))
    configuration = await call(session.get_peer_configuration, bob)
    assert (configuration.observe_me, configuration.observe_others) == (None, True)
    await call(session.remove_peers, [alice])
    assert [peer.id for peer in await call(session.peers)] == ["bob"]
    await call(session.set_peers, [alice, "carol"])
    assert sorted(peer.id for peer in await call(session.peers)) == ["alice", "carol"]
    assert [found.id for found in await call.items(await call(bob.sessions))] == ["talk"]


async def test_messages_come_back_in_order_and_can_be_marked(call: Caller, honcho: Honcho) -> None:
    session = await call(honcho.session, "talk")
    alice = await call(honcho.peer, "alice")
    made = await call(session.add_messages, [alice.message(f"message {n}", metadata={"n": n}) for n in range(100)])
    assert [message.content for message in made] == [f"message {n}" for n in range(100)]
    listed = await call.items(await call(session.messages))
    assert [message.id for message in listed] == [message.id for message in made]
    newest = await call.items(await call(session.messages, reverse=True, size=7))
    assert [message.id for message in newest] == [message.id for message in reversed(made)]
    wanted = await call.items(await call(session.messages, filters={"metadata": {"n": {"gte": 97}}}))
    assert [message.metadata["n"] for message in wanted] == [97, 98, 99]
    marked = await call(session.update_message, made[3], {"seen": True})
    assert marked.metadata == {"seen": True}
    assert (await call(session.get_message, made[3].id)).metadata == {"seen": True}


async def test_message_keeps_the_time_it_is_given(call: Caller, honcho: Honcho) -> None:
    session = await call(honcho.session, "talk")
    alice = await call(honcho.peer, "alice")
    (made,) = await call(session.add_messages, alice.message("long ago", created_at="2020-02-29T12:34:56.789012Z"))
    assert made.created_at.isoformat() == "2020-02-29T12:34:56.789012+00:00"


async def test_context_holds_the_newest_messages_that_fit(call: Caller, honcho: Honcho) -> None:
    session = await tell(call, honcho, "talk", *(f"word {n}" for n in range(10)))
    whole = await call(session.context)
    assert [message.content for message in whole.messages] == [f"word {n}" for n in range(10)]
    one = whole.messages[0].token_count
    cut = await call(session.context, tokens=one * 3, summary=False)
    assert [message.content for message in cut.messages] == ["word 7", "word 8", "word 9"]
    assert cut.to_openai(assistant="alice")[0]["role"] == "assistant"
    assert cut.to_anthropic(assistant="bob")[0]["role"] == "user"


async def test_context_with_a_target_tells_what_is_held_about_it(call: Caller, honcho: Honcho) -> None:
    session = await tell(call, honcho)
    alice = await call(honcho.peer, "alice")
    await call(alice.set_card, ["Name: Alice"])
    await wait_for_reasoning(call, honcho)
    context = await call(session.context, peer_target="alice", tokens=5000)
    assert "I live in Malta." in context.peer_representation
    assert context.peer_card == ["Name: Alice"]
    limited = await call(session.context, peer_target="alice", limit_to_session=True)
    assert "I live in Malta." in limited.peer_representation
    assert limited.peer_card is None


async def test_search_finds_messages_at_three_levels(call: Caller, honcho: Honcho) -> None:
    session = await tell(call, honcho)
    other = await call(honcho.session, "other")
    bob = await call(honcho.peer, "bob")
    await call(other.add_messages, bob.message("Gozo has a citadel."))
    alice = await call(honcho.peer, "alice")
    everywhere = await call(honcho.search, "Gozo", limit=2)
    assert {message.peer_id for message in everywhere} == {"alice", "bob"}
    assert (await call(alice.search, "Gozo"))[0].content == "I collect stamps from Gozo."
    assert {message.peer_id for message in await call(alice.search, "Gozo")} == {"alice"}
    assert {message.session_id for message in await call(other.search, "Gozo")} == {"other"}
    assert (await call(session.search, "stamps?"))[0].content == "I collect stamps from Gozo."


async def test_what_a_peer_says_is_held_about_it(call: Caller, honcho: Honcho) -> None:
    session = await tell(call, honcho)
    alice = await call(honcho.peer, "alice")
    await wait_for_reasoning(call, honcho)
    assert "I collect stamps" in await call(alice.representation)
    assert "I collect stamps" in await call(session.representation, alice)
    held = await call(alice.context, search_query="stamps")
    assert "I collect stamps" in held.representation
    assert (held.peer_id, held.target_id) == ("alice", "alice")
    assert await call(alice.representation, "no-such-session") == ""


async def test_card_is_kept_per_target(call: Caller, honcho: Honcho) -> None:
    alice, bob = await call(honcho.peer, "alice"), await call(honcho.peer, "bob")
    assert await call(alice.get_card) is None
    assert await call(alice.set_card, ["likes stamps"], "bob") == ["likes stamps"]
    assert await call(alice.get_card, bob) == ["likes stamps"]
    with pytest.warns(DeprecationWarning, match="get_card"):
        assert await call(alice.card, bob) == ["likes stamps"]
    assert await call(alice.get_card) is None


async def test_conclusions_are_stored_listed_queried_and_deleted(call: Caller, honcho: Honcho) -> None:
    await tell(call, honcho, "talk", "hello")
    alice, bob = await call(honcho.peer, "alice"), await call(honcho.peer, "bob")
    view = alice.conclusions_of(bob)
    made = await call(
        view.create,
        [{"content": "Bob collects stamps", "session_id": "talk"}, {"content": "Bob is afraid of heights"}],
    )
    assert [(found.observer_id, found.observed_id, found.session_id) for found in made] == [
        ("alice", "bob", "talk"),
        ("alice", "bob", None),
    ]
    assert [found.id for found in await call.items(await call(view.list))] == [made[1].id, made[0].id]
    assert [found.id for found in await call.items(await call(view.list, session="talk"))] == [made[0].id]
    assert (await call(view.query, "philately and stamps", 1))[0].id == made[0].id
    assert "afraid of heights" in await call(view.representation)
    await call(view.delete, made[0].id)
    assert [found.id for found in await call.items(await call(view.list))] == [made[1].id]
    assert [found.id for found in await call(view.query, "stamps")] == [made[1].id]
    with pytest.raises(NotFoundError):
        await call(view.delete, made[0].id)


@needs_chat
async def test_conclusions_are_read_by_id_and_over_the_whole_workspace(call: Caller, honcho: Honcho) -> None:
    alice = await call(honcho.peer, "alice")
    made = await call(alice.conclusions.create, [{"content": f"fact {n}"} for n in range(3)])
    assert (await call(alice.conclusions.get, made[1].id)).content == "fact 1"
    assert {found.id for found in await call(alice.conclusions.get_many, [made[0].id, made[2].id])} == {
        made[0].id,
        made[2].id,
    }
    assert await call.items(await call(alice.conclusions.derived, made[0].id)) == []
    everywhere = honcho.conclusions
    assert len(await call.items(await call(everywhere.list))) == 3
    assert (await call(everywhere.get, made[0].id)).times_derived == 1
    assert len(await call(everywhere.get_many, [found.id for found in made])) == 3


async def test_chat_answers_from_memory_and_says_that_it_is_the_floor(call: Caller, honcho: Honcho) -> None:
    await tell(call, honcho)
    await wait_for_reasoning(call, honcho)
    alice, bob = await call(honcho.peer, "alice"), await call(honcho.peer, "bob")
    answer = await call(alice.chat, "Where does she live?", reasoning_level="minimal")
    assert "No model is configured" in answer
    assert "Malta" in answer
    assert await call(bob.chat, "Where does he live?") is None
    stream = await call(alice.chat_stream, "Where does she live?")
    assert "Malta" in "".join(await call.pieces(stream))


@needs_chat
async def test_workspace_answers_with_evidence_and_in_the_wanted_shape(call: Caller, honcho: Honcho) -> None:
    class Shape(BaseModel):
        answer: str
        facts: list[str]
        confidence: float | None = None

    await tell(call, honcho)
    await wait_for_reasoning(call, honcho)
    told = await call(honcho.chat, "Who lives in Malta?", include_evidence=True)
    assert "Malta" in told.content
    assert any("Malta" in found.content for found in told.evidence.conclusions)
    shaped = await call(honcho.chat, "Who lives in Malta?", response_format=Shape)
    assert any("Malta" in fact for fact in shaped.facts)
    stream = await call(honcho.chat_stream, "Who lives in Malta?", include_evidence=True)
    assert "Malta" in "".join(await call.pieces(stream))
    assert stream.evidence is not None
    with pytest.raises(UnprocessableEntityError):
        await call(honcho.chat, "How sure?", response_format={"type": "object", "properties": 3})


async def test_file_becomes_messages(call: Caller, honcho: Honcho) -> None:
    session = await call(honcho.session, "talk")
    alice = await call(honcho.peer, "alice")
    text = "A paragraph about stamps.\n\n" * 2000
    made = await call(session.upload_file, ("notes.txt", text.encode(), "text/plain"), alice, metadata={"from": "file"})
    assert len(made) > 1
    assert all(len(message.content) <= 25_000 and message.metadata == {"from": "file"} for message in made)
    assert "".join("".join(message.content.split()) for message in made) == "".join(text.split())


async def test_clone_holds_the_messages_up_to_the_cut(call: Caller, honcho: Honcho) -> None:
    session = await tell(call, honcho, "talk", "one", "two", "three")
    made = await call.items(await call(session.messages))
    copy = await call(session.clone, message_id=made[1].id)
    assert [message.content for message in await call.items(await call(copy.messages))] == ["one", "two"]
    assert [peer.id for peer in await call(copy.peers)] == ["alice"]
    whole = await call(session.clone)
    assert len(await call.items(await call(whole.messages))) == 3


async def test_summary_is_made_after_twenty_messages(call: Caller, honcho: Honcho) -> None:
    session = await tell(call, honcho, "talk", *(f"In year {n} we built house number {n}." for n in range(25)))
    made = await call.items(await call(session.messages))
    found = await eventually(lambda: call(session.summaries), lambda both: both.short_summary is not None)
    assert found.short_summary.message_id == made[19].id
    assert "house number 19" in found.short_summary.content
    assert found.long_summary is None
    context = await call(session.context, tokens=2000)
    assert context.summary is not None
    assert [message.id for message in context.messages] == [message.id for message in made[19:]]


async def test_queue_status_counts_what_is_done(call: Caller, honcho: Honcho) -> None:
    session = await tell(call, honcho)
    await wait_for_reasoning(call, honcho)
    status = await call(honcho.queue_status, sender="alice")
    assert status.completed_work_units == status.total_work_units == 1
    assert len(status.sessions) == 1
    assert (await call(session.queue_status)).sessions is None
    assert (await call(honcho.queue_status, sender="nobody")).total_work_units == 0


async def test_dream_merges_conclusions_that_say_the_same(call: Caller, honcho: Honcho) -> None:
    alice = await call(honcho.peer, "alice")
    await call(alice.conclusions.create, [{"content": "I am a painter"}, {"content": "I AM A PAINTER "}])
    await call(honcho.schedule_dream, alice)
    await wait_for_reasoning(call, honcho)
    assert len(await call.items(await call(alice.conclusions.list))) == 1
    assert await call(alice.get_card) == ["I am a painter"]


@needs_newer
async def test_scope_holds_sessions_and_what_was_said_in_them(call: Caller, honcho: Honcho) -> None:
    await tell(call, honcho)
    await tell(call, honcho, "other", "I am afraid of heights.")
    await wait_for_reasoning(call, honcho)
    scope = await call(honcho.scope, "travel", metadata={"a": 1})
    await call(scope.add_sessions, ["talk"])
    assert [found.id for found in await call.items(await call(scope.sessions))] == ["talk"]
    status = await eventually(lambda: call(scope.status), lambda found: found["talk"].state == "completed")
    assert status["talk"].docs_copied == 2
    alice = await call(honcho.peer, "alice")
    seen = await call(alice.representation, scope="travel")
    assert "Malta" in seen
    assert "heights" not in seen
    assert [found.id for found in await call.items(await call(honcho.scopes))] == ["travel"]
    assert (await call(honcho.get_scope, "travel")).id == "travel"
    assert {message.session_id for message in await call(honcho.search, "heights", scope="travel")} == {"talk"}
    await call(scope.remove_session, "talk")
    assert await call.items(await call(scope.sessions)) == []
    assert await call(alice.representation, scope="travel") == ""


async def test_deleted_session_is_gone_and_the_workspace_can_follow(
    call: Caller, honcho: Honcho, workspace: str
) -> None:
    session = await tell(call, honcho)
    with pytest.raises(ConflictError):
        await call(honcho.delete_workspace, workspace)
    await call(session.delete)
    assert await call.items(await call(honcho.sessions)) == []
    assert await eventually(lambda: call(honcho.search, "stamps"), lambda found: found == []) == []
    with pytest.raises(NotFoundError):
        await call(session.delete)
    await call(honcho.delete_workspace, workspace)
    assert workspace not in await call.items(await call(honcho.workspaces, {"id": workspace}))


@pytest.mark.contract("9.1")
async def test_key_of_a_session_is_enough_to_write_and_read_there(
    call: Caller, guarded: Served, workspace: str
) -> None:
    keys: dict[str, str] = {}
    with guarded.client(jwt.encode({"ad": True}, SECRET, algorithm="HS256")) as admin:
        for more in ({"session_id": "talk"}, {"peer_id": "ben"}):
            made = admin.post("/v3/keys", params={"workspace_id": workspace, **more})
            keys |= {name: made.json()["key"] for name in more}
    async with connected(guarded.url, workspace, keys["session_id"]) as client:
        session = await call(client.session, "talk")
        for name in ("alice", "alice", "ben"):
            peer = await call(client.peer, name)
            await call(session.add_messages, [peer.message(f"I am {name}.")])
        assert len(await call.items(await call(session.messages))) == 3
        with pytest.raises(AuthenticationError):
            await call(client.peer, "alice", metadata={"a": 1})
    async with connected(guarded.url, workspace, keys["peer_id"]) as ben:
        session = await call(ben.session, "talk")
        seen = await call(session.context, peer_target="alice", peer_perspective="ben")
        assert len(seen.messages) == 3
        with pytest.raises(AuthenticationError):
            await call(session.context, peer_target="ben", peer_perspective="alice")


async def test_mistakes_are_told_apart(call: Caller, honcho: Honcho, guarded: Served) -> None:
    session = await call(honcho.session, "talk")
    alice = await call(honcho.peer, "alice")
    with pytest.raises(NotFoundError):
        await call(session.get_message, "no-such-message")
    with pytest.raises(UnprocessableEntityError):
        await call.items(await call(session.messages, filters={"colour": "blue"}))
    with pytest.raises(BadRequestError):
        await call(session.add_peers, [(f"p{n}", SessionPeerConfig(observe_others=True)) for n in range(11)])
    with pytest.raises(NotFoundError):
        await call(alice.chat, "hm?", target="nobody")
    async with connected(guarded.url, "w", "not-a-key") as stranger:
        with pytest.raises(AuthenticationError):
            await call(stranger.peer, "alice", metadata={})
