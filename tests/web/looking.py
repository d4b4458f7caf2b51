"""Looking at a page as assistive technology does."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page


def find_violations(page: Page, axe: str) -> list[Any]:
    """Return what axe finds serious on the page that is open, each with the element."""
    page.evaluate(axe)
    told = page.evaluate("axe.run()")
    bad = [one for one in told["violations"] if one["impact"] in ("serious", "critical")]
    return [(one["id"], node["target"], node["any"]) for one in bad for node in one["nodes"]]
