"""Facts that survive a compression without a model, and the digest's behavior."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.agent.context import build_context
from hermes.compression.summarise import OPENING, add_missing, make_digest, read_telling
from hermes.llm.tokens import estimate_tokens, fit_tokens
from hermes.store.store import Store
from hermes.types import Draft, Message
from tests.compression.conversations import make_compressor, slow_summariser
from tests.compression.plumbing_job import PLANTED, conversation, forgotten, more_talk
from tests.scale import scale


def stored(drafts: list[Draft], first: int = 1) -> list[Message]:
    """Return drafts as stored messages."""
    return [
        Message(first + place, "s", draft.role, draft.content, 0.0, tool_calls=draft.tool_calls)
        for place, draft in enumerate(drafts)
    ]


async def seen_after_compressing(store: Store, session_id: str, window: int) -> str:
    result = await make_compressor(store, None, window=window).compress(session_id)
    assert result.outcome == "done"
    return json.dumps(build_context("", await store.view(session_id)), ensure_ascii=False)


@pytest.mark.contract("3.11")
@pytest.mark.parametrize(("window", "floor"), [(128_000, 1.0), (32_000, 1.0), (8_000, 1.0), (4_000, 1.0), (2_000, 0.7)])
async def test_facts_decisions_tasks_and_identifiers_are_still_there_after_a_digest(
    store: Store, window: int, floor: float
) -> None:
    session_id = (await store.create_session("test")).id
    await store.append(session_id, *conversation(), *more_talk(1, 6))
    text = await seen_after_compressing(store, session_id, window)
    assert len(PLANTED) - len(forgotten(text)) >= floor * len(PLANTED), forgotten(text)


@pytest.mark.contract("3.11")
@pytest.mark.parametrize(("window", "floor"), [(32_000, 1.0), (8_000, 1.0), (4_000, 1.0), (2_000, 0.7)])
async def test_facts_survive_three_digests_of_digests(store: Store, window: int, floor: float) -> None:
    session_id = (await store.create_session("test")).id
    await store.append(session_id, *conversation())
    for seed in range(3):
        await store.append(session_id, *more_talk(seed, 12))
        text = await seen_after_compressing(store, session_id, window)
    assert (await store.view(session_id)).epoch == 3
    assert len(PLANTED) - len(forgotten(text)) >= floor * len(PLANTED), forgotten(text)


@pytest.mark.contract("3.11")
@pytest.mark.parametrize(("budget", "floor"), [(4_000, 1.0), (1_000, 1.0), (500, 1.0), (250, 0.9), (128, 0.5)])
def test_smallest_digest_keeps_the_important_facts(budget: int, floor: float) -> None:
    digest = make_digest(None, stored(conversation()), budget)
    assert estimate_tokens(digest) <= budget
    assert len(PLANTED) - len(forgotten(digest)) >= floor * len(PLANTED), forgotten(digest)


def test_digest_of_a_models_summary_in_one_paragraph_keeps_its_facts() -> None:
    earlier = " ".join(sentence for _, sentence in PLANTED.values())
    digest = make_digest(earlier, stored(more_talk(3, 40)), 1_000)
    assert forgotten(digest) == []


def test_digest_keeps_whole_what_has_full_stops_inside() -> None:
    digest = make_digest(None, stored([Draft("user", "See src/app.py at 3.14 now. It cost 2.50 euros.")]), 200)
    assert "- user: See src/app.py at 3.14 now." in digest
    assert "- user: It cost 2.50 euros." in digest


def test_digest_of_chinese_keeps_what_was_decided() -> None:
    talk = [Draft("user", "今天天气不错。" * 5 + f"我们聊了第{number}件小事。") for number in range(60)]
    talk.insert(20, Draft("user", "我们决定使用SQLite。截止日期是2026-06-14。我对青霉素过敏。"))
    digest = make_digest(None, stored(talk), 250)
    assert estimate_tokens(digest) <= 250
    for kept in ("我们决定使用SQLite", "2026-06-14", "青霉素"):
        assert kept in digest


@pytest.mark.parametrize("blob", ["x" * 1_000_000, "a.b" * 300_000, "word " * 200_000, "'\"" * 300_000, "1" * 500_000])
@pytest.mark.timeout(60)
def test_digest_of_a_huge_blob_does_not_take_for_ever(blob: str) -> None:
    digest = make_digest(None, stored([Draft("tool", blob)]), 1_000)
    assert estimate_tokens(digest) <= 1_000


@pytest.mark.stress
@settings(max_examples=scale(50, 5_000))
@given(
    st.none() | st.text(max_size=400),
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=300)), max_size=12),
    st.integers(64, 600),
)
def test_digest_is_deterministic_within_its_budget_and_quotes(
    previous: str | None, talk: list[tuple[str, str]], budget: int
) -> None:
    messages = stored([Draft(role, text) for role, text in talk])
    digest = make_digest(previous, messages, budget)
    assert digest == make_digest(previous, messages, budget)
    assert estimate_tokens(digest) <= budget
    assert digest.startswith(OPENING)


@pytest.mark.stress
@settings(max_examples=scale(50, 5_000))
@given(st.text(max_size=300), st.integers(0, 120))
def test_text_is_cut_to_the_longest_beginning_that_fits(text: str, tokens: int) -> None:
    fitting = fit_tokens(text, tokens)
    assert text.startswith(fitting)
    assert estimate_tokens(fitting) <= tokens
    assert fitting == text or estimate_tokens(text[: len(fitting) + 1]) > tokens


@pytest.mark.contract("3.11")
def test_facts_that_a_weak_model_omits_are_quoted_after_its_summary() -> None:
    telling = read_telling(None, stored(conversation()))
    summary = add_missing("Marisol is allergic to penicillin. They spoke of the weather.", telling, 500)
    assert forgotten(summary) == []
    assert summary.count("penicillin") == 1
    assert "file_" not in summary
    again = add_missing("They spoke of the weather again.", read_telling(summary, stored(more_talk(1, 20))), 500)
    assert len(forgotten(again)) <= 1


def test_complete_summary_is_not_extended() -> None:
    good = " ".join(sentence for _, sentence in PLANTED.values())
    assert add_missing(good, read_telling(None, stored(conversation())), 500) == good


@pytest.mark.contract("3.11")
async def test_compression_with_a_model_that_notices_nothing_keeps_the_facts(store: Store) -> None:
    session_id = (await store.create_session("test")).id
    await store.append(session_id, *conversation(), *more_talk(1, 6))
    pause, go_on = asyncio.Event(), asyncio.Event()
    compressor = make_compressor(store, slow_summariser(pause, go_on, "They spoke of the weather."), window=16_000)
    running = asyncio.create_task(compressor.compress(session_id))
    await pause.wait()
    await asyncio.sleep(0.5)  # as a real model does: the conversation is read meanwhile
    go_on.set()
    assert (await running).outcome == "done"
    assert forgotten(str(build_context("", await store.view(session_id)))) == []
