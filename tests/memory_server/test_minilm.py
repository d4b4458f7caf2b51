"""MiniLM from its package, computed with numpy."""

from __future__ import annotations

import numpy as np
import pytest

from hermes.memory_server.minilm import SPACE, MiniLm

EXPECTED = [-0.0256, 0.0350, -0.0361, -0.0410, -0.0342, -0.0117]
"""The first numbers that onnxruntime returns for the same file and text."""


async def test_direction_of_a_sentence_is_the_one_that_the_reference_runtime_gives() -> None:
    [found] = await MiniLm().embed(["My sister has a job at the hospital."])
    assert found[:6] == pytest.approx(EXPECTED, abs=2e-3)


async def test_texts_that_mean_the_same_are_close_and_others_are_not() -> None:
    question, same, other, empty = await MiniLm().embed(
        ["Where does she work?", "My sister has a job at the hospital.", "The cake needs three eggs.", ""]
    )
    assert question.shape == (SPACE.dimension,)
    assert float(question @ question) == pytest.approx(1.0, abs=1e-3)
    assert float(question @ same) > float(question @ other) + 0.1
    assert np.isfinite(empty).all()


async def test_long_text_is_read_as_far_as_the_model_reads() -> None:
    [long] = await MiniLm().embed(["I like tea. " * 10_000])
    assert float(long @ long) == pytest.approx(1.0, abs=1e-3)


async def test_text_in_letters_that_the_model_has_no_words_of_has_no_direction() -> None:
    english, german, mixed, arabic, chinese = await MiniLm().embed(
        ["I like tea.", "Die Tür ist für Jürgen.", "We met in 東京 last spring.", "أحب الشاي كثيرا", "我喜欢喝茶。"]
    )
    assert english.any()
    assert german.any()
    assert mixed.any()
    assert not arabic.any()
    assert not chinese.any()
