"""Contexts smaller than a summary: an extract keeps its most informative lines."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.memory_server.engine.summaries import MIN_EXTRACT_TOKENS, cut_extract
from hermes.memory_server.tokens import count_tokens
from tests.memory_server.sdk import Caller, connected
from tests.memory_server.serving import Served
from tests.memory_server.talking import conclude, say, settle

pytestmark = pytest.mark.contract("9.1")
LIFE = (
    "My name is Nadia Petrov.",
    "I live in Ghent.",
    "I can't eat walnuts.",
    "I play the cello.",
    "My son is called Ivo.",
)
HEAD = "Extract of messages 1 to 90 (made without a model):"


@pytest.mark.processes
async def test_first_facts_of_a_long_session_are_in_a_small_context(
    http: httpx.Client, server: Served, workspace: str, call: Caller
) -> None:
    texts = [*LIFE, *(f"I had lunch number {n} and it was fine." for n in range(731 - len(LIFE)))]
    for start in range(0, len(texts), 100):
        say(http, "talk", *texts[start : start + 100])
    settle(http)
    async with connected(server.url, workspace) as client:
        session = await call(client.session, "talk")
        for tokens in (300, 800, 2000):
            context = await call(session.context, tokens=tokens)
            assert [fact for fact in LIFE if fact not in context.summary.content] == []
            sizes = [count_tokens(one.content) for one in (context.summary, *context.messages)]
            assert sizes[0] == context.summary.token_count
            assert sum(sizes) <= tokens
            assert context.messages[-1].content == texts[-1]
        whole = (await call(session.summaries)).short_summary
        assert 900 < whole.token_count <= 1000


@pytest.mark.processes
def test_conclusions_never_exceed_the_tokens(http: httpx.Client) -> None:
    say(http, "talk", *(f"Was lunch number {n} fine?" for n in range(90)))
    conclude(http, *(f"Ann owns house number {n} in the old town." for n in range(90)))
    settle(http)
    for tokens in (100, 500, 2000):
        told = http.get("/sessions/talk/context", params={"tokens": tokens, "peer_target": "ann"}).json()
        texts = [told["peer_representation"], *(one["content"] for one in (told["summary"], *told["messages"]) if one)]
        assert told["peer_representation"].count("house number") > 1
        assert sum(map(count_tokens, texts)) <= tokens


LINES = st.lists(st.text(st.sampled_from("ab 漢I'm é.?"), min_size=1, max_size=80), max_size=60)


@given(LINES, st.integers(0, 400))
def test_extract_is_cut_to_whole_lines_in_their_order(texts: list[str], tokens: int) -> None:
    lines = [f"- ann: {text}" for text in texts]
    cut = cut_extract("\n".join([HEAD, *lines]), tokens)
    if cut is None:
        assert tokens <= MIN_EXTRACT_TOKENS or not lines
        return
    assert count_tokens(cut) <= tokens
    left = iter(lines)
    head, *kept = cut.split("\n")
    assert head == HEAD
    assert all(line in left for line in kept), "a shorter list in the same order"


def test_summary_that_is_no_extract_is_never_cut() -> None:
    assert cut_extract("She lives in Ghent.\n" * 400, 500) is None
