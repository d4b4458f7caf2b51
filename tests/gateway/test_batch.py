"""Batches: which waiting messages make one turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.db.queue import Item
from hermes.gateway.inbox_record import next_batch
from hermes.gateway.platform import ChatType
from tests.gateway.core import message


def item(number: int, text: str, kind: ChatType = "dm", chat_id: str = "7") -> Item:
    payload = message(text, chat_id, kind=kind, message_id=str(number)).to_json()
    return Item(number, "inbox", "lane", f"k{number}", "s", payload, "waiting", 1, 0, 0, 0.0, 0.0, None, None)


def batches(texts: list[str], kind: ChatType = "dm") -> list[list[str]]:
    """Return all waiting items as batches."""
    waiting = [item(number, text, kind) for number, text in enumerate(texts)]
    found: list[list[str]] = []
    while waiting:
        batch = next_batch(waiting)
        found.append([said.text for said in batch.messages])
        assert (batch.command is not None) == (found[-1][0].startswith("/") and found[-1][0] != "/etc")
        waiting = waiting[len(batch.items) :]
    return found


@pytest.mark.contract("2.4")
@pytest.mark.parametrize(
    ("texts", "kind", "expected"),
    [
        (["a"], "dm", [["a"]]),
        (["a", "b", "c"], "dm", [["a", "b", "c"]]),
        (["a", "b", "c"], "group", [["a", "b", "c"]]),
        (["a", "b", "c"], "api", [["a"], ["b"], ["c"]]),
        (["/new", "a", "b"], "dm", [["/new"], ["a", "b"]]),
        (["a", "b", "/new", "c"], "dm", [["a", "b"], ["/new"], ["c"]]),
        (["a", "/new@bot", "/title x"], "group", [["a"], ["/new@bot"], ["/title x"]]),
        (["a", "/etc", "b"], "dm", [["a", "/etc", "b"]]),
        (["/new", "/new"], "api", [["/new"], ["/new"]]),
        (["a", " /stop", "b", "c"], "dm", [["a"], [" /stop"], ["b", "c"]]),
        (["a", " /new", "b"], "dm", [["a", " /new", "b"]]),
    ],
)
def test_waiting_messages_join_up_to_a_command(texts: list[str], kind: ChatType, expected: list[list[str]]) -> None:
    assert batches(texts, kind) == expected


def test_messages_of_different_chats_in_one_lane_do_not_join() -> None:
    over_http = item(2, "from the API", "api", "s")
    assert len(next_batch([item(1, "from the chat"), over_http]).items) == 1
    assert len(next_batch([over_http, item(1, "from the chat")]).items) == 1


@pytest.mark.contract("2.4", "P1", "P2")
@given(st.lists(st.sampled_from(["a", "b", "/new", "/title x", "/etc"]), min_size=1), st.sampled_from(["dm", "api"]))
def test_every_message_is_in_one_part_and_in_order(texts: list[str], kind: ChatType) -> None:
    assert [text for batch in batches(texts, kind) for text in batch] == texts
