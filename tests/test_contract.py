"""Every fact of docs/contract.md has a test that carries its number, and every number is a fact."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
PROMISE = re.compile(r"^- \*\*(P\d)\*\*", re.MULTILINE)
FACT = re.compile(r"^- \*\*(\d+\.\d+)\*\*(.*)$", re.MULTILINE)


def marked_numbers() -> set[str]:
    """The numbers in `@pytest.mark.contract(...)` all over the tests."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.contract":
                found |= {str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)}
    return found


def test_every_built_fact_has_a_test_and_every_marked_number_is_a_fact() -> None:
    contract = (TESTS.parent / "docs" / "contract.md").read_text(encoding="utf-8")
    facts = dict(FACT.findall(contract))
    built = {number for number, text in facts.items() if "*(planned)*" not in text}
    marked = marked_numbers()
    assert built - marked == set(), "facts without a test"
    assert marked - built - set(PROMISE.findall(contract)) == set(), (
        "tests that carry a number that is not a built fact"
    )
