"""Import rules between packages: the list of forbidden modules is exactly the complement of the allowed ones."""

from __future__ import annotations

import pkgutil
import tomllib
from pathlib import Path

import pytest

import hermes

VALUES = {"clock", "errors", "events", "fence", "loopback", "redaction", "types"}
ALLOWED = {
    "hermes.honcho": VALUES
    | {"config_file", "embedded", "files", "home", "honcho", "memory", "ranking", "scope", "settings"},
    "hermes.llm": VALUES | {"llm"},
    "hermes.memory_server": VALUES | {"llm", "memory_server", "ranking", "sqlite"},
}
PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


@pytest.mark.parametrize("package", [*ALLOWED])
def test_package_is_forbidden_everything_but_what_it_may_import(package: str) -> None:
    contracts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    [forbidden] = [set(c["forbidden_modules"]) for c in contracts if c.get("source_modules") == [package]]
    everything = {module.name for module in pkgutil.iter_modules(hermes.__path__)}
    assert everything - {name.removeprefix("hermes.") for name in forbidden} == ALLOWED[package]
