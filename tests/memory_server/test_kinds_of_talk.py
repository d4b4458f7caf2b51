"""Search is at least as good as plain full text for every kind of conversation: chats in five languages, and an
assistant's."""

from __future__ import annotations

from statistics import fmean

import pytest

from bench.full_text import by_full_text
from bench.samples import samples
from bench.talks import Talk, judge
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine.messages import append_messages
from tests.memory_server.floor import draft, new_index, question, search_messages

NOW = 1_700_000_000_000_000


@pytest.mark.parametrize("talk", samples(), ids=lambda talk: talk.name)
def test_first_answers_are_right_at_least_as_often_as_with_full_text(tx: Tx, talk: Talk) -> None:
    assert len(talk.questions) >= 20
    ids: dict[int, str] = {}
    for turn in talk.turns:
        [row] = append_messages(tx, "w", turn.session, [draft(turn.text, turn.speaker)], NOW)
        ids[row.id] = turn.id
    index, full_text = new_index(), by_full_text([talk])
    ours, plain = [], []
    for asked in talk.questions:
        found = search_messages(tx, index, SearchArea(1), question(asked.text), None, 50)
        ours.append(judge(talk, asked, [ids[row.id] for row in found]))
        plain.append(judge(talk, asked, full_text(talk, asked)))
    for depth in range(3):
        assert fmean(m.recall[depth] for m in ours) >= fmean(m.recall[depth] for m in plain)
    assert fmean(m.reciprocal for m in ours) > fmean(m.reciprocal for m in plain)
    assert fmean(m.reciprocal == 1 for m in ours) >= fmean(m.reciprocal == 1 for m in plain), "the very first"
