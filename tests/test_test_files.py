"""Rules for all test files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
CLOCKS = {"time.time", "time.monotonic", "time.perf_counter", "time.process_time"}


@cache
def trees() -> dict[str, ast.Module]:
    """Return the parsed test files that may break a rule, by name."""
    texts = {str(path.relative_to(TESTS)): path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    return {name: ast.parse(text) for name, text in texts.items() if any(word in text for word in (*CLOCKS, ".test_"))}


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """Yield every node of every file, with its location."""
    for name, tree in trees().items():
        for node in ast.walk(tree):
            yield f"{name}:{getattr(node, 'lineno', 0)}", node


def is_elapsed(node: ast.AST) -> bool:
    """Return True if the node subtracts two times."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    return any(isinstance(one, ast.Call) and ast.unparse(one.func) in CLOCKS for one in ast.walk(node))


def test_no_test_looks_at_how_long_something_took() -> None:
    tests = [
        (place, node)
        for place, node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    assert tests
    assert [place for place, node in tests if any(map(is_elapsed, ast.walk(node)))] == []


def test_shared_code_is_in_no_test_file() -> None:
    imports = [(place, node) for place, node in nodes() if isinstance(node, ast.ImportFrom)]
    assert [place for place, node in imports if ".test_" in (node.module or "")] == []
