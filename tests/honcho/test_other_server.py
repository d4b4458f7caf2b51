"""Turns with a Honcho server that is not ours: it is searched with the person's message before the model is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.chatting import chat, environment
from tests.gateway.processes import echo_model
from tests.honcho.between import Asked, Instead, like_a_model
from tests.honcho.recalling import ANN, BOT, Recalling

QUESTION = "What is my cat called?"
FACTS = ((ANN, "My cat is called Miso."), (BOT, "I noted that your cat likes fish."))


@pytest.mark.contract("7.9")
@pytest.mark.parametrize("health", [{"status": "ok"}, {"status": "ok", "model": "a-large-one"}])
def test_other_server_is_searched_with_the_message_before_the_model_is_asked(
    recalling: Recalling, commanded: Path, health: dict[str, str]
) -> None:
    recalling.configure()
    recalling.tell("elsewhere", *FACTS)
    recalling.conclude(BOT, ANN, "Ann owns one cat.")
    answers = like_a_model("She has a cat.")
    before_model: list[str] = []
    with echo_model() as model:

        def rule(asked: Asked) -> Instead | None:
            body = asked.body if isinstance(asked.body, dict) else {}
            if not model.requests() and body.get("query") == QUESTION:
                before_model.append(asked.what)
            return Instead(health) if asked.what == "health" else answers(asked)

        recalling.between.rule = rule
        env = environment(commanded, model.base_url, HERMES_MEMORY_PROVIDER="", HOME=str(recalling.machine.folder))
        ran = chat(env, "-q", QUESTION, timeout=180)
        assert ran.code == 0, ran.err
        given = model.asked()[0][-1]
    assert {"search", "query"} <= set(before_model)
    assert recalling.between.count("evidence") == 0
    said = given.partition("## Said earlier")[2]
    assert [text for text in (*(text for _, text in FACTS), "Ann owns one cat.") if text not in said] == []
