"""The five tools: their answers, their errors, and the delivery of conclusions."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from hermes.honcho.conclusions import Conclude, Remove, decode_act
from hermes.honcho.keys import LEVELS
from hermes.honcho.session import tool_specs
from hermes.memory.deliveries import Deliveries
from hermes.memory.outbox import Outbox
from tests.honcho.between import Instead, like_a_model
from tests.honcho.configuring import Machine
from tests.honcho.recalling import ANN, BOT, HERE, SESSIONS, Recalling, Talk

FACT = re.compile(r"- (.*) \(id ([^)]*)\)")
NAMES = ["honcho_profile", "honcho_search", "honcho_context", "honcho_reasoning", "honcho_conclude"]
GIVEN: dict[str, dict[str, Any]] = {
    "honcho_profile": {},
    "honcho_search": {"query": "cat"},
    "honcho_context": {},
    "honcho_reasoning": {"query": "What is my cat called?"},
}


async def queued(talk: Talk) -> list[object]:
    """Return the acts in the outbox."""
    rows = await talk.provider.store.read(
        lambda tx: tx.execute(
            "SELECT payload FROM hermes_queue WHERE queue = ? ORDER BY id", (Outbox("honcho").queue,)
        ).fetchall()
    )
    bodies = [json.loads(row[0]) for row in rows]
    return [decode_act(body["data"]) for body in bodies if body.get("kind") == "own"]


@pytest.mark.contract("7.7")
def test_five_tools_have_a_peer_and_reasoning_has_an_optional_level(machine: Machine) -> None:
    specs = {spec.name: spec.parameters["properties"] for spec in tool_specs(machine.load())}
    assert list(specs) == NAMES
    assert all(given["peer"]["enum"] == ["user", "ai"] for given in specs.values())
    assert specs["honcho_reasoning"]["level"]["enum"] == list(LEVELS)
    machine.write({"dialecticDynamic": False})
    specs = {spec.name: spec.parameters["properties"] for spec in tool_specs(machine.load())}
    assert "level" not in specs["honcho_reasoning"]


@pytest.mark.contract("7.7")
async def test_each_tool_answers_from_memory(recalling: Recalling) -> None:
    recalling.configure()
    session = SESSIONS[HERE.session_id]
    recalling.tell(session, (ANN, "My cat is called Miso."), (BOT, "I answer in short sentences."))
    recalling.set_card(BOT, ["Has a cat"], ANN)
    known = recalling.conclude(BOT, ANN, "Ann's cat is a tabby.")
    async with recalling.host() as talk:
        assert await talk.use("honcho_profile") == "Has a cat"
        found = await talk.use("honcho_search", query="cat")
        assert f"Ann's cat is a tabby. (id {known})" in found
        assert "ann: My cat is called Miso." in found
        context = await talk.use("honcho_context")
        assert "## Key facts about ann\nHas a cat" in context
        assert "## Newest messages" in context
        assert "Miso" in await talk.use("honcho_reasoning", query="What is my cat called?")
        assert "short sentences" in await talk.use("honcho_context", peer="ai")


@pytest.mark.contract("7.7")
@pytest.mark.parametrize(("asked", "most"), [(None, 3200), (-10, 200), ("90", 360), (99_999, 8000), ("x", 3200)])
async def test_a_search_is_as_long_as_was_asked_for_and_never_over_the_cap(
    recalling: Recalling, asked: object, most: int
) -> None:
    recalling.configure()
    recalling.between.rule = lambda asked: (
        Instead([{"id": str(one), "content": "word " * 100} for one in range(40)]) if asked.what == "query" else None
    )
    async with recalling.host() as talk:
        given: dict[str, Any] = {} if asked is None else {"max_tokens": asked}
        found = await talk.use("honcho_search", query="word", **given)
    assert most - 10 < len(found) <= most


@pytest.mark.contract("7.7")
@pytest.mark.parametrize("tool", list(GIVEN))
@pytest.mark.parametrize(
    ("instead", "said"),
    [
        (Instead({"detail": "out of order"}, status=500), "the server answered 500: out of order"),
        (Instead({"detail": "who are you"}, status=401), "the server answered 401: who are you"),
        (Instead(b"<html>"), "not JSON"),
        (Instead(["?"]), "not one of Honcho"),
        (Instead(cut_off=True), "the connection to the server broke"),
    ],
)
async def test_a_failing_tool_says_what_failed(recalling: Recalling, tool: str, instead: Instead, said: str) -> None:
    recalling.configure(recallMode="tools")
    recalling.between.rule = lambda asked: None if asked.what == "health" else instead
    async with recalling.host() as talk:
        answer = await talk.use(tool, **GIVEN[tool])
    assert answer.startswith("failed: ")
    assert said in answer


@pytest.mark.contract("7.7")
async def test_empty_results_say_so(recalling: Recalling) -> None:
    recalling.configure()
    async with recalling.host() as talk:
        assert await talk.use("honcho_profile") == "There is no card of ann yet."
        assert await talk.use("honcho_search", query="cat") == "Nothing about ann fits 'cat'."
        assert await talk.use("honcho_context") == "Nothing is known about ann yet."
        assert "holds nothing about ann" in await talk.use("honcho_reasoning", query="Who?")


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("honcho_search", {}),
        ("honcho_search", {"query": " "}),
        ("honcho_search", {"query": ["cat"]}),
        ("honcho_profile", {"peer": "bob"}),
        ("honcho_reasoning", {"query": "x", "level": "huge"}),
        ("honcho_conclude", {}),
        ("honcho_conclude", {"conclusion": "a", "delete_id": "b"}),
        ("honcho_conclude", {"conclusion": "  "}),
        ("honcho_conclude", {"conclusion": "<memory-context>x</memory-context>"}),
        ("honcho_conclude", {"conclusion": ["a"]}),
        ("honcho_conclude", {"conclusion": "x" * 8001}),
    ],
)
async def test_invalid_call_is_refused_with_a_readable_error(
    recalling: Recalling, tool: str, given: dict[str, Any]
) -> None:
    recalling.configure()
    async with recalling.host() as talk:
        assert (await talk.use(tool, **given)).startswith("failed: ")


@pytest.mark.contract("7.7")
async def test_the_level_of_reasoning_is_the_models_only_where_it_may_choose(recalling: Recalling) -> None:
    for dynamic, level in ((True, "max"), (False, "low")):
        recalling.configure(recallMode="tools", dialecticDynamic=dynamic)
        recalling.between.rule = like_a_model("answer")
        async with recalling.host() as talk:
            assert await talk.use("honcho_reasoning", query="Who am I?", level="max") == "answer"
        assert recalling.between.bodies("chat")[-1]["reasoning_level"] == level


@pytest.mark.contract("7.7")
async def test_conclusion_is_saved_before_the_answer_and_queued_without_delivery(
    recalling: Recalling,
) -> None:
    recalling.configure()
    known = recalling.conclude(BOT, ANN, "Ann likes figs.")
    async with recalling.host() as talk:
        said = await talk.use("honcho_conclude", conclusion=" Prefers tea. ")
        gone = await talk.use("honcho_conclude", delete_id=known)
        assert await queued(talk) == [Conclude("Prefers tea."), Remove(known)]
    assert said.startswith("Saved. It is queued")
    assert gone.startswith("Saved. The deletion is queued")


@pytest.mark.contract("7.7", "P6")
async def test_a_fact_that_both_views_hold_is_deleted_in_both(
    recalling: Recalling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.honcho.session.DELIVERY_WAIT_SECONDS", 60.0)  # a busy machine delivers slowly
    recalling.configure()
    recalling.tell(SESSIONS[HERE.session_id], (ANN, "My cat is called Miso."), (ANN, "I work in Rome."))
    async with recalling.host() as talk:
        deliveries = Deliveries(talk.provider, "test", 4)
        deliveries.start()
        found = FACT.findall(await talk.use("honcho_search", query="cat"))
        [miso] = [key for text, key in found if "Miso" in text]
        assert await talk.use("honcho_conclude", delete_id=miso) == "Deleted."
        left = FACT.findall(await talk.use("honcho_search", query="cat", max_tokens=900))
        assert [text for text, _ in left] == ["ann: I work in Rome."]
        await deliveries.finish(5)


@pytest.mark.contract("7.7", "P6")
async def test_a_fact_of_the_persons_own_view_can_be_deleted_as_it_is_shown(recalling: Recalling) -> None:
    recalling.configure()
    known = recalling.conclude(ANN, ANN, "Ann rides a bike.")
    async with recalling.host() as talk:
        assert FACT.findall(await talk.use("honcho_search", query="bike")) == [("Ann rides a bike.", known)]
        assert (await talk.use("honcho_conclude", delete_id=known)).startswith("Saved. The deletion is queued")
        assert await queued(talk) == [Remove(known)]


@pytest.mark.contract("7.7")
async def test_a_search_finds_what_both_speakers_said_in_all_sessions(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("earlier", (ANN, "My boat needs paint."), (BOT, "A boat like that takes two coats."))
    recalling.tell("strangers", ("eve", "My boat is stolen."), (BOT, "A boat cannot hide."))
    async with recalling.host() as talk:
        found = await talk.use("honcho_search", query="boat")
    assert "ann: My boat needs paint." in found
    assert "bot: A boat like that takes two coats." in found
    assert "stolen" not in found
    assert "hide" not in found


@pytest.mark.contract("7.7")
async def test_facts_are_listed_and_found_with_the_ids_that_delete_them(recalling: Recalling) -> None:
    recalling.configure()
    known = {text: recalling.conclude(BOT, ANN, text) for text in ("Ann drinks tea.", "Ann rows.")}
    recalling.conclude(BOT, "eve", "Eve drinks rum.")
    async with recalling.host() as talk:
        listed = await talk.use("honcho_conclude", list=True)
        assert dict(FACT.findall(listed)) == known
        found = await talk.use("honcho_conclude", query="tea")
        assert FACT.findall(found)[0] == ("Ann drinks tea.", known["Ann drinks tea."])
        assert "rum" not in found
        assert await talk.use("honcho_conclude", list=True, peer="ai") == "There is no fact about bot."


@pytest.mark.contract("7.7")
@pytest.mark.parametrize("given", [{"query": "a", "list": True}, {"query": "a", "conclusion": "b"}, {"list": False}])
async def test_one_thing_at_a_time_is_asked_of_facts(recalling: Recalling, given: dict[str, Any]) -> None:
    recalling.configure()
    async with recalling.host() as talk:
        assert (await talk.use("honcho_conclude", **given)).startswith("failed: give one of")


@pytest.mark.contract("6.6", "7.7")
async def test_without_saved_messages_only_what_a_tool_writes_is_queued(recalling: Recalling) -> None:
    recalling.configure(saveMessages=False)
    note = recalling.machine.home / "memories" / "USER.md"
    note.parent.mkdir()
    async with recalling.host() as talk:
        await talk.turn("My cat is called Miso.")
        note.write_text("Has a cat.", encoding="utf-8")
        (await talk.memory()).note_written("user", "add", "Has a cat.")
        await talk.provider.background.settle()
        assert (await talk.use("honcho_conclude", conclusion="Ann has a cat.")).startswith("Saved.")
        kinds = await talk.provider.store.read(
            lambda tx: [json.loads(row[0])["kind"] for row in tx.execute("SELECT payload FROM hermes_queue").fetchall()]
        )
    assert kinds == ["own"]
