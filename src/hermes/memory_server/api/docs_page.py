"""`/docs`: the OpenAPI document as an HTML page, without scripts or external resources."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
}
STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
summary, td:first-child { font-family: ui-monospace, monospace }
summary, h3, td:last-child { overflow-wrap: anywhere }
summary { cursor: pointer } summary span { font-family: system-ui, sans-serif; opacity: .75 }
table { border-collapse: collapse; margin: .5rem 0 1rem } td, th { padding: .15rem .75rem .15rem 0; text-align: left }
"""
LIMITS = ("format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "default")
Spec = dict[str, Any]


# Swagger UI is 2 MB of scripts, which would run where no key is asked for, with buttons that the server refuses.
def write_page(spec: Spec) -> str:
    """Return the page, with every route by tag and every schema that routes use."""
    title = f"{escape(spec['info']['title'])} {escape(spec['info']['version'])}"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    intro = f'<h1>{title}</h1><p>{escape(spec["info"]["summary"])}, as <a href="/openapi.json">OpenAPI</a>.</p>'
    body = "".join([intro, *_write_routes(spec), "<h2>shapes</h2>", *_write_shapes(spec)])
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>'


def _write_routes(spec: Spec) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in spec["paths"].items():
        for method, route in methods.items():
            by_tag.setdefault(route["tags"][0], []).append(_write_route(f"{method.upper()} {path}", route))
    for tag, routes in sorted(by_tag.items()):
        yield f"<h2>{escape(tag)}</h2>{''.join(routes)}"


def _write_route(name: str, route: Spec) -> str:
    taken = [(given["name"], given["in"], _needed(given), given["schema"]) for given in route.get("parameters", [])]
    body = route.get("requestBody", {})
    taken += [("body", kind, _needed(body), content["schema"]) for kind, content in body.get("content", {}).items()]
    good = [status for status in route["responses"] if status.startswith("2")]
    given = [
        (status, kind, "", content.get("schema", {}))
        for status in good
        for kind, content in route["responses"][status].get("content", {"": {}}).items()
    ]
    bad = f"<p>or fails with {', '.join(sorted(route['responses'].keys() - {*good}))}</p>"
    what = escape(route.get("description") or route["summary"])
    tables = _write_table("takes", taken) + _write_table("answers", given)
    return f"<details><summary>{escape(name)} <span>{what}</span></summary>{tables}{bad}</details>"


def _write_shapes(spec: Spec) -> Iterator[str]:
    for name, shape in sorted(spec["components"]["schemas"].items()):
        needed = shape.get("required", [])
        fields = [
            (field, "", "required" if field in needed else "optional", schema)
            for field, schema in shape.get("properties", {}).items()
        ]
        yield f'<h3 id="{escape(name)}">{escape(name)}</h3>{_write_table("field", fields) or _write_type(shape)}'


def _write_table(title: str, rows: list[tuple[str, str, str, Spec]]) -> str:
    lines = [
        f"<tr><td>{escape(name)}<td>{escape(place)}<td>{escape(note)}<td>{_write_type(schema)}"
        for name, place, note, schema in rows
    ]
    return f"<table><tr><th>{title}</th></tr>{''.join(lines)}</table>" if rows else ""


def _needed(given: Spec) -> str:
    return "required" if given.get("required") else "optional"


def _write_type(schema: Spec) -> str:
    """Return the HTML for a type, with links to the schemas in it."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_write_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(escape(repr(one)) for one in schema["enum"])
    limits = ", ".join(f"{escape(name)} {escape(str(schema[name]))}" for name in LIMITS if name in schema)
    inside = schema.get("items") or schema.get("additionalProperties")
    of = f" of {_write_type(inside)}" if isinstance(inside, dict) else ""
    return f"{escape(schema.get('type', 'anything'))}{of}{f' ({limits})' if limits else ''}"
