"""Results of the benchmarks."""

from __future__ import annotations

import pytest

from bench.evidence import covered
from bench.table import file_name


@pytest.mark.parametrize(
    ("title", "name"),
    [("Store: append", "store"), ("Memory_server: SDK", "memory_server"), ("Imports of `hermes`", "imports")],
)
def test_results_have_names_that_any_system_takes(title: str, name: str) -> None:
    assert file_name(title) == name


def test_evidence_counts_by_the_sentences_that_stand_in_the_block_word_for_word() -> None:
    said = "We moved to Porto in the spring. The cat came along."
    assert covered(said, "- Nina: we moved to Porto, in the spring! The cat came along.") == 1.0
    assert 0.5 < covered(said, "- Nina: We moved to Porto in the spring.") < 1.0
    assert covered(said, "- Nina lives in Porto.") == 0.0
