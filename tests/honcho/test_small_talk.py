"""Facts that a person said once are still known after a month of small talk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.honcho.small_talk import FACTS, month, small_talk

ALWAYS = ("Marta Quill", "Trieste", "bookbinder", "14 February", "sesame", "Ilja", "Celsius")
"""Words that the standing part contains, whatever the question."""


@pytest.mark.contract("7.3", "7.9")
@pytest.mark.processes
def test_ten_facts_are_known_after_a_month_of_small_talk(tmp_path: Path) -> None:
    with month(tmp_path) as talk:
        talk.tell(small_talk(500))
        missing = [question for question, word in FACTS.values() if word not in talk.ask(question)]
        assert missing == []
        block = talk.ask("Which film should I watch tonight?")
        assert [word for word in ALWAYS if word not in block.partition("## Said earlier")[0]] == []
        assert max(map(len, talk.blocks)) <= 4000
        assert talk.home.chat("-q", "And what's my name?").code == 0
        assert "Marta Quill" in talk.block_of("And what's my name?")
