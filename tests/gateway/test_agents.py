"""Messages of other agents: accepted where the owner allowed it, separate from people's, with a limit on replies."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from hermes.gateway.lanes import CHAIN_ENDED
from hermes.gateway.platform import Inbound
from hermes.store.people import mark
from tests.gateway.core import FakePlatform, message, running_core

LISTED = ["fake:robot"]


def _has_more_than(platform: FakePlatform, count: int) -> bool:
    return len(platform.sent) > count


def robot_says(text: str, author: str = "robot", chat_id: str = "7") -> Inbound:
    return replace(message(text, chat_id, kind="group", author=author), author_is_agent=True)


@pytest.mark.contract("10.56")
async def test_only_agents_on_the_owners_list_are_accepted(tmp_path: Path) -> None:
    async with running_core(tmp_path, gateway__agents=LISTED) as core:
        await core.platform.deliver(robot_says("psst", author="stranger"))
        await core.platform.deliver(replace(robot_says("psst"), chat=message("x").chat))
        await core.platform.deliver(robot_says("hello"))
        await core.platform.until(lambda: bool(core.platform.sent))
        assert core.platform.texts("7") == ["echo: [Robot] hello"]


@pytest.mark.contract("10.56")
async def test_chain_of_replies_without_a_person_ends_and_says_so_once(tmp_path: Path) -> None:
    async with running_core(tmp_path, gateway__agents=LISTED, gateway__agent_replies=3) as core:
        for number in range(6):
            before = len(core.platform.sent)
            await core.platform.deliver(robot_says(f"beep {number}"))
            if number < 4:
                await core.platform.until(partial(_has_more_than, core.platform, before))
        await core.platform.deliver(message("still there?", kind="group"))
        await core.platform.until(lambda: "still there?" in core.platform.texts("7")[-1])
        texts = core.platform.texts("7")
        assert [text.split(" + ")[0] for text in texts[:3]] == [f"echo: [Robot] beep {number}" for number in range(3)]
        assert texts[3] == CHAIN_ENDED.format(replies=3)
        assert len(texts) == 5
        assert "beep 5" in str(core.asked()), "what was not answered is part of the conversation"
        await core.platform.deliver(robot_says("beep again"))
        await core.platform.until(lambda: len(core.platform.sent) == 6)


@pytest.mark.contract("10.56")
async def test_agents_run_no_commands_and_join_no_turn_of_people(tmp_path: Path) -> None:
    async with running_core(tmp_path, gateway__agents=LISTED) as core:
        await core.store.write(lambda tx: mark(tx, "fake", "robot", is_owner=True, now=1.0))
        await core.platform.deliver(robot_says("/new"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        assert core.platform.texts("7") == ["echo: [Robot] /new"]
        await core.platform.deliver(robot_says("/stop"))
        await core.platform.until(lambda: core.platform.texts("7")[-1:] == ["echo: [Robot] /stop"])
        await core.platform.deliver(message("hello", kind="group"))
        await core.platform.until(lambda: "hello" in core.platform.texts("7")[-1])
        said = await core.store.read(
            lambda tx: [
                (one.content, one.author_is_agent, one.author_is_owner)
                for (session_id,) in tx.execute("SELECT id FROM sessions").fetchall()
                for one in core.store.messages.history(tx, session_id)
                if one.role == "user"
            ]
        )
    assert said[0][1:] == (True, False)
    assert ("hello", None, False) in said


async def test_no_note_is_made_of_what_agents_say(tmp_path: Path) -> None:
    async with running_core(tmp_path, gateway__agents=LISTED) as core:
        await core.platform.deliver(robot_says("Ann likes figs"))
        await core.platform.until(lambda: bool(core.platform.sent))
        offered = [tool.name for tool in core.model.requests[-1].tools]
        assert "memory" not in offered
        await core.platform.deliver(message("hi", kind="group"))
        await core.platform.until(lambda: len(core.platform.sent) == 2)
        offered = [tool.name for tool in core.model.requests[-1].tools]
        assert "memory" in offered
