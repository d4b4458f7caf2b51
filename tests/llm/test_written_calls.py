"""Tool calls written as text: which texts are calls, and what is shown of a stream."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.llm.events import Reply
from hermes.llm.written_calls import CallStrainer, with_written_calls
from hermes.types import ToolCall

NAMES = frozenset({"memory", "session_search", "honcho_search", "delegate"})
CALL = '{"name": "memory", "arguments": {"action": "add", "content": "Ada"}}'
ADD = ("memory", {"action": "add", "content": "Ada"})
FIND = ("session_search", {"query": "boat"})

FORMS = {
    "tagged": (f"<tool_call>\n{CALL}\n</tool_call>", [ADD]),
    "tagged without an end": (f"<tool_call>{CALL}", [ADD]),
    "two tagged": (f'<tool_call>{CALL}</tool_call>\n<tool_call>{{"name": "session_search", "arguments": '
                   '{"query": "boat"}}</tool_call>', [ADD, FIND]),
    "bare": (CALL, [ADD]),
    "bare over lines": (json.dumps(json.loads(CALL), indent=2), [ADD]),
    "parameters": ('{"function": "memory", "parameters": {"action": "add", "content": "Ada"}}', [ADD]),
    "as on the wire": ('{"type": "function", "function": ' + CALL + "}", [ADD]),
    "arguments as text": (json.dumps({"name": "memory", "arguments": json.dumps(ADD[1])}), [ADD]),
    "arguments first": ('{"arguments": {"query": "boat"}, "name": "session_search"}', [FIND]),
    "fenced": (f"```json\n{CALL}\n```", [ADD]),
    "fenced without a language": (f"```\n{CALL}\n```", [ADD]),
    "a list": (f"[{CALL}]", [ADD]),
    "CALL": (f"CALL\n{CALL}\nEND", [ADD]),
    "CALL with a name": ('CALL session_search {"query": "boat"} END', [FIND]),
    "Mistral's": (f"[TOOL_CALLS][{CALL}]", [ADD]),
    "Mistral's later": ('[TOOL_CALLS]session_search[ARGS]{"query": "boat"}', [FIND]),
    "Llama's": ('<function=session_search>{"query": "boat"}</function>', [FIND]),
    "Llama's tag": ('<|python_tag|>{"name": "session_search", "parameters": {"query": "boat"}}', [FIND]),
    "parameter tags": ("<tool_call>\n<function=session_search>\n<parameter=query>\nboat\n</parameter>\n</function>\n"
                       "</tool_call>", [FIND]),
    "Python": ('session_search(query="boat")', [FIND]),
    "fenced Python": ('```python\nsession_search(query="boat")\n```', [FIND]),
    "after prose": (f"Let me note that.\n\n<tool_call>{CALL}</tool_call>", [ADD]),
    "fenced after prose": (f"I shall note that:\n```json\n{CALL}\n```\n", [ADD]),
    "after blank lines": (f"\n\n  {CALL}\n", [ADD]),
    "without arguments": ('{"name": "delegate"}', [("delegate", {})]),
}  # fmt: skip

REPLIES = {
    "words": "Your sister Ada lives in Oslo.",
    "a list of Markdown": "- one\n- two\n\n[a link](http://x)\n",
    "JSON for a person": '{"name": "Ada", "city": "Oslo"}',
    "JSON with a tool's name and more": '{"name": "memory", "size": 3}',
    "JSON in a fence": 'Here it is:\n```json\n{"name": "memory-leak", "arguments": [1]}\n```\nDone.',
    "code": "```python\nimport os\nmemory = os.environ\nprint(memory)\n```",
    "a call with words after it": f"A call looks so:\n{CALL}\nShall I send it?",
    "a call of another name": '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
    "a call in a line of words": f"It wrote {CALL}",
    "a word of ours": "memory is what I have; CALL me later.\nCALL me at six.",
    "positional Python": "delegate(task)",
    "a list of numbers": "[1, 2, 3]",
    "an unfinished object": '{"a": {"b": ',
    "an opened tag": "<tool_call",
}


def _read(text: str) -> tuple[str, list[tuple[str, object]]]:
    reply = with_written_calls(Reply(text=text), NAMES)
    return reply.text, [(call.name, json.loads(call.arguments)) for call in reply.tool_calls]


def _shown(text: str, cuts: list[int]) -> str:
    """Return what is shown of a text that arrives in pieces."""
    strainer, places = CallStrainer(NAMES), [0, *sorted(cuts), len(text)]
    shown = "".join(strainer.feed(text[one:two]) for one, two in pairwise(places))
    return shown + strainer.end(is_call=bool(_read(text)[1]))


@pytest.mark.contract("7.11")
@pytest.mark.parametrize("form", FORMS)
def test_a_call_in_a_common_form_is_read_as_one(form: str) -> None:
    text, calls = FORMS[form]
    said, found = _read(text)
    assert found == calls
    assert "memory" not in said
    assert "session_search" not in said


@pytest.mark.contract("7.11")
@pytest.mark.parametrize("kind", REPLIES)
def test_a_reply_that_is_no_call_stays_as_it_is(kind: str) -> None:
    assert _read(REPLIES[kind]) == (REPLIES[kind], [])


def test_a_call_that_is_cut_off_or_malformed_still_counts_as_a_call() -> None:
    for text in ('{"name": "memory", "arguments": {"action": "a', '<tool_call>{\'name\': "name": "memory"}'):
        reply = with_written_calls(Reply(text=text), NAMES)
        assert [call.name for call in reply.tool_calls] in (["memory"], [])
    cut = with_written_calls(Reply(text='{"name": "memory", "arguments": {"action": "a'), NAMES)
    assert [call.name for call in cut.tool_calls] == ["memory"]


def test_real_calls_and_unknown_tools_are_left_alone() -> None:
    real = Reply(text=CALL, tool_calls=(ToolCall("1", "memory", "{}"),))
    assert with_written_calls(real, NAMES) is real
    assert with_written_calls(Reply(text=CALL), frozenset()).tool_calls == ()


@given(st.sampled_from([*(text for text, _ in FORMS.values()), *REPLIES.values()]), st.lists(st.integers(0, 200)))
def test_however_a_stream_is_cut_no_call_is_shown_and_all_else_is(text: str, cuts: list[int]) -> None:
    said, calls = _read(text)
    shown = _shown(text, [cut for cut in cuts if cut < len(text)])
    assert shown.rstrip() == said.rstrip() if calls else shown == text


@given(st.text(alphabet='{}[]"`<>=/\n :,cal(tool_callnamememoryCALLEND', max_size=300), st.lists(st.integers(0, 300)))
def test_any_text_is_shown_whole_or_ends_where_its_calls_begin(text: str, cuts: list[int]) -> None:
    said, calls = _read(text)
    shown = _shown(text, [cut for cut in cuts if cut < len(text)])
    assert shown.rstrip() == said.rstrip() if calls else shown == text


@pytest.mark.parametrize("text", ['{"a": 1,\n', "```python\nx = 1\n", "- one\n- two\n", "Hello\n\nthere "])
def test_text_without_calls_is_shown_while_it_streams(text: str) -> None:
    strainer = CallStrainer(NAMES)
    assert strainer.feed(text + "x").rstrip().endswith("x") or strainer.feed("y" * 8)


@pytest.mark.parametrize(
    "unit", ['{"name": ', '{"name": "memory",\n', "<tool_call>", "CALL ", "[[", "```json\n{", "memory("]
)
def test_a_long_hostile_text_is_read_in_bounded_steps(unit: str) -> None:
    text = unit * 20_000
    strainer = CallStrainer(NAMES)
    shown = "".join(strainer.feed(text[start : start + 50]) for start in range(0, len(text), 50))
    reply = with_written_calls(Reply(text=text), NAMES)
    assert len(shown) <= len(text)
    assert len(reply.tool_calls) <= len(text)
