"""Advice can be followed: every command that the source or a page names exists, and can be typed as written."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from hermes.cli.own_name import find_own_name
from hermes.cli.provider_group import FILE, describe_tree, provider_group
from hermes.types import Json

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hermes"
NAMED = re.compile(r"`(?:[A-Z_]+=\S+ )?hermes ([^`\n]+)`")


def texts_of(path: Path) -> Iterator[str]:
    """Yield the strings of a module, with `X` for inserted values, or a whole page."""
    if path.suffix == ".md":
        yield path.read_text(encoding="utf-8")
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def flaw(tree: Json, line: str) -> str | None:
    """Return the parts of a command line that do not exist."""
    node, words = tree, iter(re.split(r"[;|<>&]", line)[0].split())
    for word in words:
        if word == "…" or word.startswith(("[", "__")):
            return None
        if word.startswith("-"):
            option = node["options"].get(word.partition("=")[0])
            if option is None and word not in ("--help", "-h"):
                return f"there is no option {word}"
            if option is not None and option["takes"] and "=" not in word:
                next(words, None)
        elif "commands" in node:
            if word in ("NAME", "X"):
                return None
            if word not in node["commands"]:
                return f"there is no command {word}"
            node = node["commands"][word]
        elif word == "honcho":  # `memory setup honcho` takes what `honcho setup` takes
            node = tree["commands"]["honcho"]["commands"]["setup"]
    return None


@pytest.fixture
def tree(home: Path, monkeypatch: pytest.MonkeyPatch) -> Json:
    monkeypatch.setenv("HERMES_MEMORY_PROVIDER", "honcho")
    whole = json.loads(FILE.read_text(encoding="utf-8"))
    group = provider_group("honcho", None)
    assert group is not None
    whole["commands"]["honcho"] = describe_tree(typer.main.get_command(group))
    return whole


@pytest.mark.contract("10.49")
def test_every_command_that_source_and_pages_name_exists(tree: Json) -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *SOURCE.rglob("*.py")]
    wrong, count = [], 0
    for path in pages:
        for text in texts_of(path):
            for line in NAMED.findall(text):
                count += 1
                if found := flaw(tree, line):
                    wrong.append(f"{path.relative_to(ROOT)}: `hermes {line}`: {found}")
    assert count > 200
    assert wrong == [], "\n".join(wrong)


def test_a_command_that_does_not_exist_is_seen(tree: Json) -> None:
    assert flaw(tree, "memory forgot X") == "there is no command forgot"
    assert flaw(tree, "sessions export --everything") == "there is no option --everything"
    assert flaw(tree, "-p work memory forget Miso --yes") is None


@pytest.mark.contract("10.49")
def test_advice_names_the_command_as_it_can_be_typed(tmp_path: Path) -> None:
    program = tmp_path / ".venv" / "bin" / "hermes"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "on").mkdir()
    (tmp_path / "on" / "hermes").symlink_to(program)
    assert find_own_name(".venv/bin/hermes", "/nowhere", tmp_path) == ".venv/bin/hermes"
    assert find_own_name(".venv/bin/hermes", "/nowhere", tmp_path / "on") == "hermes", "it is not there"
    assert find_own_name(str(program), "/nowhere", program.parent) == "./hermes"
    assert find_own_name(str(program), "/nowhere", tmp_path) == ".venv/bin/hermes"
    assert find_own_name(str(program), "/nowhere", tmp_path / "on") == str(program)
    assert find_own_name(str(program), str(tmp_path / "on"), tmp_path) == "hermes"
    host = program.with_name("hermes-host")
    host.write_text("#!/bin/sh\n")
    host.chmod(0o755)
    stock = tmp_path / "stock" / "hermes"
    stock.parent.mkdir()
    stock.write_text("#!/bin/sh\n")
    stock.chmod(0o755)
    hidden = f"{stock.parent}:{program.parent}"
    assert find_own_name("hermes-host", str(program.parent), program.parent) == "hermes-host", "as it was typed"
    assert find_own_name(str(program), hidden, tmp_path) == "hermes-host", "another program has our first name"
    assert find_own_name(str(host), str(stock.parent), tmp_path) == ".venv/bin/hermes-host"
    assert find_own_name("/some/hermes/__main__.py", "/nowhere", tmp_path) == "hermes"


@pytest.mark.processes
@pytest.mark.contract("10.49")
def test_after_make_run_advice_can_be_pasted(home: Path) -> None:
    program = Path(sys.executable).with_name("hermes")
    env = {**os.environ, "HERMES_HOME": str(home), "PATH": "/usr/bin:/bin", "OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""}
    ran = subprocess.run(
        [program, "sessions", "export"], env=env, cwd=program.parents[2], capture_output=True, text=True, check=False
    )
    [advice] = re.findall(r"`([^`]+)`", ran.stderr)
    followed = subprocess.run(advice, shell=True, env=env, cwd=program.parents[2], capture_output=True, check=False)  # noqa: S602 - as people do
    assert followed.returncode == 0, advice


@pytest.mark.processes
@pytest.mark.contract("10.49")
def test_advice_names_the_profile_of_the_command(home: Path) -> None:
    program = Path(sys.executable).with_name("hermes")
    env = {**os.environ, "HERMES_HOME": str(home), "OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""}

    def advice(*arguments: str) -> list[str]:
        ran = subprocess.run([program, *arguments], env=env, capture_output=True, text=True, check=False)
        return re.findall(r"`(?:\S*/)?(hermes [^`]+)`", ran.stdout + ran.stderr)

    assert advice("profiles", "create", "work")[0] == "hermes -p work chat"
    assert advice("-p", "work", "sessions", "show", "nothing") == ["hermes -p work sessions list"]
    assert advice("--profile=work", "model", "some") == ["hermes -p work model"]
    assert advice("-p", "wrok", "doctor") == ["hermes profiles", "hermes profiles create wrok"], "these need no profile"
    assert advice("sessions", "show", "nothing") == ["hermes sessions list"]
