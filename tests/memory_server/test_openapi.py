"""Our OpenAPI document compared with that of the reference server (3.0.12): it lacks nothing and requires nothing more.
`shapes.describe` made `reference.json` from the document that the reference server publishes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.memory_server.shapes import described

REFERENCE: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("reference.json").read_text("utf-8"))
PAGE = Path(__file__).parents[2] / "docs" / "memory-server.md"
OWN = {"GET /metrics"}
NEWER = {"POST /v3/workspaces/{workspace_id}/chat", "GET /v3/workspaces/{workspace_id}/conclusions/{conclusion_id}"}
"""Routes that the newest SDK calls and that version of the reference server does not have."""


@pytest.fixture(scope="module")
def ours() -> dict[str, dict[str, Any]]:
    return described()


@pytest.mark.contract("9.1", "9.8")
def test_operations_are_those_of_the_reference_and_what_newer_clients_call(ours: dict[str, dict[str, Any]]) -> None:
    extensions = {operation for operation in ours if "/ext/" in operation}
    assert set(ours) - OWN - NEWER - extensions == set(REFERENCE)


def test_the_page_about_the_server_names_every_route_of_ours(ours: dict[str, dict[str, Any]]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    ends = {operation.partition("{workspace_id}")[2].replace("_id}", "}") for operation in ours}
    paths = {end for end in ends if end.startswith("/ext/")}
    assert [path for path in sorted(paths) if f"…{path}" not in page] == []


@pytest.mark.contract("9.1")
@pytest.mark.parametrize("operation", [*REFERENCE])
def test_operation_takes_and_tells_what_the_reference_does(ours: dict[str, dict[str, Any]], operation: str) -> None:
    theirs, mine = REFERENCE[operation], ours[operation]
    for part in ("query", "body"):
        assert set(theirs[part]) <= set(mine[part]), f"{part}: something is not taken"
        asked = {name for name, required in mine[part].items() if required and not theirs[part].get(name)}
        assert asked == set(), f"{part}: more is asked for"
    assert theirs["body_required"] or not mine["body_required"]
    assert set(theirs["status"]) <= set(mine["status"])
    assert set(theirs["answer"]) <= set(mine["answer"]), "something is not told"
    promised = {name for name, required in theirs["answer"].items() if required}
    assert {name for name in promised if not mine["answer"][name]} == set(), "something may be left out"
