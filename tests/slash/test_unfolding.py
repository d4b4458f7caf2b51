"""`/unfold`: tool calls in full."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes.cli.commands import run_command
from hermes.cli.conversation import TerminalConversation
from hermes.errors import UsageError
from hermes.slash.acts import MAX_SHOWN_CHARS
from hermes.types import Draft, ToolCall
from tests.slash.surfaces import at_terminal, say


async def unfold(conversation: TerminalConversation, rest: str = "") -> str:
    return (await run_command(conversation, f"/unfold {rest}", asyncio.Event())).text


async def add_turn(conversation: TerminalConversation, *calls: tuple[str, str, str]) -> None:
    """A turn with these calls: name, arguments, result."""
    assert conversation.session_id is not None
    made = tuple(ToolCall(f"{place}", name, arguments) for place, (name, arguments, _) in enumerate(calls))
    results = [Draft("tool", result, tool_call_id=f"{place}") for place, (_, _, result) in enumerate(calls)]
    asked = Draft("user", "do it")
    await conversation.store.append(conversation.session_id, asked, Draft("assistant", None, made), *results)


@pytest.mark.contract("10.22")
async def test_the_calls_of_the_last_turn_are_shown_in_full(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        await say(conversation, "hello")
        await add_turn(conversation, ("old", "{}", "x"))
        await add_turn(conversation, ("find", '{"what": "tea"}', "a\nb"), ("note", "no JSON", "done"))
        text = await unfold(conversation)
        assert text == '· find\n{\n  "what": "tea"\n}\n→ a\nb\n\n· note\nno JSON\n→ done'
        assert await unfold(conversation, "1") == "· note\nno JSON\n→ done"


async def test_a_number_that_no_call_has_is_refused(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        await say(conversation, "hello")
        with pytest.raises(UsageError, match="no tool was called"):
            await unfold(conversation)
        await add_turn(conversation, ("find", "{}", "x"))
        for wrong in ("0", "2", "x", "-1"):
            with pytest.raises(UsageError, match="from 1, the last call, to 1"):
                await unfold(conversation, wrong)


async def test_an_endless_result_is_cut_and_says_so(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        await say(conversation, "hello")
        await add_turn(conversation, ("find", "{}", "x" * (MAX_SHOWN_CHARS + 5)))
        assert (await unfold(conversation)).endswith("x\n… and 5 characters more")
