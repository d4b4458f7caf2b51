"""OpenAPI documents as flat tables that can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes.clock import SystemClock
from hermes.memory_server.api.app import create_app
from hermes.memory_server.api.server import Options
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.engine.word_vectors import WordVectors

METHODS = ("get", "post", "put", "delete", "patch")
Shape = dict[str, bool]
"""A field by its path (`messages[].content`), and whether it is required."""


def described() -> dict[str, dict[str, Any]]:
    """Describe our OpenAPI document."""
    app = create_app(
        lambda: open_database(Path("never-opened")),
        clock=SystemClock(),
        options=Options(),
        embedder=WordVectors(),
        open_for_work=None,
    )
    return describe(app.openapi())


def describe(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return for each operation its query parameters, headers, body fields, success status and response fields."""
    return {
        f"{method.upper()} {path}": _operation(spec, operation)
        for path, operations in spec["paths"].items()
        for method, operation in operations.items()
        if method in METHODS
    }


def _operation(spec: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    body = operation.get("requestBody", {})
    given = [*body.get("content", {}).values()]
    good = [code for code in operation["responses"] if code.startswith("2")]
    told = operation["responses"][good[0]].get("content", {}).get("application/json", {}).get("schema", {})
    return {
        "query": {p["name"]: p.get("required", False) for p in operation.get("parameters", []) if p["in"] == "query"},
        "headers": [p["name"] for p in operation.get("parameters", []) if p["in"] == "header"],
        "body_required": body.get("required", False),
        "body": dict(_fields(spec, given[0]["schema"])) if given else {},
        "status": good,
        "answer": dict(_fields(spec, told)),
    }


def _fields(spec: dict[str, Any], schema: dict[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, bool]]:
    if depth > 12:
        return
    if "$ref" in schema:
        schema = spec["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    for option in schema.get("anyOf", []):
        yield from _fields(spec, option, path, depth + 1)
    if isinstance(schema.get("items"), dict):
        yield from _fields(spec, schema["items"], path + "[]", depth + 1)
    for inner in (schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()):
        if isinstance(inner, dict):
            yield from _fields(spec, inner, path + "{}", depth + 1)
    for name, inner in schema.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        yield here, name in schema.get("required", [])
        yield from _fields(spec, inner, here, depth + 1)
