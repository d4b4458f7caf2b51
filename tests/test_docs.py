"""The docs say what the code does: reference, architecture and contract are held against it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from hermes import settings
from hermes.slash.table import OFFERED, TABLE
from scripts.write_reference import TARGET, render

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hermes"


def test_reference_names_every_command_setting_and_error() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(), "run `make docs`"


def test_every_file_and_function_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"`([^`\s]+)`", text)
    files = [name for name in named if name.endswith((".py", "/"))]
    functions = [name.removesuffix("()") for name in named if name.endswith("()")]
    assert files
    assert functions
    for name in files:
        inside = [SOURCE / name, ROOT / name, *SOURCE.glob(f"*/{name}")]
        assert any(path.exists() for path in inside), f"ARCHITECTURE.md names {name}"
    defined = {
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for name in functions:
        assert name.split(".")[-1] in defined, f"ARCHITECTURE.md names {name}()"


def test_every_link_in_the_docs_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_no_setting_is_read_by_nobody() -> None:
    paths = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE / "settings"]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    for name in [name for name, found in vars(settings).items() if isinstance(found, settings.Setting)]:
        assert re.search(rf"\b{name}\b", sources), f"{name} is in the table but nothing reads it"


@pytest.mark.parametrize("pattern", [r"/root/", r"/home/[a-z]+/", r"files\.pythonhosted", r"registry\.npmjs"])
def test_the_repository_speaks_of_the_product_alone(pattern: str) -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("*.lock"), *ROOT.glob("*.toml"), *(ROOT / "docs").rglob("*")]:
        if path.is_file():
            assert not re.search(pattern, path.read_text(encoding="utf-8")), f"{path} holds {pattern}"


def test_the_page_about_chat_names_every_command_and_where_it_is_offered() -> None:
    text = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")
    for command in TABLE:
        where = "everywhere" if set(command.where) == set(OFFERED) else ", ".join(command.where)
        row = rf"^\| `/{command.name}\b.*\| {where} \|$"
        assert re.search(row, text, re.MULTILINE), f"docs/chat.md does not name /{command.name}, {where}"
