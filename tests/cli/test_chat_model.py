"""`hermes chat -m NAME`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.chatting import chat, environment, serving

pytestmark = pytest.mark.processes

PAGES = {"/v1/models": {"body": '{"data": [{"id": "loop-1"}, {"id": "loop-2"}]}'}}


@pytest.mark.contract("10.30")
def test_one_question_is_answered_by_the_model_that_is_named(tmp_path: Path) -> None:
    with serving(tmp_path, [], then={"echo": True}, pages=PAGES) as endpoint:
        env = environment(tmp_path / "home", endpoint.base_url)
        asked = chat(env, "-m", "loop-2", "-q", "hello")
        assert (asked.code, asked.out, asked.err) == (0, "hello\n", "")
        gone_on = chat(env, "-c", "-q", "and now")
        assert gone_on.code == 0
        assert [body["model"] for body in endpoint.requests()] == ["loop-2", "loop-2"]


@pytest.mark.contract("10.30")
def test_a_name_that_is_not_there_is_one_line_and_begins_no_session(tmp_path: Path) -> None:
    with serving(tmp_path, [], then={"echo": True}, pages=PAGES) as endpoint:
        env = environment(tmp_path / "home", endpoint.base_url)
        asked = chat(env, "-m", "loop-3", "-q", "hello")
        assert asked.code == 2
        assert "has no model 'loop-3' (did you mean loop-2 or loop-1?)" in asked.err
        assert endpoint.requests() == []
    without = chat(environment(tmp_path / "other"), "-m", "loop-1", "-q", "hello")
    assert without.err.startswith("hermes: no model is configured")


@pytest.mark.contract("10.30")
def test_an_endpoint_that_lists_nothing_is_believed_and_a_line_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, [], then={"echo": True}) as endpoint:
        asked = chat(environment(tmp_path / "home", endpoint.base_url), "-m", "loop-9", "-q", "hello")
        assert (asked.code, asked.out) == (0, "hello\n")
        assert asked.err.startswith("Whether loop-9 exists could not be checked")
        assert [body["model"] for body in endpoint.requests()] == ["loop-9"]
