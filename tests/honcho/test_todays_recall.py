"""Keys of the stock plugin that change recall, against a real server: the questions, their times and words, the
injected text, and the injection log."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hermes.errors import ProviderError
from hermes.honcho import injection
from hermes.honcho.injection import append_line
from hermes.honcho.recall_policy import COLD, REWRITE, WARM, pause_turns
from tests.honcho.between import Asked, Instead, like_a_model, until_it_is_so
from tests.honcho.recalling import ANN, BOT, HERE, PATIENT, SESSIONS, Recalling, Talk
from tests.honcho.setting_up import LAYERS, placed
from tests.llm.loopback import LoopbackServer, says
from tests.slash.surfaces import at_terminal, say

FIGS = "I like figs and my cat is called Miso."
HEADS = {
    "summary": "## Summary of what was said here so far",
    "peerRepresentation": "## What is known about ann",
    "peerCard": "## Key facts about ann",
    "aiRepresentation": "## What you know about yourself",
    "aiCard": "## Key facts about yourself",
}


def configure(recalling: Recalling, layer: str, **values: Any) -> None:
    recalling.configure(**placed(layer, values))


def let_model(talk: Talk, *answers: str | ProviderError) -> list[tuple[str, str]]:
    """Give the host a model with these answers, the last one repeatedly; return its requests."""
    asked: list[tuple[str, str]] = []

    async def ask(instructions: str, text: str) -> str:
        asked.append((instructions, text))
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, ProviderError):
            raise answer
        return answer

    talk.provider._surroundings = replace(talk.provider._surroundings, ask_model=ask)
    return asked


@pytest.mark.contract("7.3")
@LAYERS
@pytest.mark.parametrize("parts", [[], ["summary", "aiCard"], ["peerCard"], list(HEADS)])
async def test_session_start_lists_the_parts_of_base_context(
    recalling: Recalling, layer: str, parts: list[str]
) -> None:
    configure(recalling, layer, injection={"sessionStart": parts}, contextTokens=4000)
    session = SESSIONS[HERE.session_id]
    recalling.tell(session, *[(ANN, f"I own book number {number}.") for number in range(25)])
    recalling.tell(session, (BOT, "I keep my answers short."))
    recalling.conclude(BOT, ANN, "Ann collects old maps.")
    recalling.set_card(BOT, ["Name: Ann"], ANN)
    recalling.set_card(BOT, ["I am a librarian"])
    found: dict[str, list[str]] = {"search": [], "query": []}
    answers = like_a_model("an answer")
    recalling.between.rule = lambda asked: Instead(found[asked.what]) if asked.what in found else answers(asked)
    async with recalling.host() as talk:
        text = await talk.turn("Which books do I have?")
    assert [name for name, head in HEADS.items() if head in text] == parts
    if not parts:
        assert recalling.between.count("context") == 0, "nothing is fetched in vain"


@pytest.mark.contract("7.5", "7.9")
@LAYERS
async def test_with_recall_sync_every_layer_is_asked_for_with_the_message(recalling: Recalling, layer: str) -> None:
    configure(recalling, layer, recallSync=True)
    recalling.tell("elsewhere", (ANN, FIGS))
    recalling.between.rule = like_a_model("an answer")
    async with recalling.host() as talk:
        memory = await talk.memory()
        await memory.tools(memory.begin())
        await memory.settle()
        assert recalling.between.count("context") + recalling.between.count("chat") == 0, "nothing is fetched ahead"
        first = await talk.turn("What fruit do I like?")
        assert "figs" in first
        assert "an answer" in first
        await talk.turn("And my cat?")
    assert [_search(asked) for asked in recalling.between.asked if asked.what == "context"] == [
        "What+fruit+do+I+like%3F",
        "And+my+cat%3F",
    ]
    assert recalling.between.count("chat") == 2


def _search(asked: Asked) -> str:
    return asked.path.partition("search_query=")[2]


@pytest.mark.contract("7.5")
async def test_with_recall_sync_what_is_late_is_dropped_and_asked_for_again(recalling: Recalling) -> None:
    recalling.configure(recallSync=True, timeout=1, dialecticCadence=5)
    slow, quick = Instead({"content": "about the fruit"}, hang=True), like_a_model("about the cat")
    recalling.between.rule = lambda asked: slow if asked.what == "chat" else quick(asked)
    async with recalling.host() as talk:
        memory = await talk.memory()
        async with asyncio.timeout(15):  # the turn itself may take 20 s
            first = await memory.recall([await talk.say("What fruit do I like?")], memory.begin())
        assert first.missed is not None
        assert "dialectic" in first.missed
        recalling.between.rule = quick
        recalling.between.go_on.set()
        second = await talk.turn("And my cat?")
    assert "about the cat" in second, "a late answer does not use up the cadence"
    assert "about the fruit" not in second


@pytest.mark.contract("7.5")
async def test_with_recall_sync_a_turn_has_no_answer_to_another_question(recalling: Recalling) -> None:
    recalling.configure(recallSync=True, timeout=1)
    recalling.between.rule = quick = like_a_model("about the fruit")
    async with recalling.host() as talk:
        assert "about the fruit" in await talk.turn("What fruit do I like?")
        recalling.between.rule = lambda asked: Instead(hang=True) if asked.what == "chat" else quick(asked)
        assert "about the fruit" not in await talk.turn("And my cat?")
        recalling.between.go_on.set()


@pytest.mark.contract("7.4")
@LAYERS
async def test_a_model_of_the_host_words_the_first_question(recalling: Recalling, layer: str) -> None:
    configure(recalling, layer, queryRewrite=True)
    recalling.between.rule = like_a_model("an answer")
    async with recalling.host() as talk:
        asked = let_model(talk, "Which fruit\ndoes Ann like?")
        memory = await talk.memory()
        await memory.tools(memory.begin())
        await memory.settle()
        assert recalling.between.count("chat") == 0, "there is no general question ahead of the message"
        await talk.turn("What fruit do I like?")
        assert asked[0] == (REWRITE, "What fruit do I like?")
    assert recalling.between.bodies("chat")[0]["query"] == "Which fruit does Ann like?"
    assert not any("Which" in _search(one) for one in recalling.between.asked), (
        "base context is asked for as it was said"
    )


@pytest.mark.contract("7.4")
async def test_the_configured_model_words_it_in_a_conversation(recalling: Recalling) -> None:
    recalling.configure(queryRewrite=True)
    recalling.between.rule = like_a_model("an answer")
    question = "Which fruit does Ann like?"
    async with LoopbackServer([says(question)] * 4) as model:
        endpoint = {"model__base_url": model.base_url, "model__default": "loop-1", "compression__idle": 0}
        async with at_terminal(recalling.machine.home, memory__provider="honcho", **endpoint) as talking:
            await say(talking, "What fruit do I like?")
            await asyncio.to_thread(until_it_is_so, lambda: bool(recalling.between.bodies("chat")))
        systems = [request.body["messages"][0]["content"] for request in model.requests if request.body]
    assert systems.count(REWRITE) == len(recalling.between.bodies("chat")), "one small call for each"
    assert {body["query"] for body in recalling.between.bodies("chat")} == {question}


@pytest.mark.contract("7.4")
@pytest.mark.parametrize("answer", ["  ", ProviderError("the model is gone", hint="")])
async def test_without_a_worded_question_the_usual_one_is_asked(
    recalling: Recalling, answer: str | ProviderError
) -> None:
    recalling.configure(queryRewrite=True)
    recalling.between.rule = like_a_model("an answer")
    async with recalling.host() as talk:
        let_model(talk, answer)
        await talk.turn("What fruit do I like?")
    assert {body["query"] for body in recalling.between.bodies("chat")} <= {COLD, WARM}
    assert recalling.between.bodies("chat")


@pytest.mark.contract("7.4")
async def test_an_empty_answer_does_not_use_up_the_cadence_and_pauses_grow(recalling: Recalling) -> None:
    recalling.configure(dialecticCadence=50)
    recalling.between.rule = like_a_model(None)
    asked = []
    async with recalling.host() as talk:
        for number in range(12):
            await talk.turn(f"question {number}")
            asked.append(recalling.between.count("chat"))
        # Ahead of the first turn, for turns 2 and 3, then with pauses of 2, 4 and 8 turns.
        assert asked == [2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5]
        recalling.between.rule = like_a_model("She wants the atlas.")
        for number in range(12, 18):
            text = await talk.turn(f"question {number}")
    assert "She wants the atlas." in text
    assert recalling.between.count("chat") == 6, "an answer uses it up"


def test_pauses_are_bounded() -> None:
    assert [pause_turns(count) for count in (1, 2, 3, 4, 5, 6, 100)] == [1, 1, 2, 4, 8, 16, 16]


@pytest.mark.contract("7.5")
@LAYERS
@pytest.mark.parametrize(
    ("key", "what", "name"),
    [
        ("firstTurnBaseWait", "context", "base"),
        ("firstTurnDialecticWait", "chat", "dialectic"),
    ],
)
async def test_zero_does_not_let_the_first_turn_wait(
    recalling: Recalling, layer: str, key: str, what: str, name: str
) -> None:
    configure(recalling, layer, **{key: 0})
    quick = like_a_model("an answer")
    recalling.between.rule = lambda asked: Instead(hang=True) if asked.what == what else quick(asked)
    async with recalling.host(replace(PATIENT, first_turn=60)) as talk:
        memory = await talk.memory()
        async with asyncio.timeout(20):  # half of the deadline would be waited for otherwise
            found = await memory.recall([await talk.say("What fruit do I like?")], memory.begin())
        recalling.between.go_on.set()
    assert found.missed == f"{name}: it was not there in time"


@pytest.mark.contract("7.5")
async def test_the_timeout_ends_a_request(recalling: Recalling) -> None:
    recalling.configure(requestTimeout=1)
    recalling.between.rule = lambda asked: Instead(hang=True) if asked.what == "card" else None
    async with recalling.host() as talk:
        assert "did not answer within 1 s" in await talk.use("honcho_profile")
        recalling.between.go_on.set()


@pytest.mark.contract("7.3", "7.5")
@LAYERS
@pytest.mark.parametrize(
    ("values", "contexts", "chats"),
    [
        ({"contextTokens": 800}, ["800"] * 4, 4),
        ({"contextCadence": 2}, ["1000"] * 2, 4),
        ({"dialecticCadence": 3}, ["1000"] * 4, 2),
        ({"injectionFrequency": "first-turn"}, ["1000"], 1),
    ],
)
async def test_budget_and_cadence_count_in_requests(
    recalling: Recalling, layer: str, values: dict[str, Any], contexts: list[str], chats: int
) -> None:
    configure(recalling, layer, **values)
    recalling.between.rule = like_a_model("an answer")
    async with recalling.host() as talk:
        for number in range(3):
            await talk.turn(f"question {number}")
    paths = [asked.path for asked in recalling.between.asked if asked.what == "context"]
    assert [path.partition("tokens=")[2].partition("&")[0] for path in paths] == contexts
    assert recalling.between.count("chat") == chats


@LAYERS
async def test_the_injection_log_has_what_each_turn_was_given(recalling: Recalling, layer: str) -> None:
    configure(recalling, layer, logging=True)
    recalling.tell("elsewhere", (ANN, FIGS))
    path = recalling.machine.folder / ".honcho" / "injection.log"
    async with recalling.host() as talk:
        texts = [await talk.turn(text) for text in ("What fruit do I like?", "And my cat?")]
        await asyncio.to_thread(until_it_is_so, lambda: path.exists() and path.read_text().count("\n") == 2)
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert ["\n\n".join(part["text"] for part in one["parts"] if part["text"]) for one in records] == texts
    assert [(one["turn"], one["session"], one["hermes_session"]) for one in records] == [
        (1, SESSIONS["s1"], "s1"),
        (2, SESSIONS["s1"], "s1"),
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "hch-" not in path.read_text(encoding="utf-8")


async def test_the_log_is_off_by_default_and_variables_turn_it_on_elsewhere(
    recalling: Recalling, tmp_path: Path
) -> None:
    recalling.configure()
    other = tmp_path / "logs" / "told.jsonl"
    async with recalling.host() as talk:
        await talk.turn("What fruit do I like?")
        assert not (recalling.machine.folder / ".honcho").exists()
    env = {"HONCHO_LOGGING": "1", "HONCHO_INJECTION_LOG": str(other)}
    async with recalling.host(env=env) as talk:
        await talk.turn("And my cat?")
        await asyncio.to_thread(until_it_is_so, other.exists)
    assert not (recalling.machine.folder / ".honcho").exists()


def test_a_full_log_makes_room_and_a_readable_one_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "MAX_LOG_BYTES", 100)
    path = tmp_path / "logs" / "injection.log"
    path.parent.mkdir()
    path.write_text("old\n", encoding="utf-8")
    path.chmod(0o644)
    append_line(path, b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for _ in range(31):
        append_line(path, b"x" * 20)
    assert sum(one.stat().st_size for one in path.parent.iterdir()) < 300
    assert sorted(one.name for one in path.parent.iterdir()) == ["injection.log", "injection.log.1"]


def test_a_log_that_is_no_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    path.chmod(0o644)
    with pytest.raises(OSError, match="No such device"):  # nobody reads: it does not wait for a reader
        append_line(path, b"one")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="not a file"):
            append_line(path, b"one")
    finally:
        os.close(reader)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
