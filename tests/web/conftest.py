"""Fixtures: one host, one model and one browser for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import open_browser
from tests.parts import fetch_once
from tests.web.serving import SaidNext, WebProcess, serving, talking_model

expect.set_options(timeout=30_000)  # a fact is waited for, however busy the machine is


@pytest.fixture(scope="module")
def model(processes: None) -> Iterator[SaidNext]:
    with talking_model() as running:
        yield running


@pytest.fixture(scope="module")
def web(model: SaidNext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    with serving(tmp_path_factory.mktemp("web") / "home", model) as running:
        yield running


@pytest.fixture(scope="module")
def browser(processes: None) -> Iterator[Browser]:
    with open_browser() as running:
        yield running


@pytest.fixture(scope="module")
def axe(processes: None, pytestconfig: pytest.Config) -> str:
    """The source of axe-core, which finds what assistive technology cannot use."""
    cache = pytestconfig.cache
    assert cache is not None
    folder = fetch_once(cache, "axe-core", ["npm", "install", "--no-save", "axe-core@4"], "--prefix")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(browser: Browser, web: WebProcess) -> Iterator[Page]:
    """A signed-in page that many tests use, on a wide window."""
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    context.set_default_timeout(20_000)
    opened = context.new_page()
    opened.goto(web.take_link())
    yield opened
    context.close()


@pytest.fixture(autouse=True)
def _nothing_fails_in_the_browser(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check after each test that no script failed and the content security policy refused nothing."""
    if "page" not in request.fixturenames:
        yield
        return
    page: Page = request.getfixturevalue("page")
    found: list[str] = []

    def hear(message: object) -> None:
        text = str(message)
        if "Failed to load resource" not in text:  # a page that answers with a status of ours
            found.append(text)

    page.on("console", lambda message: hear(message.text) if message.type == "error" else None)
    page.on("pageerror", hear)
    yield
    assert found == []
