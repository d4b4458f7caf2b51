"""Records of the text that memory put into a turn, and the command that shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.errors import NotFoundError
from hermes.llm.events import Reply
from hermes.memory.provider import Part, Recalled
from hermes.store.injections import MAX_TURNS_KEPT, Injection, drop_injections, find_injection
from hermes.store.store import Store
from tests.agent.seam import open_seam
from tests.agent.seam import say as say_to
from tests.conftest import Ran
from tests.memory.providers import CONVERSATION, Recorder
from tests.memory.remembering import active, begin, say, turn


class Parts(Recorder):
    """A session that recalls two parts and misses one."""

    found = Recalled(
        (
            Part("notes", "2 May 2023:\n- likes figs\n- likes tea", 1000.0, 3, sources=("score 0.80", "score 0.70")),
            Part("evidence", "", 1000.0, 0, 9, left_out=("likes jam (score 0.10)",)),
            Part("dialectic", "", 900.0, 0, 400),
        ),
        {"summary": "it was late"},
    )

    async def run(self, hook: str, result: Any, *arguments: Any) -> Any:
        ran = await super().run(hook, result, *arguments)
        return self.found if hook == "recall" else ran


async def record(store: Store, turn: int | None = None, session: str = CONVERSATION.session_id) -> Injection:
    return await store.read(lambda tx: find_injection(tx, session, turn))


@pytest.mark.contract("7.8")
async def test_a_turn_leaves_a_record_of_what_was_injected_and_what_was_missing(tmp_path: Path) -> None:
    async with active(tmp_path, Parts()) as provider:
        memory = await begin(provider)
        await turn(memory)
        found = await record(provider.store)
    assert (found.turn, found.provider) == (1, "troubled")
    assert [(part.layer, part.text, part.as_of, part.tokens, part.cut) for part in found.parts] == [
        ("notes", "2 May 2023:\n- likes figs\n- likes tea", 1000.0, 3, 0),
        ("evidence", "", 1000.0, 0, 9),
        ("dialectic", "", 900.0, 0, 400),
    ]
    assert found.missed == {"summary": "it was late"}
    assert found.seconds >= 0


@pytest.mark.contract("7.8")
async def test_a_turn_without_a_reply_leaves_one_too_and_each_turn_its_own(tmp_path: Path) -> None:
    async with active(tmp_path, Parts()) as provider:
        memory = await begin(provider)
        await turn(memory)
        said = await say(memory, "and now?")
        until = memory.begin()
        await memory.recall([said], until)
        await memory.turn_over()
        assert (await record(provider.store)).message_id == said.id
        assert (await record(provider.store, 1)).turn == 1


@pytest.mark.contract("7.8")
async def test_a_recall_that_failed_is_recorded_as_missing(tmp_path: Path) -> None:
    class Raises(Recorder):
        async def run(self, hook: str, result: Any, *arguments: Any) -> Any:
            if hook == "recall":
                raise OSError("no route")
            return await super().run(hook, result, *arguments)

    async with active(tmp_path, Raises()) as provider:
        await turn(await begin(provider))
        found = await record(provider.store)
    assert found.parts == ()
    assert "no route" in found.missed["recall"]


async def test_a_turn_is_kept_whatever_a_plugin_returns_as_its_parts(tmp_path: Path) -> None:
    class Odd(Parts):
        found = Recalled(
            (Part("l" * 500, "half a \ud800 pair", 10**400, 10**30, "?"), Part(7, "text", "now", float("nan"))),  # type: ignore[arg-type]
            {"x": 5},  # type: ignore[dict-item]
        )

    async with active(tmp_path, Odd()) as provider:
        await turn(await begin(provider))
        found = await record(provider.store)
    assert [part.text for part in found.parts] == ["half a ? pair", "text"]
    assert found.missed == {"x": "5"}


@pytest.mark.contract("7.8")
async def test_record_of_an_earlier_version_without_sources_loads(tmp_path: Path) -> None:
    async with active(tmp_path, Parts()) as provider:
        await turn(await begin(provider))
        store = provider.store
        gone = ", ".join(f"'$.parts[{place}].{name}'" for place in range(3) for name in ("sources", "left_out"))
        old = f"UPDATE hermes_injections SET record = json_remove(record, {gone})"  # nobody else's words
        await store.write(lambda tx: tx.execute(old))
        assert [(part.sources, part.left_out) for part in (await record(store)).parts] == [((), ())] * 3


@pytest.mark.contract("7.8", "7.12")
async def test_record_of_a_line_that_was_left_out_goes_when_it_is_forgotten(tmp_path: Path) -> None:
    async with active(tmp_path, Parts()) as provider:
        await turn(await begin(provider))
        store = provider.store
        await store.write(lambda tx: drop_injections(tx, lambda text: "nothing of it" in text))
        assert (await record(store)).turn == 1
        await store.write(lambda tx: drop_injections(tx, lambda text: "jam" in text))
        with pytest.raises(NotFoundError):
            await record(store)


async def test_only_the_newest_turns_of_a_session_are_kept_and_none_of_a_deleted_one(tmp_path: Path) -> None:
    async with active(tmp_path, Parts(), delivers=False) as provider:
        memory, store = await begin(provider), provider.store
        for _ in range(MAX_TURNS_KEPT + 2):
            await turn(memory)
        with pytest.raises(NotFoundError):
            await record(store, 2)
        assert (await record(store, 3)).turn == 3
        await store.write(lambda tx: store.deletions.delete(tx, CONVERSATION.session_id))
        with pytest.raises(NotFoundError):
            await record(store)


@pytest.mark.contract("7.8")
async def test_an_incognito_turn_leaves_no_record(tmp_path: Path) -> None:
    async with open_seam(tmp_path, lambda _: Reply("fine"), Parts()) as agent:
        store, session = agent.store, agent.session_id
        await store.write(lambda tx: store.incognito.begin(tx, session))
        await say_to(agent, "secret")
        with pytest.raises(NotFoundError):
            await record(store, session=session)


@pytest.mark.contract("7.8")
def test_the_command_shows_the_last_turn_or_the_one_that_is_named(home: Path, hermes: Callable[..., Ran]) -> None:
    import asyncio

    async def talk() -> None:
        async with active(home, Parts()) as provider:
            memory = await begin(provider)
            await turn(memory)
            await turn(memory)

    home.mkdir()
    asyncio.run(talk())
    shown = hermes("memory", "explain")
    assert shown.code == 0
    assert "turn 2 of s1" in shown.out
    assert "missing: summary: it was late" in shown.out
    assert "- likes figs\n    score 0.80\n- likes tea\n    score 0.70\n" in shown.out
    told = json.loads(hermes("memory", "explain", "1", "--session", "s1", "--json").out)
    assert "\nleft out of evidence: likes jam (score 0.10)\n" in shown.out
    assert (told["turn"], told["parts"][2]["cut"]) == (1, 400)
    assert told["parts"][1]["left_out"] == ["likes jam (score 0.10)"]
    assert told["parts"][0]["sources"] == ["score 0.80", "score 0.70"]
    assert "turn 2 of s1" in hermes("memory", "explain", "--session", "s").out
    unknown = hermes("memory", "explain", "--session", "nothing")
    assert (unknown.code, unknown.err) == (1, hermes("sessions", "show", "nothing").err)
    missing = hermes("memory", "explain", "9")
    assert missing.code == 1
    assert "no turn 9 of session s1" in missing.err
