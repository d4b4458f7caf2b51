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
"""Containers run it as root and give it little shared memory."""


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start one browser; tests open a context of their own in it, which shares no cookies with others."""
    need_commands(("chromium",), ("chromium",))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()
