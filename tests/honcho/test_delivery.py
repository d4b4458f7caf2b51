"""Delivery to our real server: the right peer and session for each message, exactly once."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from hermes.embedded.connect import stop
from hermes.honcho.conclusions import Conclude, Remove, SetCard, encode_act
from hermes.honcho.failures import Unreached
from hermes.honcho.plugin import HonchoPlugin
from hermes.memory.provider import DeadLetter, Delivered, Entry, Later, Speaker
from hermes.types import OWN_MARK
from tests.honcho.configuring import Machine
from tests.honcho.misbehaving import Misbehaving, on
from tests.honcho.writing import ANN, BOB, GROUP, HERE, NOTES, OWNER, Arrived, Lane, Writer
from tests.memory_server.serving import Served, inside
from tests.memory_server.talking import held, settle

pytestmark = pytest.mark.processes


@pytest.mark.contract("6.1", "6.5")
async def test_a_conversation_is_a_session_with_what_each_said_in_order(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace))
    said = lane.put("Good morning", at=1_700_000_000.5)
    lane.put("Good morning, Ann", "reply", None)
    lane.put("What is new?")
    outcomes = await lane.drain()
    assert arrived.said() == [("ann", "Good morning"), ("bot", "Good morning, Ann"), ("ann", "What is new?")]
    assert arrived.sessions() == ["app"]
    first = arrived.messages()[0]
    assert first["created_at"] == "2023-11-14T22:13:20.500000Z"
    assert first["metadata"] == {"hermes_key": said, "hermes_session": "s1", OWN_MARK: True}
    assert outcomes[said] == Delivered(first["id"])


@pytest.mark.contract("7.10")
async def test_replies_of_the_agent_are_no_facts_about_the_agent(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace))
    lane.put("I live in Porto.")
    lane.put("I live in the cloud and I love helping you.", "reply", None)
    await lane.drain()
    with inside(server, workspace) as http:
        settle(http)
        assert held(http, "ann").endswith("ann: I live in Porto.\n")
        assert held(http, "bot") == ""


@pytest.mark.contract("5.8")
async def test_each_member_of_a_group_is_a_peer_with_their_own_messages(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace), GROUP)
    for text, speaker in (("I am Ann", ANN), ("I am Bob", BOB), ("I own this", OWNER), ("I have no id", Speaker())):
        lane.put(text, speaker=speaker)
    await lane.drain()
    nobody = "user-agent-main-telegram-group--100-"
    said = arrived.said("agent-main-telegram-group--100")
    assert said[:3] == [("17", "I am Ann"), ("23", "I am Bob"), ("ann", "I own this")]
    assert said[3][0].startswith(nobody)
    assert {"17", "23", "ann", "bot"} < arrived.peers()
    marked = [OWN_MARK in one["metadata"] for one in arrived.messages("agent-main-telegram-group--100")]
    assert not any(marked), "others were there, also when the owner spoke"


@pytest.mark.contract("6.5")
async def test_concurrent_entries_create_a_session_once_with_its_observation(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    async with Misbehaving(server.url).served() as proxy:
        plugin = writer(proxy.url, workspace=workspace, observationMode="unified")
        lanes = [Lane(plugin, name=f"{number}-") for number in range(8)]
        for lane in lanes:
            lane.put("hello")
            lane.put("", "own", data=encode_act(Conclude("likes figs")))
        await asyncio.gather(*(lane.drain() for lane in lanes))
        set_up = [asked for asked in proxy.asked if not asked[1].endswith(("/messages", "/conclusions"))]
        prefix = f"/v3/workspaces/{workspace}"
        assert set_up == [("GET", "/health"), ("POST", "/v3/workspaces"), ("POST", f"{prefix}/sessions")]
        assert (arrived.observing("ann"), arrived.observing("bot")) == ((True, False), (False, True))
        again = Lane(writer(proxy.url, workspace=workspace), name="later-")
        again.put("with other settings")
        await again.drain()
        assert (arrived.observing("ann"), arrived.observing("bot")) == ((True, True), (True, True))


async def test_the_eleventh_of_a_group_is_heard_though_only_ten_may_observe(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace), GROUP)
    for number in range(14):
        lane.put(f"I am {number}", speaker=Speaker(f"u{number}"))
        await lane.drain()
    session = "agent-main-telegram-group--100"
    assert [peer for peer, _ in arrived.said(session)] == [f"u{number}" for number in range(14)]
    observing = [arrived.observing(f"u{number}", session)[1] for number in range(14)]
    assert observing == [True] * 9 + [False] * 5


@pytest.mark.contract("6.7")
async def test_long_message_arrives_in_pieces_and_resumes_after_an_interruption(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    text = "word " * 500
    async with Misbehaving(server.url).served() as proxy:
        lane = Lane(writer(proxy.url, workspace=workspace, messageMaxChars=50))
        lane.put("before")
        lane.put(text)
        lane.put("after")
        proxy.choose = on("/messages", None, None, "reset after")
        await lane.drain()
    said = [content for _, content in arrived.said()]
    assert len(lane.put_off) == 1
    assert (said[0], said[-1]) == ("before", "after")
    assert "".join(piece.removeprefix("[continued] ") for piece in said[1:-1]) == text
    assert max(map(len, said)) <= 50


@pytest.mark.contract("6.10")
async def test_a_stopped_reply_is_marked_and_what_has_no_text_is_not_written(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace))
    lane.put("Tell me a story")
    lane.put("Once upon", "reply", None, {"stopped": True})
    lane.put("  ")
    lane.put("nul\0 is left out")
    await lane.drain()
    assert [content for _, content in arrived.said()] == ["Tell me a story", "Once upon", "nul is left out"]
    assert arrived.messages()[1]["metadata"]["hermes_stopped"] is True


@pytest.mark.contract("4.10", "6.13")
async def test_a_note_becomes_a_conclusion_about_its_owner_and_goes_with_it(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace), NOTES)

    async def change(action: str, text: str, old: str = "") -> list[str]:
        lane.put(text, "note", OWNER, {"target": "user", "action": action, "old": old})
        await lane.drain()
        return [found["content"] for found in arrived.conclusions()]

    assert await change("add", "likes figs") == ["likes figs"]
    [found] = arrived.conclusions()
    assert (found["observer_id"], found["observed_id"], found["session_id"]) == ("bot", "ann", None)
    assert await change("replace", "likes dates", "likes figs") == ["likes dates"]
    assert await change("remove", "", "likes dates") == []
    assert await change("remove", "", "was never told") == []
    assert {type(outcome) for outcome in lane.outcomes.values()} == {Delivered}


@pytest.mark.contract("6.13")
async def test_note_with_an_ambiguous_conclusion_becomes_a_dead_letter(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    plugin = writer(server.url, workspace=workspace)
    lane = Lane(plugin, NOTES)
    for _ in range(2):
        lane.put("likes figs", "note", OWNER, {"target": "user", "action": "add", "old": ""})
    await lane.drain()
    fresh = Lane(writer(server.url, workspace=workspace), NOTES, "fresh")
    key = fresh.put("", "note", OWNER, {"target": "user", "action": "remove", "old": "likes figs"})
    outcome = (await fresh.drain())[key]
    assert isinstance(outcome, DeadLetter)
    assert "2 conclusions on the server have this text" in outcome.reason
    assert len(arrived.conclusions()) == 2


@pytest.mark.contract("6.2")
async def test_the_agents_tools_conclude_take_back_and_write_cards(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace))
    key = lane.put("", "own", ANN, encode_act(Conclude("collects stamps")))
    lane.put("", "own", ANN, encode_act(Conclude("is brief", "ai")))
    lane.put("", "own", ANN, encode_act(SetCard(["Name: Ann"])))
    done = await lane.drain()
    told = {(one["observer_id"], one["observed_id"], one["session_id"]): one for one in arrived.conclusions()}
    assert told.keys() == {("bot", "17", "app"), ("bot", "bot", "app")}
    outcome = done[key]
    assert isinstance(outcome, Delivered)
    assert outcome.note == told["bot", "17", "app"]["id"]
    assert arrived.card("bot", "17") == ["Name: Ann"]
    for _ in range(2):
        lane.put("", "own", ANN, encode_act(Remove(str(outcome.note))))
    lane.put("", "own", ANN, {"act": "of another version"})
    await lane.drain()
    assert [one["observed_id"] for one in arrived.conclusions()] == ["bot"]
    assert [type(one) for one in lane.outcomes.values()][-3:] == [Delivered, Delivered, DeadLetter]


@pytest.mark.contract("6.4")
async def test_only_the_refused_message_becomes_a_dead_letter(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    plugin = writer(server.url, workspace=workspace)
    before, lane = Lane(plugin), Lane(plugin)
    before.put("zero")
    await before.drain()
    bad = lane.put("one")  # under the key of the other
    lane.put("two")
    lane.put("three")
    outcomes = await lane.drain()
    refused = outcomes[bad]
    assert isinstance(refused, DeadLetter)
    assert "the server answered 422: The key 'k1' was used with another body" in refused.reason
    assert [content for _, content in arrived.said()] == ["zero", "two", "three"]


@pytest.mark.contract("6.11")
async def test_message_of_a_remapped_speaker_arrives_once(
    writer: Writer, machine: Machine, server: Served, arrived: Arrived, workspace: str
) -> None:
    async with Misbehaving(server.url).served() as proxy:
        lane = Lane(writer(proxy.url, workspace=workspace))
        lane.put("hello", speaker=ANN)
        proxy.choose = on("/messages", "reset after")
        await lane.attempt()
        machine.write({**machine.read(), "userPeerAliases": {"17": "annette"}})
        lane.put("hello again", speaker=ANN)
        await lane.drain()
    assert arrived.said() == [("17", "hello"), ("annette", "hello again")]


async def test_what_cannot_be_done_now_waits_with_its_reason(writer: Writer, machine: Machine, server: Served) -> None:
    async def outcome_of(plugin: HonchoPlugin, entry: Entry) -> Later:
        [outcome] = await plugin.deliver([entry], plugin.host.clock.now() + 45)
        assert isinstance(outcome, Later)
        assert outcome.everyone
        return outcome

    plugin = writer(server.url)
    entry = Entry("k", "said", plugin.address(HERE).data, "hello", 1.0, OWNER, "s1")
    machine.write({**machine.read(), "enabled": False})
    assert "switched off" in (await outcome_of(plugin, entry)).reason
    plugin = writer("https://api.honcho.dev")
    assert "needs a key" in (await outcome_of(plugin, entry)).reason
    plugin = writer("http://127.0.0.1:9")
    assert "cannot be reached" in (await outcome_of(plugin, entry)).reason
    plugin = writer("http://127.0.0.1:9")
    machine.write("{")
    assert "this is not JSON" in (await outcome_of(plugin, entry)).reason


async def test_our_own_server_is_started_and_found_again_after_it_was_ended(writer: Writer) -> None:
    plugin = HonchoPlugin(writer("", server="embedded").host)
    lane = Lane(plugin)
    try:
        lane.put("before")
        await lane.drain()
        assert stop(plugin.machine.memory) is not None
        lane.put("after")
        [outcome] = await lane.attempt()
        assert isinstance(outcome, Delivered), outcome
        assert lane.put_off == []
    finally:
        await plugin.shutdown(0.0)
        stop(plugin.machine.memory)


@pytest.mark.contract("6.13")
async def test_a_deleted_conversation_is_forgotten_and_another_in_the_same_session_stays(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    plugin = writer(server.url, workspace=workspace)
    lane, other = Lane(plugin), Lane(plugin, replace(HERE, session_id="s2"), "other")
    for number in range(120):
        lane.put(f"to be forgotten {number}")
    other.put("to be kept")
    await lane.drain()
    await other.drain()
    key = other.put("", "forget", None, {"session_id": "s1"})
    outcomes = await other.drain()
    assert outcomes[key] == Delivered("120 messages were deleted")
    assert [content for _, content in arrived.said()] == ["to be kept"]
    again = other.put("", "forget", None, {"session_id": "s1"})
    assert (await other.drain())[again] == Delivered("0 messages were deleted")


@pytest.mark.contract("6.13")
async def test_server_that_cannot_delete_messages_keeps_them_and_the_outcome_says_so(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    async with Misbehaving(server.url, is_foreign=True).served() as proxy:
        lane = Lane(writer(proxy.url, workspace=workspace))
        lane.put("hello")
        key = lane.put("", "forget", None, {"session_id": "s1"})
        outcomes = await lane.drain()
    assert outcomes[key] == DeadLetter("this server cannot delete messages: 1 stay in its session app")
    assert arrived.said() == [("ann", "hello")]


@pytest.mark.contract("P4")
async def test_link_opened_during_shutdown_is_closed(writer: Writer, server: Served) -> None:
    async with Misbehaving(server.url).served() as proxy:
        plugin = writer(proxy.url)
        reaching = asyncio.create_task(plugin.links.link(plugin.host.clock.now() + 60))
        while not proxy.asked:  # noqa: ASYNC110 - it is being reached
            await asyncio.sleep(0)
        await plugin.shutdown(0.0)
        with pytest.raises(Unreached, match="the provider has been shut down"):
            await reaching
        with pytest.raises(Unreached, match="the provider has been shut down"):
            await plugin.links.link(plugin.host.clock.now() + 60)
        assert proxy.asked == [("GET", "/health")]
