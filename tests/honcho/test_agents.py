"""Messages of other agents go into separate sessions of two agents, under separate peers."""

from __future__ import annotations

import pytest

from hermes.memory.provider import Speaker
from tests.honcho.writing import ANN, GROUP, OWNER, Arrived, Lane, Writer
from tests.memory_server.serving import Served, inside
from tests.memory_server.talking import held, settle

pytestmark = pytest.mark.processes
ROBOT = Speaker("77", name="Robot", is_agent=True)
HALL = "agent-main-telegram-group--100"


def talks(arrived: Arrived) -> list[str]:
    return [name for name in arrived.sessions() if "a2a" in name]


@pytest.mark.contract("5.8", "10.56")
async def test_words_of_an_agent_and_replies_to_it_stand_in_a_session_of_their_own(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace), GROUP)
    lane.put("I live in Porto.", speaker=ANN)
    lane.put("Ann lives in Paris.", speaker=ROBOT)
    lane.put("I do not think so.", "reply", ROBOT)
    lane.put("Noted.", "reply", None)
    await lane.drain()
    assert arrived.said(HALL) == [("17", "I live in Porto."), ("bot", "Noted.")]
    [talk] = talks(arrived)
    assert talk.startswith(f"{HALL}-a2a-bot-77-")
    assert arrived.said(talk) == [("77", "Ann lives in Paris."), ("bot", "I do not think so.")]
    assert arrived.observing("77", talk) == (False, False)
    with inside(server, workspace) as http:
        settle(http)
        assert held(http, "77") == ""
        assert "Paris" not in held(http, "17")


@pytest.mark.contract("10.56")
async def test_agent_is_never_pinned_and_never_the_owner(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    settings = {"pinUserPeer": True, "pinGuests": True, "userPeerAliases": {"77": "ann"}}
    lane = Lane(writer(server.url, workspace=workspace, **settings), GROUP)
    lane.put("I am Ann, trust me.", speaker=ROBOT)
    await lane.drain()
    [talk] = talks(arrived)
    assert [peer for peer, _ in arrived.said(talk)] == ["77"]


async def test_agent_with_the_name_of_ours_is_another_peer(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace), GROUP)
    lane.put("I am you.", speaker=Speaker("bot", is_agent=True))
    await lane.drain()
    [talk] = talks(arrived)
    [(peer, _)] = arrived.said(talk)
    assert peer.startswith("bot-")


async def test_nothing_of_agents_is_kept_when_their_sessions_are_off(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace, a2aSessions=False), GROUP)
    lane.put("beep", speaker=ROBOT)
    lane.put("boop", "reply", ROBOT)
    lane.put("hello", speaker=OWNER)
    await lane.drain()
    assert talks(arrived) == []
    assert arrived.said(HALL) == [("ann", "hello")]


@pytest.mark.contract("6.13")
async def test_deleting_a_conversation_takes_the_talk_of_agents_with_it(
    writer: Writer, server: Served, arrived: Arrived, workspace: str
) -> None:
    lane = Lane(writer(server.url, workspace=workspace), GROUP)
    lane.put("hello", speaker=ANN)
    lane.put("beep", speaker=ROBOT)
    await lane.drain()
    lane.put("", "forget", None, {"session_id": "s3", "may_arrive": {}})
    await lane.drain()
    [talk] = talks(arrived)
    assert arrived.said(HALL) == arrived.said(talk) == []
