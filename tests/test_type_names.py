"""One name, one meaning: a type name of one package is not reused for something else in another."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "hermes"

TWICE = {
    "Message": "ours, and what Honcho's API calls so: the word is given",
    "Session": "ours, and what Honcho's API calls so: the word is given",
    "Scope": "whose a conversation is, and what Honcho's API calls so: the word is given",
    "Tx": "an open transaction, of the store's database or of the memory server's: no room sees both",
}


def test_a_type_name_has_one_meaning_or_a_reason() -> None:
    places = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if name := _type_name(node):
                places[name].add(path)
    assert {name for name, found in places.items() if len(found) > 1} == TWICE.keys()


def _type_name(node: ast.stmt) -> str | None:
    """Return the type that a module's statement defines, or None. Type variables do not count."""
    if isinstance(node, ast.ClassDef):
        name = node.name
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        name = node.target.id
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ("TypeVar", "ParamSpec"):
            return None
        name = node.targets[0].id
    else:
        return None
    return name if name.lstrip("_")[:1].isupper() and not name.isupper() else None
