"""The tables of failures and their meanings."""

from __future__ import annotations

import json
from typing import get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.llm.events import ModelFailureKind
from hermes.llm.failures import (
    CODES,
    CONTEXT_STATUSES,
    MAX_DETAIL_CHARS,
    RETRIED_KINDS,
    RETRYABLE_KINDS,
    STATUSES,
    TRANSPORT,
    ErrorBody,
    from_status,
    from_stream,
    from_transport,
    read_error,
)
from hermes.llm.model import Endpoint

ENDPOINT = Endpoint.parse("https://api.example.com/v1", "sk-12345678")
TOO_LONG = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
    "Input tokens exceed the configured limit of 272000 tokens. Your input exceeds the context window of this model.",
    "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "prompt is too long: 205371 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 198000 + 8192 > 200000",
    "Input is too long for requested model.",
    "The decoder prompt (length 9001) is longer than the maximum model length of 8192.",
    "The input (9001 tokens) is longer than the model's context length (8192 tokens).",
    "the input length exceeds the context length",
    "Trying to keep the first 9001 tokens when context the overflows. However, the model is loaded with 4096.",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
    "Prompt contains 9001 tokens, too large for model with 8192 maximum context length",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9001 `inputs` tokens",
    "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    "Prompt too long: 5152 tokens exceeds max_seq_len 2048",
]


def all_subclasses(kind: type[BaseException]) -> set[type[BaseException]]:
    return {kind}.union(*(all_subclasses(child) for child in kind.__subclasses__()))


def test_only_retryable_kinds_are_retried() -> None:
    assert RETRIED_KINDS < RETRYABLE_KINDS < set(get_args(ModelFailureKind))


def test_every_error_of_the_http_library_has_a_meaning() -> None:
    leaves = {kind for kind in all_subclasses(httpx.RequestError) if not kind.__subclasses__()} | {httpx.InvalidURL}
    assert {kind.__name__ for kind in leaves} == set(TRANSPORT)


def test_every_meaning_in_the_tables_is_a_kind_of_failure() -> None:
    kinds = {kind for table in (STATUSES, CODES, TRANSPORT) for kind, _ in table.values()}
    assert kinds <= set(get_args(ModelFailureKind))


def test_every_status_has_a_meaning_and_a_host() -> None:
    for status in range(300, 600):
        fault = from_status(ENDPOINT, status, ErrorBody(""))
        assert fault.message.startswith(f"api.example.com answered {status}")
        assert (fault.kind in RETRIED_KINDS) == (status in (408, 425, 429) or status >= 500)


@pytest.mark.parametrize("message", TOO_LONG)
@pytest.mark.parametrize("status", sorted(CONTEXT_STATUSES))
def test_a_context_that_is_too_long_is_recognised_by_its_words(message: str, status: int) -> None:
    assert from_status(ENDPOINT, status, ErrorBody(message)).kind == "context_too_long"


@pytest.mark.parametrize("code", ["context_length_exceeded", "exceed_context_size_error"])
def test_a_context_that_is_too_long_is_recognised_by_its_code(code: str) -> None:
    body = read_error(json.dumps({"error": {"message": "no", "type": code}}))
    assert from_status(ENDPOINT, 400, body).kind == "context_too_long"
    assert from_stream(ENDPOINT, body).kind == "context_too_long"


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (
            429,
            "Rate limit reached: too many input tokens per minute. Please reduce the length of the messages.",
            "rate_limited",
        ),
        (400, "max_tokens must be at least 1", "bad_request"),
        (400, "Invalid value for 'temperature': larger than 2", "bad_request"),
        (400, "'messages' is too short", "bad_request"),
        (400, "tool name exceeds 64 characters", "bad_request"),
        (500, "CUDA out of memory", "server"),
        (401, "maximum context length", "auth"),
    ],
)
def test_similar_wording_is_not_mistaken_for_a_context_that_is_too_long(status: int, message: str, kind: str) -> None:
    assert from_status(ENDPOINT, status, ErrorBody(message)).kind == kind


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "boom", "type": "x"}}, "boom"),
        ({"error": "boom"}, "boom"),
        ({"object": "error", "message": "boom", "code": 400}, "boom"),
        ({"detail": "boom"}, "boom"),
        ({"detail": [{"loc": ["body"], "msg": "boom"}]}, "boom"),
        ([{"error": {"code": 400, "message": "boom"}}], "boom"),
        ({"detail": '{"error": {"message": "boom"}}'}, "boom"),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": '{"error":{"message":"boom"}}'}}},
            "boom",
        ),
        ({"error": {"message": "Provider returned error", "metadata": {"raw": "boom"}}}, "boom"),
        ({"error": {"code": 7}}, ""),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "boom"}}, "boom"),
    ],
)
def test_the_message_is_found_in_every_known_shape(body: object, message: str) -> None:
    assert read_error(json.dumps(body)).message == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ""),
        ("  upstream timed out\n", "upstream timed out"),
        ("<html><title>\n Bad &amp; Gateway </title>", "a web page titled 'Bad & Gateway'"),
        ("<!doctype html><p>x", "a web page"),
        ("{broken", "{broken"),
    ],
)
def test_an_error_body_that_is_not_json_is_quoted_as_it_is(text: str, message: str) -> None:
    assert read_error(text).message == message


bodies = st.recursive(
    st.none() | st.integers() | st.sampled_from(["", "x", "{", '{"error": 1}', "\ud83d"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["error", "message", "detail", "code", "metadata", "raw"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(bodies)
def test_no_shape_of_an_error_body_raises(body: object) -> None:
    from_status(ENDPOINT, 400, read_error(json.dumps(body))).message.encode()


def test_a_line_is_one_line_without_control_characters_and_not_too_long() -> None:
    fault = from_status(ENDPOINT, 400, ErrorBody("a\n\x1b[31mb\r\tc\u202e" + "d" * 1000))
    assert fault.message.startswith("api.example.com answered 400 (a [31mb c d")
    assert fault.message.isprintable()
    assert len(fault.message) < MAX_DETAIL_CHARS + 60


def test_a_secret_at_the_cut_leaves_no_piece_of_itself() -> None:
    for start in range(MAX_DETAIL_CHARS - 30, MAX_DETAIL_CHARS + 5):
        assert "sk-1" not in from_status(ENDPOINT, 400, ErrorBody("x" * start + "sk-12345678" + "y" * 99)).message


def test_an_unknown_error_of_the_library_still_has_a_meaning() -> None:
    assert from_transport(ENDPOINT, OSError("odd")).kind == "refused"
