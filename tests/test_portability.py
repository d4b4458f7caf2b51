"""Nothing that only one kind of system has is needed to start."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "hermes"
POSIX_ONLY = {"fcntl", "termios", "pwd", "grp", "resource", "pty", "tty"}
POSIX_CALLS = {"os.fork", "os.setuid", "os.getuid", "os.geteuid", "os.killpg", "os.mkfifo"}


@pytest.mark.contract("10.8")
def test_no_module_needs_what_only_posix_has() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not POSIX_ONLY & {alias.name for alias in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert node.module not in POSIX_ONLY, path
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in POSIX_CALLS, path
