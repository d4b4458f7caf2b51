"""Accessibility checks of pages."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page


def find_violations(page: Page, axe: str) -> list[Any]:
    """Return the serious violations that axe finds on the open page, each with the element."""
    page.evaluate(axe)
    told = page.evaluate("axe.run()")
    bad = [one for one in told["violations"] if one["impact"] in ("serious", "critical")]
    return [(one["id"], node["target"], node["any"]) for one in bad for node in one["nodes"]]
