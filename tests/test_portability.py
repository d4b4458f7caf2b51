"""Starting needs no module that exists only on some systems."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.source_imports import parsed

SOURCE = Path(__file__).parent.parent / "src" / "hermes"
POSIX_ONLY = {"fcntl", "termios", "pwd", "grp", "resource", "pty", "tty"}
POSIX_CALLS = {"os.fork", "os.setuid", "os.getuid", "os.geteuid", "os.killpg", "os.mkfifo"}


def asks_for_a_module(node: ast.AST) -> bool:
    """Return True if a block runs only where a module exists."""
    return isinstance(node, ast.If) and "find_spec" in ast.unparse(node.test)


@pytest.mark.contract("10.8")
def test_no_module_needs_what_only_posix_has() -> None:
    for path, tree in parsed(SOURCE, *POSIX_ONLY, *(call.removeprefix("os.") for call in POSIX_CALLS)):
        asked_first = {one for node in ast.walk(tree) if asks_for_a_module(node) for one in ast.walk(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and node not in asked_first:
                assert not POSIX_ONLY & {alias.name for alias in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert node.module not in POSIX_ONLY, path
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in POSIX_CALLS, path
