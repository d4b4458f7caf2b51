"""One session, whatever a client calls it: one lane, one effect per Idempotency-Key, and never another's reply."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from hermes.events import Failed, Replied, Stopped
from hermes.gateway.platform import Chat, Inbound
from hermes.gateway.platforms.api_follow import follow
from tests.gateway.core import PATIENCE, Core, running_core


def request(text: str, message_id: str, *, session: str | None = None, key: str | None = None) -> Inbound:
    """What the API makes of a request."""
    chat = Chat("api", "api", session or key or "")
    return Inbound(chat, message_id, text, session_key=key, session_id=session)


async def talk(core: Core, message: Inbound) -> str:
    """Hand a message in as the API does; the text of its end."""
    async with asyncio.timeout(PATIENCE), aclosing(follow(core.gateway, message)) as events:
        async for event in events:
            if isinstance(event, Replied | Stopped):
                return event.text
            assert not isinstance(event, Failed), event
    raise AssertionError("a turn has an end")


@pytest.mark.contract("2.3")
async def test_a_session_key_that_is_also_the_session_id_is_answered(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        assert await talk(core, request("hi", "1", session="same", key="same")) == "echo: hi"


@pytest.mark.contract("2.3")
async def test_two_sessions_whose_keys_are_each_others_ids_are_answered(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        answers = await asyncio.gather(
            talk(core, request("hi a", "1", session="a", key="b")),
            talk(core, request("hi b", "1", session="b", key="a")),
        )
    assert answers == ["echo: hi a", "echo: hi b"]
