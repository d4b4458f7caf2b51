"""The system prompt is built once per session and then stays the same byte for byte."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.prompt import IDENTITY, NOTES_GUIDE, PromptParts, build_system_prompt
from hermes.fence import fence
from hermes.llm.events import Reply
from hermes.memory.notes import NotesRead
from hermes.scope import Guest, Owner
from tests.agent.seam import open_seam, requests, say
from tests.memory.providers import BLOCK, Recorder, Troubled, raise_error

parts = st.builds(
    PromptParts,
    persona=st.text(max_size=20),
    scope=st.sampled_from([Owner(), Guest("telegram", "222")]),
    notes=st.builds(
        NotesRead,
        st.fixed_dictionaries({"user": st.text(max_size=20), "memory": st.text(max_size=20)}),
        changed=st.fixed_dictionaries({"user": st.floats(0, 4_000_000_000)}),
    ),
    provider_block=st.text(max_size=20),
    has_memory_tool=st.booleans(),
    started_at=st.floats(0, 4_000_000_000),
)


@given(parts)
def test_a_prompt_holds_what_there_is_and_no_trace_of_what_is_not(given: PromptParts) -> None:
    prompt = build_system_prompt(given)
    assert prompt == build_system_prompt(given)
    assert (IDENTITY in prompt) == (not given.persona.strip())
    assert (NOTES_GUIDE in prompt) == given.has_memory_tool
    assert ("## What you noted about the person (last changed " in prompt) == bool(given.notes.texts["user"].strip())
    assert ("## What you noted about the work" in prompt) == bool(given.notes.texts["memory"].strip())
    for text in (given.persona, given.provider_block):
        assert text.strip() in prompt
    for text in given.notes.texts.values():
        assert fence(text) in prompt, "a note is data"


async def test_a_prompt_stays_the_same_when_notes_or_soul_change(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [Reply("one"), Reply("two")], Recorder()) as agent:
        agent.soul_file.write_text("You are a gardener.", encoding="utf-8")
        agent.notes.add("user", "likes figs")
        await say(agent, "hello")
        agent.soul_file.write_text("You are a baker.", encoding="utf-8")
        agent.notes.add("user", "likes dates")
        await say(agent, "again")
        session = agent.session_id
        first, second = (request.messages[0]["content"] for request in requests(agent))
    async with open_seam(tmp_path, [Reply("three")], Recorder(), session_id=session) as agent:
        await say(agent, "after a restart")
        third = requests(agent)[0].messages[0]["content"]
    assert first == second == third
    assert "You are a gardener." in first
    assert "likes figs" in first
    assert "The block of the provider." in first


async def test_a_prompt_is_rebuilt_only_when_the_providers_block_is_known_to_have_changed(tmp_path: Path) -> None:
    async def ask(plugin: Recorder | None, session_id: str | None = None) -> tuple[str, str]:
        async with open_seam(tmp_path, [Reply("fine")], plugin, session_id=session_id) as agent:
            await say(agent, "hello")
            return agent.session_id, str(requests(agent)[0].messages[0]["content"])

    session, first = await ask(Recorder())
    broken = Troubled("", raise_error)
    broken.open = raise_error  # type: ignore[assignment]
    assert await ask(broken, session) == (session, first), "nobody knows the block now"
    other = Recorder()
    other.block = "Another block."
    second = (await ask(other, session))[1]
    assert BLOCK in first
    assert BLOCK not in second
    assert "Another block." in second
    assert "block" not in (await ask(None, session))[1], "there is no provider any more"
