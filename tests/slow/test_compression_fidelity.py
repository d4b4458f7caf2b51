"""Fidelity with a real model: after its own compression it still knows facts, decisions, tasks and identifiers.

`make slow` runs it with the model of the slow tests. HERMES_SLOW_MODEL_URL names another endpoint, HERMES_SLOW_MODEL a
model it lists.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from hermes.agent.context import build_context
from hermes.clock import SystemClock
from hermes.compression.compressor import Compressor
from hermes.compression.policy import CompressionPolicy
from hermes.db.leases import new_owner
from hermes.llm.events import Completed
from hermes.llm.model import Model, ModelRequest
from hermes.llm.openai_compatible import OpenAICompatible
from hermes.llm.timeouts import Timeouts
from hermes.store.store import Store
from hermes.types import Draft
from scripts.real_model import NAME
from tests.compression.plumbing_job import PLANTED, conversation, forgotten, more_talk

WINDOW_TOKENS = 8_000
MIN_KEPT_RATIO = 0.6
"""Minimum share of the planted facts in a small model's summary and tail."""

pytestmark = pytest.mark.slow
QUESTIONS = {
    "What am I allergic to?": "penicillin",
    "Which database did we decide on for the invoices?": "PostgreSQL",
    "On what date is the inspection?": "2026-06-14",
    "What is the number of the disputed bill?": "INV-20931",
}


@pytest.fixture
async def model(base_url: str) -> AsyncIterator[Model]:
    name = os.environ.get("HERMES_SLOW_MODEL", NAME)
    real = OpenAICompatible(
        base_url, name, context_length=WINDOW_TOKENS, timeouts=Timeouts(first_byte=600.0, idle=600.0)
    )
    yield real
    await real.close()


async def ask(model: Model, messages: list[dict[str, object]]) -> str:
    async with aclosing(model.stream(ModelRequest(messages, max_tokens=200))) as events:
        [end] = [event async for event in events if isinstance(event, Completed)]
    return end.reply.text


@pytest.mark.contract("3.11")
@pytest.mark.timeout(3600)
async def test_real_model_still_answers_from_what_it_compressed(model: Model, tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        session_id = (await store.create_session("test")).id
        await store.append(session_id, *conversation(padding=1, tools=False), *more_talk(1, 6))
        compressor = Compressor(store, model, CompressionPolicy(WINDOW_TOKENS), owner=new_owner(), deadline=1800.0)
        result = await compressor.compress(session_id)
        assert result.outcome == "done", result.reason
        text = str(build_context("", await store.view(session_id)))
        assert len(PLANTED) - len(forgotten(text)) >= MIN_KEPT_RATIO * len(PLANTED), forgotten(text)
        right = 0
        for question, key in QUESTIONS.items():
            await store.append(session_id, Draft("user", question))
            answer = await ask(model, build_context("Answer in one short sentence.", await store.view(session_id)))
            await store.append(session_id, Draft("assistant", answer))
            right += key.lower() in answer.lower()
        assert right >= len(QUESTIONS) // 2
