"""The tool `session_search`: it finds earlier messages, not those of the running turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.llm.events import Reply
from tests.agent.seam import calls, open_seam, requests, say


@pytest.mark.contract("1.7")
async def test_the_message_that_is_being_answered_is_not_found_by_its_own_words(tmp_path: Path) -> None:
    script = [Reply("Nice."), calls("session_search", query="the ferry trip", limit=1), Reply("To Gozo.")]
    async with open_seam(tmp_path, script) as agent:
        await say(agent, "The ferry took us to Gozo in May")
        await say(agent, "Tell me about the ferry trip")
        found = str(requests(agent)[2].messages[-1])
    assert "The ferry took us to Gozo" in found
    assert "Tell me" not in found
