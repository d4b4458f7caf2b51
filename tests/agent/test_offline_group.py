"""Without a model, members of a group are answered from their own statements, with the speakers named."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from hermes.agent.agent import Agent
from hermes.agent.offline import OfflineModel
from hermes.agent.offline_answers import UNKNOWN
from hermes.agent.recollection import recollect
from hermes.agent.turn import answer
from hermes.events import Replied
from hermes.memory.notes import Notes
from hermes.scope import Group
from hermes.store.turns import NoRecord
from hermes.types import Draft, Session
from tests.agent.seam import open_seam

pytestmark = pytest.mark.contract("10.5")
KEY = "agent:main:fake:group:g"


async def say(agent: Agent, name: str, text: str) -> str:
    said = Draft("user", text, author_id=name.lower(), author_name=name, author_is_owner=False)
    async with aclosing(answer(agent, [said], asyncio.Event(), NoRecord())) as events:
        [reply] = [event async for event in events if isinstance(event, Replied)]
    return reply.text


async def test_a_group_member_is_answered_from_their_own_words(tmp_path: Path) -> None:
    async with open_seam(tmp_path, []) as agent:
        group = Session("group", "fake", agent.clock.now(), session_key=KEY, chat_type="group")
        await agent.store.write(lambda tx: agent.store.sessions.create(tx, group))
        agent.session_id, agent.notes = group.id, Notes(tmp_path, Group(KEY), {"memory": 2200, "user": 1400})
        agent.model, agent.answers_from_memory = OfflineModel(partial(recollect, agent.store, agent.notes)), True
        assert await say(agent, "Ann", "I live in Oslo.") == "Saved: I live in Oslo."
        await say(agent, "Bob", "I live in Lima, my boat is red.")
        assert await say(agent, "Ann", "where do I live") == "From memory: “I live in Oslo.”"
        assert await say(agent, "Bob", "Where do I live?") == "From memory: “I live in Lima, my boat is red.”"
        assert await say(agent, "Cid", "Where do I live?") == UNKNOWN["home"]
        assert await say(agent, "Cid", "What's my name?") == "Here you are Cid."
        assert await say(agent, "Ann", "Which boat is red?") == "From memory: “I live in Lima, my boat is red.” (Bob)"
