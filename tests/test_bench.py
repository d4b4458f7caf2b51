"""Results of the benchmarks."""

from __future__ import annotations

import pytest

from bench.table import file_name


@pytest.mark.parametrize(
    ("title", "name"),
    [("Store: append", "store"), ("Memory_server: SDK", "memory_server"), ("Imports of `hermes`", "imports")],
)
def test_results_have_names_that_any_system_takes(title: str, name: str) -> None:
    assert file_name(title) == name
