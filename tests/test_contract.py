"""Every fact of docs/contract.md has a test that carries its number, and every number is a fact."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PROMISE = re.compile(r"^- \*\*(P\d)\*\*", re.MULTILINE)
MARK = re.compile(r"\bpytest\.mark\.contract\(([^)]*)\)")
NUMBER = re.compile(r"\"([^\"]*)\"")
FACT = re.compile(r"^- \*\*(\d+\.\d+)\*\*(.*)$", re.MULTILINE)


def marked_numbers() -> set[str]:
    """Return the numbers in `@pytest.mark.contract(...)` of all tests."""
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")]
    return {number for text in texts for marked in MARK.findall(text) for number in NUMBER.findall(marked)}


def test_every_built_fact_has_a_test_and_every_marked_number_is_a_fact() -> None:
    contract = (TESTS.parent / "docs" / "contract.md").read_text(encoding="utf-8")
    facts = dict(FACT.findall(contract))
    built = {number for number, text in facts.items() if "*(planned)*" not in text}
    marked = marked_numbers()
    assert built - marked == set(), "facts without a test"
    assert marked - built - set(PROMISE.findall(contract)) == set(), (
        "tests that carry a number that is not a built fact"
    )
