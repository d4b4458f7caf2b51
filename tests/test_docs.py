"""The docs match the code: reference, architecture and contract are compared with it."""

from __future__ import annotations

import ast
import inspect
import json
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from ruamel.yaml import YAML

from hermes import doctor, errors, settings
from hermes.audit import damage, log
from hermes.cli.chat import Ended
from hermes.events import TurnEvent
from hermes.slash.table import OFFERED, TABLE
from scripts import draw_packages, draw_terminal
from scripts.write_reference import TARGET, render

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hermes"
DEFINED = re.compile(r"^\s*(?:def|async def|class) (\w+)", re.MULTILINE)


def test_reference_names_every_command_setting_and_error() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(), "run `make docs`"


def test_the_drawing_of_the_packages_shows_what_they_import() -> None:
    page = draw_packages.TARGET.read_text(encoding="utf-8")
    assert page == draw_packages.with_drawing(page), "run `make docs`"


def test_a_drawing_leaves_out_what_other_arrows_say() -> None:
    arrows = {"cli": {"agent", "store", "errors"}, "agent": {"store"}, "store": {"errors"}, "errors": set[str]()}
    reduced = draw_packages.reduce_arrows(arrows)
    assert reduced == {"cli": {"agent"}, "agent": {"store"}, "store": {"errors"}, "errors": set()}


@cache
def defined_in(folder: Path) -> frozenset[str]:
    """Return every function and class below a folder."""
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    return frozenset(name for text in texts for name in DEFINED.findall(text))


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/discussions.md"])
def test_every_file_function_and_test_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"`([^`\s]+)`", (ROOT / page).read_text(encoding="utf-8"))
    files = [name for name in named if name.endswith((".py", "/"))]
    functions = [name.removesuffix("()") for name in named if name.endswith("()")]
    assert files
    assert functions
    for name in files:
        inside = [SOURCE / name, ROOT / name, *SOURCE.glob(f"*/{name}")]
        assert any(path.exists() for path in inside), f"{page} names {name}"
    for name in functions:
        assert name.split(".")[-1] in defined_in(SOURCE), f"{page} names {name}()"
    for name in [name for name in named if re.fullmatch(r"test_\w+", name)]:
        assert name in defined_in(ROOT / "tests"), f"{page} names {name}"


def test_the_compose_file_starts_commands_that_exist() -> None:
    services = YAML(typ="safe").load(ROOT / "docs" / "compose.yaml")["services"]
    commands = [service["command"] for service in services.values() if "command" in service]
    groups = json.loads((SOURCE / "cli" / "command_tree.json").read_text())["commands"]
    for program, group, name, *given in commands:
        options = {option for option in given if option.startswith("--")}
        assert program == "hermes"
        assert options <= groups[group]["commands"][name]["options"].keys()
    assert {command[2] for command in commands} == {"serve", "worker"}


def test_every_link_in_the_docs_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_begins_with_what_somebody_wants() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        first = page.read_text(encoding="utf-8").split("\n\n")[1]
        assert first.startswith("You want "), page.name
        assert "`" in first, f"{page.name} says nothing to type"


def test_the_index_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w/-]+\.md)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - linked == {"index.md"}


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_every_command_that_the_first_pages_name_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    tree = json.loads((SOURCE / "cli" / "command_tree.json").read_text())
    tree["commands"]["honcho"] = {"commands": {name: {} for name in ("login", "logout", "status")}}
    for line in re.findall(r"`(?:[^`]*\| )?hermes (?:-p NAME )?([a-z][^`]*)`", text):
        node = tree
        for word in line.split():
            if not node.get("commands"):
                break
            assert word in node["commands"], f"{page} names `hermes {line}`"
            node = node["commands"][word]
    for module, name in re.findall(r"`python -m ([\w.]+) ?(\w*)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists() or f'"{name}"' in (
            ROOT / module / "__main__.py"
        ).read_text(encoding="utf-8"), f"{page} names {module} {name}"


def test_the_first_page_is_short_and_its_pictures_show_what_was_typed() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 120
    for name in re.findall(r"docs/images/(terminal-\w+\.svg)", text):
        picture = (ROOT / "docs" / "images" / name).read_text(encoding="utf-8").replace("&#160;", " ")
        assert all(typed in picture for said in draw_terminal.CONVERSATIONS for typed, _ in said)
        assert "http" not in picture.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")


def test_no_setting_is_read_by_nobody() -> None:
    paths = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE / "settings"]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    for name in [name for name, found in vars(settings).items() if isinstance(found, settings.Setting)]:
        assert re.search(rf"\b{name}\b", sources), f"{name} is in the table but nothing reads it"


def test_the_tree_of_errors_shows_every_error_below_its_kind() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.HermesError)]
    above = {1: "HermesError"}
    drawn = {"HermesError": "Exception"}
    for stem, name in re.findall(r"^    ([│├└─ ]+)(\w+)", errors.__doc__ or "", re.MULTILINE):
        depth = len(stem) // 4
        drawn[name] = above[depth]
        above[depth + 1] = name
    assert drawn == {kind.__name__: kind.__bases__[0].__name__ for kind in kinds}


def test_the_page_about_repairs_explains_every_code_of_a_finding() -> None:
    """Codes are the fifth argument of a finding, or `code=`."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(doctor))) if isinstance(node, ast.Call)]
    made = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Finding"]
    codes = [call.args[4] for call in made if len(call.args) > 4]
    codes += [keyword.value for call in made for keyword in call.keywords if keyword.arg == "code"]
    given = {code.value for code in codes if isinstance(code, ast.Constant)}
    assert given, "no finding has a code"
    text = (ROOT / "docs" / "repair.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `([a-z0-9-]+)` \|", text, re.MULTILINE))
    assert explained == {*given, *get_args(damage.Code), *get_args(damage.NoticeCode), *get_args(log.AnomalyCode)}


@pytest.mark.parametrize("pattern", [r"/root/", r"/home/[a-z]+/", r"files\.pythonhosted", r"registry\.npmjs"])
def test_the_repository_speaks_of_the_product_alone(pattern: str) -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("*.lock"), *ROOT.glob("*.toml"), *(ROOT / "docs").rglob("*")]:
        if path.is_file() and path.suffix != ".png":
            assert not re.search(pattern, path.read_text(encoding="utf-8")), f"{path} holds {pattern}"


def test_the_page_about_chat_names_every_command_and_where_it_is_offered() -> None:
    text = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")
    for command in TABLE:
        where = "everywhere" if set(command.where) == set(OFFERED) else ", ".join(command.where)
        row = rf"^\| `/{command.name}\b.*\| {where} \|$"
        assert re.search(row, text, re.MULTILINE), f"docs/chat.md does not name /{command.name}, {where}"


@pytest.mark.contract("10.46")
def test_the_page_about_scripts_names_every_event_with_its_fields() -> None:
    text = (ROOT / "docs" / "scripting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z]\w+)` \| ([^|]*) \|", text, re.MULTILINE)
    named = {name: re.findall(r"`(\w+)`", fields) for name, fields in rows}
    assert named == {kind.__name__: list(kind.__struct_fields__) for kind in (*get_args(TurnEvent), Ended)}
