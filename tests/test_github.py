"""The workflow and the issue forms have the shape that GitHub takes. They were not run there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
FIELDS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def test_the_workflow_runs_make_test_on_three_systems_with_every_promised_python() -> None:
    workflow = load(ROOT / ".github" / "workflows" / "test.yml")
    assert {"pull_request", "push"} <= workflow["on"].keys()
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    matrix = job["strategy"]["matrix"]
    promised = re.findall(r"python(3\.\d+)", (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nVENV")[0])
    assert matrix["python"] == promised
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert job["runs-on"] == "${{ matrix.os }}"
    assert any(step.get("run", "").startswith("make test") for step in job["steps"])
    for name in set(re.findall(r"matrix\.(\w+)", str(job))):
        assert name in matrix


def test_the_least_python_of_the_workflow_is_the_one_that_the_package_needs() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    matrix = load(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert needed == f">={matrix['python'][0]}"


@pytest.mark.parametrize("form", FORMS, ids=[path.stem for path in FORMS])
def test_an_issue_form_has_the_fields_that_github_asks_for(form: Path) -> None:
    given = load(form)
    assert given["name"]
    assert given["description"]
    named = [field["id"] for field in given["body"] if field["type"] != "markdown"]
    assert named
    assert len(named) == len(set(named))
    for field in given["body"]:
        assert field["type"] in FIELDS
        assert field["attributes"]["value" if field["type"] == "markdown" else "label"]


def test_there_is_a_form_for_what_is_wrong_and_one_for_what_is_missing() -> None:
    assert [path.stem for path in FORMS] == ["bug", "feature"]
