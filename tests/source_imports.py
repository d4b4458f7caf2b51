"""Imports of source files, read without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def parsed(folder: Path, *words: str) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the files below a folder that contain one of these words: parsing all of them takes seconds."""
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if any(word in text for word in words):
            yield path, ast.parse(text)


def imports(tree: ast.Module) -> set[str]:
    """Return every module that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found
