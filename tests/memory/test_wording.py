"""Search for words in texts of any script and Unicode form."""

from __future__ import annotations

import unicodedata

import pytest

from hermes.memory.values import Wording


@pytest.mark.contract("7.12")
@pytest.mark.parametrize(
    ("words", "text", "stand"),
    [
        ("미소", "제 고양이 이름은 미소입니다.", True),
        ("미소", unicodedata.normalize("NFD", "제 고양이는 미소예요."), True),
        (unicodedata.normalize("NFD", "미소"), "제 고양이는 미소예요.", True),
        ("ねこ", "うちのねこはミソです", True),
        ("ミソ", "うちのねこはﾐｿです", True),
        ("邮票", "我收集马耳他的邮票。", True),
        ("José", "I met JOSE\u0301 today", True),
        ("Straße", "in der STRASSE", True),
        ("Ｍｉｓｏ", "my cat Miso", True),
        ("Mis", "my cat Miso", False),
        ("미소", "제 고양이 이름은 나비입니다.", False),
    ],
)
def test_a_word_is_found_in_every_script_and_in_every_way_to_write_it_down(words: str, text: str, stand: bool) -> None:
    assert Wording((words,)).is_in(text) is stand
