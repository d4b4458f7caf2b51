"""Server-sent events, cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.llm.openai_compatible import EventDecoder, ServerEvent


def decode(*chunks: bytes) -> list[ServerEvent]:
    decoder = EventDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_kind_of_line_end_ends_a_line(end: bytes) -> None:
    stream = b"data: one" + end + b"data: more" + end + end + b"data: two" + end + end
    events = [ServerEvent("", "one\nmore"), ServerEvent("", "two")]
    assert decode(stream) == decode(*(bytes([byte]) for byte in stream)) == events


def test_an_event_is_there_as_soon_as_its_empty_line_is() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: one\n") == []
    assert decoder.feed(b"\n") == [ServerEvent("", "one")]


def test_comments_unknown_fields_and_events_without_data_are_dropped() -> None:
    assert decode(b": keep-alive\n\nid: 7\nretry: 5\n\nevent: ping\n\ndata: x\n\n") == [ServerEvent("", "x")]


def test_data_lines_are_joined_and_only_one_leading_space_is_taken() -> None:
    assert decode(b"data:  a\ndata:b\ndata\n\n") == [ServerEvent("", " a\nb\n")]


def test_a_name_belongs_to_its_own_event_only() -> None:
    assert decode(b"event: error\ndata: {}\n\ndata: x\n\n") == [ServerEvent("error", "{}"), ServerEvent("", "x")]


def test_an_error_field_is_an_error_event() -> None:
    assert decode(b'error: {"code": 500}\n\n') == [ServerEvent("error", '{"code": 500}')]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert decode("\ufeffdata: x\n\n".encode()) == [ServerEvent("", "x")]


def test_the_last_event_may_lack_its_empty_line() -> None:
    assert decode(b"data: x") == [ServerEvent("", "x")]
    assert decode(b"data: x\r") == [ServerEvent("", "x")]


def test_bytes_that_are_no_utf8_do_not_stop_the_stream() -> None:
    assert decode(b"data: \xff\n\ndata: y\n\n") == [ServerEvent("", "\ufffd"), ServerEvent("", "y")]


lines = st.sampled_from(["data: ä€😀", "data:", "data: {}", ": note", "event: error", "id: 1", "", "", "error: x"])
streams = st.lists(st.tuples(lines, st.sampled_from(["\n", "\r", "\r\n"])), max_size=20)


@given(streams, st.lists(st.integers(0, 200), max_size=8))
def test_however_the_bytes_are_cut_the_events_are_the_same(stream: list[tuple[str, str]], cuts: list[int]) -> None:
    whole = "".join(line + end for line, end in stream).encode()
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    chunks = [whole[start:end] for start, end in pairwise(places)]
    assert decode(*chunks) == decode(whole) == decode(*(bytes([byte]) for byte in whole))
