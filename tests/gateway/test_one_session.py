"""One session under all names that clients use: one lane, one effect per Idempotency-Key, and no other's reply."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from hermes.events import Failed, Replied, Stopped
from hermes.gateway.platforms.api_door import follow
from tests.gateway.core import TIMEOUT_SECONDS, Gate, request, running_core, talk
from tests.gateway.processes import appears, rows, said


@pytest.mark.contract("2.3")
async def test_session_key_equal_to_its_session_id_works(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        assert await talk(core, request("hi", "1", session="same", key="same")) == "echo: hi"


@pytest.mark.contract("2.3")
async def test_sessions_whose_keys_are_each_others_ids_work(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        answers = await asyncio.gather(
            talk(core, request("hi a", "1", session="a", key="b")),
            talk(core, request("hi b", "1", session="b", key="a")),
        )
    assert list(answers) == ["echo: hi a", "echo: hi b"]


@pytest.mark.contract("2.2", "P2")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((("a:b", None), "c"), (("a", None), "b:c")),
        ((("x", None), "1"), ((None, "x"), "1")),
        ((("p", "k1"), "1"), (("q", "k1"), "1")),
    ],
)
async def test_idempotency_key_is_valid_in_one_session_only(
    tmp_path: Path, one: tuple[tuple[str | None, str | None], str], other: tuple[tuple[str | None, str | None], str]
) -> None:
    async with running_core(tmp_path) as core:
        for text, ((session, key), message_id) in (("first", one), ("second", other)):
            assert await talk(core, request(text, message_id, session=session, key=key)) == f"echo: {text}"
    assert len(rows(tmp_path, "SELECT 1 FROM sessions")) == 2


NAMES: list[tuple[str | None, str | None]] = [("s", None), (None, "k"), ("s", "k")]


@pytest.mark.contract("2.2", "P2")
@pytest.mark.parametrize("again", NAMES)
@pytest.mark.parametrize("first", NAMES)
async def test_idempotency_key_has_one_effect_under_every_session_name(
    tmp_path: Path, first: tuple[str | None, str | None], again: tuple[str | None, str | None]
) -> None:
    async with running_core(tmp_path) as core:
        await talk(core, request("begin", "0", session="s", key="k"))
        for session, key in (first, again):
            assert await talk(core, request("once", "1", session=session, key=key)) == "echo: once"
    assert said(tmp_path, "s") == ["begin", "once"]
    assert len(core.model.requests) == 2


@pytest.mark.contract("2.3")
async def test_session_has_one_lane_under_every_name(tmp_path: Path) -> None:
    gate = Gate()
    texts = [f"m{number}" for number in range(6)]
    async with running_core(tmp_path, gate) as core:
        await core.gateway.receive(request("wait", "first", session="s"))
        await gate.asked.wait()
        await core.gateway.receive(request("by key too", "bind", session="s", key="k"))
        for number, text in enumerate(texts):
            session, key = NAMES[number % 3]
            await core.gateway.receive(request(text, text, session=session, key=key))
        assert rows(tmp_path, "SELECT count(DISTINCT lane) FROM hermes_queue WHERE queue = 'inbox'") == [(1,)]
        gate.opened.set()
        assert await talk(core, request("last", "last", session="s")) == "echo: last"
    assert said(tmp_path, "s") == ["wait", "by key too", *texts, "last"]


@pytest.mark.contract("2.6")
@pytest.mark.parametrize(("session", "key"), NAMES)
async def test_stop_ends_the_turn_under_every_session_name(
    tmp_path: Path, session: str | None, key: str | None
) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate) as core:
        await core.gateway.receive(request("wait", "first", session="s"))
        await gate.asked.wait()
        await core.gateway.receive(request("by key too", "bind", session="s", key="k"))
        assert await talk(core, request("/stop", "stop", session=session, key=key)) == "Stopped."


async def test_second_key_of_a_session_shares_its_lane_and_can_begin_anew(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await talk(core, request("one", "1", session="s", key="first"))
        await talk(core, request("two", "2", session="s", key="second"))
        await talk(core, request("/new", "3", key="second"))
        await talk(core, request("three", "4", key="second"))
        await talk(core, request("four", "5", key="first"))
    assert said(tmp_path, "s") == ["one", "two", "four"]
    assert rows(tmp_path, "SELECT count(DISTINCT lane) FROM hermes_queue WHERE queue = 'inbox'") == [(1,)]


@pytest.mark.parametrize("waiting", [("s", None), (None, "k")])
async def test_waiting_requests_of_a_deleted_session_get_an_error(
    tmp_path: Path, waiting: tuple[str | None, str | None]
) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate, gateway__drain=0.1) as core, asyncio.timeout(TIMEOUT_SECONDS):
        await core.gateway.receive(request("wait", "first", session="s", key="k"))
        await gate.asked.wait()
        asked = request("and I?", "second", session=waiting[0], key=waiting[1])
        _, heard = await follow(core.gateway, asked)
        _, again = await follow(core.gateway, asked)
        await core.store.write(lambda tx: core.store.deletions.delete(tx, "s"))
        for events in (heard, again):
            async with aclosing(events):
                end = await anext(events)
                assert isinstance(end, Failed)
                assert (end.kind, "deleted" in end.message) == ("gone", True)


@pytest.mark.contract("2.3")
async def test_session_recreated_during_a_turn_gets_nothing_of_it(tmp_path: Path) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate) as core, asyncio.timeout(TIMEOUT_SECONDS):
        _, heard = await follow(core.gateway, request("wait, secret", "first", session="s"))
        await gate.asked.wait()
        await core.store.write(lambda tx: core.store.deletions.delete(tx, "s"))
        fresh = asyncio.create_task(talk(core, request("who are you?", "second", session="s")))
        await appears(tmp_path, "SELECT 1 FROM sessions WHERE id = 's'")
        gate.opened.set()
        assert await fresh == "echo: who are you?"
        ends = [event async for event in heard if isinstance(event, Replied | Stopped | Failed)]
    assert [end.kind for end in ends if isinstance(end, Failed)] == ["gone"]
    assert rows(tmp_path, "SELECT content FROM messages ORDER BY id") == [("who are you?",), ("echo: who are you?",)]


@pytest.mark.contract("2.2")
async def test_repeated_stop_gets_the_same_answer_and_stops_nothing(tmp_path: Path) -> None:
    gate = Gate()
    stop = request("/stop", "stop", session="s")
    async with running_core(tmp_path, gate, gateway__drain=0.1) as core:
        await core.gateway.receive(request("wait", "first", session="s"))
        await gate.asked.wait()
        assert await talk(core, stop) == "Stopped."
        gate.asked.clear()
        await core.gateway.receive(request("wait again", "second", session="s"))
        await gate.asked.wait()
        assert await talk(core, stop) == "Stopped."
        gate.opened.set()
        assert await talk(core, request("wait again", "second", session="s")) != ""
    assert said(tmp_path, "s", "assistant")[-1] == "echo: wait again"
    async with running_core(tmp_path) as core:
        assert await talk(core, stop) == "Stopped."


async def test_new_in_a_session_named_by_its_id_changes_nothing(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await talk(core, request("hi", "1", session="s", key="k"))
        before = rows(tmp_path, "SELECT id, end_reason FROM sessions"), rows(tmp_path, "SELECT * FROM hermes_routes")
        for key in (None, "k"):
            assert "use another session id" in await talk(core, request("/new", f"new {key}", session="s", key=key))
    assert (
        rows(tmp_path, "SELECT id, end_reason FROM sessions"),
        rows(tmp_path, "SELECT * FROM hermes_routes"),
    ) == before
