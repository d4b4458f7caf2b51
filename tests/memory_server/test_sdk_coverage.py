"""The contract tests cover every public method of the SDK, and also pass with the oldest version."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from honcho import Honcho, Peer, Session
from honcho.conclusions import ConclusionsView, WorkspaceConclusions
from honcho.scope import Scope

from tests.parts import fetch_once

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OLDEST = "2.2.0"
NEWEST = "2.7.0"
OWN = {"construct", "copy", "dict", "from_orm", "json", "parse_file", "parse_obj", "parse_raw", "schema", "schema_json"}
"""Methods that the SDK's classes inherit from pydantic."""


def called_names() -> set[str]:
    """Return every attribute that the contract tests name."""
    tree = ast.parse((HERE / "test_sdk.py").read_text(encoding="utf-8"))
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("kind", [Honcho, Peer, Session, Scope, ConclusionsView, WorkspaceConclusions])
def test_no_public_method_is_left_out(kind: type) -> None:
    public = {
        name
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith(("_", "model_", "validate", "update_forward")) and name not in OWN
        and value.__module__.startswith("honcho")
    }  # fmt: skip
    assert public
    assert public - called_names() == set()


def test_contract_runs_with_the_newest_version() -> None:
    assert version("honcho-ai") == NEWEST


@pytest.fixture(scope="session")
def oldest(processes: None, request: pytest.FixtureRequest) -> Path:
    """Return a folder with the oldest version, downloaded once."""
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", f"honcho-ai=={OLDEST}"]
    return fetch_once(request.config.cache, f"honcho-ai-{OLDEST}", install, "--target")


@pytest.mark.contract("9.1")
def test_contract_holds_with_the_oldest_version(oldest: Path) -> None:
    path = os.pathsep.join([str(oldest), str(ROOT / "src"), str(ROOT)])
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=", str(HERE / "test_sdk.py")],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert " passed" in ran.stdout
