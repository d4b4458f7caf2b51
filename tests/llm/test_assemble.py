"""Assembling a reply from its chunks."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.llm.assemble import MAX_TOOL_CALLS, Assembler, MalformedChunk, StreamedError
from hermes.llm.events import ReasoningPiece, Reply, TextPiece, Usage
from hermes.llm.openai_compatible import EventDecoder
from hermes.types import Json, ToolCall
from tests.llm.loopback import chunk, says


def assemble(*deltas: Json) -> Reply:
    assembler = Assembler("s")
    for delta in deltas:
        assembler.feed(json.dumps(chunk(delta)))
    assembler.close()
    return assembler.reply()


def calls_of(*pieces: Json) -> tuple[ToolCall, ...]:
    return assemble(*({"tool_calls": [piece]} for piece in pieces)).tool_calls


def piece(index: int | None, id_: str | None, name: str | None, arguments: Json) -> Json:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": id_, "function": {key: value for key, value in function.items() if value is not None}}


def test_parallel_calls_come_in_pieces_by_index() -> None:
    assert calls_of(
        piece(0, "a", "read", ""),
        piece(1, "b", "write", ""),
        piece(1, None, None, '{"x"'),
        piece(0, None, None, "{}"),
        piece(1, None, None, ":1}"),
    ) == (ToolCall("a", "read", "{}"), ToolCall("b", "write", '{"x":1}'))


def test_calls_with_any_indices_come_in_the_order_in_which_they_began() -> None:
    indices = (7, 10**12, 0, None, -3)
    begun = [piece(index, f"id{index}", "read", "{") for index in indices]
    ended = [piece(index, None, None, "}") for index in reversed(indices)]
    assert [call.id for call in calls_of(*begun, *ended)] == [f"id{index}" for index in indices]
    assert {call.arguments for call in calls_of(*begun, *ended)} == {"{}"}


def test_reply_with_too_many_calls_is_malformed_and_what_it_said_is_kept() -> None:
    assembler = Assembler("s")
    assembler.feed(json.dumps(chunk({"content": "Wait."})))
    calls = [piece(index, f"id{index}", "read", "{}") for index in range(MAX_TOOL_CALLS + 1)]
    with pytest.raises(MalformedChunk, match="more than 1,000 tool calls"):
        assembler.feed(json.dumps(chunk({"tool_calls": calls})))
    assert (assembler.reply().text, len(assembler.reply().tool_calls)) == ("Wait.", MAX_TOOL_CALLS)


def test_arguments_are_no_longer_than_a_reply_may_be() -> None:
    assembler = Assembler("s", max_chars=1_000)
    calls = [piece(0, "a", "read", "x" * 300), *[piece(0, None, None, "x" * 300)] * 50]
    assembler.feed(json.dumps(chunk({"tool_calls": calls})))
    assert assembler.is_truncated
    assert len(assembler.reply().tool_calls[0].arguments) == 900


def test_arguments_that_are_not_json_are_kept_as_the_model_wrote_them() -> None:
    assert calls_of(piece(0, "a", "read", '{"path": "unfini')) == (ToolCall("a", "read", '{"path": "unfini'),)


def test_arguments_that_come_as_an_object_become_text() -> None:
    assert calls_of(piece(0, "a", "read", {"x": 1})) == (ToolCall("a", "read", '{"x": 1}'),)


def test_calls_that_all_have_index_0_are_told_apart_by_id() -> None:
    assert calls_of(piece(0, "a", "read", "1"), piece(0, "b", "read", "2")) == (
        ToolCall("a", "read", "1"),
        ToolCall("b", "read", "2"),
    )


def test_calls_without_index_and_id_are_told_apart_by_name_and_get_ids() -> None:
    assert calls_of(piece(None, None, "read", "1"), piece(None, None, "read", "2")) == (
        ToolCall("call_s_0", "read", "1"),
        ToolCall("call_s_1", "read", "2"),
    )


def test_an_id_on_every_piece_makes_no_new_call() -> None:
    assert calls_of(piece(0, "a", "read", "{"), piece(0, "b", None, "}")) == (ToolCall("a", "read", "{}"),)


def test_a_name_that_is_repeated_or_cut_is_whole() -> None:
    assert calls_of(piece(0, "a", "read", "{"), piece(0, "a", "read", "}"))[0].name == "read"
    assert calls_of(piece(0, "a", "re", ""), piece(0, None, "ad", "{}"))[0].name == "read"


def test_no_two_calls_of_a_reply_share_an_id() -> None:
    first, second = calls_of(piece(0, "a", "read", "1"), piece(1, "a", "read", "2"))
    assert (first.id, second.id) == ("a", "call_s_1")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_kept_apart_from_text(name: str) -> None:
    assembler = Assembler()
    assert assembler.feed(json.dumps(chunk({name: "hm", "content": "yes"}))) == [ReasoningPiece("hm"), TextPiece("yes")]


def test_reasoning_under_both_names_counts_once() -> None:
    assert assemble({"reasoning": "hm", "reasoning_content": "hm"}).reasoning == "hm"


def test_content_may_be_a_list_of_parts() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]
    reply = assemble({"content": parts})
    assert (reply.reasoning, reply.text) == ("hm", "yes")


def test_a_refusal_is_what_the_model_said() -> None:
    assert assemble({"content": None, "refusal": "I will not."}).text == "I will not."


def test_an_answer_that_was_not_streamed_gives_the_same_reply() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    message = {"role": "assistant", "content": "yes", "tool_calls": [call]}
    body = {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}
    assembler = Assembler()
    assembler.feed(json.dumps(body))
    assert assembler.reply() == Reply("yes", "", (ToolCall("a", "read", "{}"),), "stop", Usage(3, 0), "m")


def test_usage_is_the_last_that_came() -> None:
    assembler = Assembler()
    details = {"prompt_tokens_details": {"cached_tokens": 4}}
    for usage in ({"prompt_tokens": 1}, {"prompt_tokens": 9, "completion_tokens": 3, **details}, None):
        assembler.feed(json.dumps({"choices": [], "usage": usage}))
    assert assembler.reply().usage == Usage(9, 3, 4)


def test_a_character_cut_in_two_is_made_whole() -> None:
    assembler = Assembler()
    assert assembler.feed(json.dumps(chunk({"content": "a\ud83d"}))) == [TextPiece("a")]
    assert assembler.feed(json.dumps(chunk({"content": "\ude00b"}))) == [TextPiece("😀b")]


def test_half_a_character_never_reaches_the_reply() -> None:
    reply = assemble({"content": "\ude00a\ud83d"}, {"tool_calls": [piece(0, "a", "read", '"\ud83d')]})
    assert reply.text == "\ufffda\ufffd"
    assert reply.tool_calls[0].arguments == '"\ufffd'


@pytest.mark.parametrize("data", ["{", "", "42", '"text"', "null", "[1]", "[" * 100_000])
def test_a_chunk_that_is_no_json_object_is_malformed(data: str) -> None:
    with pytest.raises(MalformedChunk):
        Assembler().feed(data)


@pytest.mark.parametrize(("data", "name"), [('{"error": {"message": "x"}}', ""), ('{"message": "x"}', "error")])
def test_an_error_in_the_stream_is_not_taken_for_a_piece(data: str, name: str) -> None:
    with pytest.raises(StreamedError):
        Assembler().feed(data, name)


texts = st.text(alphabet='aé€😀\n\r{}"\\ ', max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "message", "content", "tool_calls", "function", "index", "id", "usage", "thinking"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@example({"usage": {"prompt_tokens": float("inf"), "completion_tokens": float("nan")}})
@given(st.dictionaries(st.sampled_from(["choices", "usage", "model", "error"]), json_values))
def test_no_shape_of_a_chunk_gives_any_other_error(body: Json) -> None:
    assembler = Assembler()
    try:
        assembler.feed(json.dumps(body))
    except StreamedError:
        assert body["error"]
    assembler.close()
    assembler.reply()


@given(texts, texts, st.lists(st.tuples(st.just("tool"), texts), max_size=3), st.integers(1, 5), st.integers(1, 40))
def test_however_a_stream_is_cut_the_reply_is_the_same(
    text: str, reasoning: str, calls: list[tuple[str, str]], size: int, width: int
) -> None:
    answer = says(text, reasoning=reasoning, calls=calls, piece=size, usage={"prompt_tokens": 5})
    stream = "".join(f"data: {json.dumps(content)}\n\n" for content in answer.chunks).encode()
    decoder, assembler, said = EventDecoder(), Assembler(), ""
    for start in range(0, len(stream), width):
        for event in decoder.feed(stream[start : start + width]):
            said += "".join(delta.text for delta in assembler.feed(event.data) if isinstance(delta, TextPiece))
    said += "".join(delta.text for delta in assembler.close() if isinstance(delta, TextPiece))
    reply = assembler.reply()
    assert (said, reply.text, reply.reasoning) == (text, text, reasoning)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == calls
    assert reply.usage == Usage(5, 0)
