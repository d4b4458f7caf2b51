"""A real browser: Debian's Chromium without a window, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.parts import need_commands

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OPTIONS = ["--no-sandbox", "--disable-dev-shm-usage"]
"""Flags for containers, where Chromium runs as root with little shared memory."""


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start one browser; each test opens its own context in it, without shared cookies."""
    need_commands(("chromium",), ("chromium",))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()
