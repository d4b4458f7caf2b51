"""Talking on the page."""

from __future__ import annotations

import time

from playwright.sync_api import Locator, Page, expect

from tests.web.serving import WebProcess

PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.3


def replies(page: Page) -> Locator:
    return page.locator(".msg.assistant:not(.running)")


def say(page: Page, text: str) -> None:
    page.locator("#text").fill(text)
    page.keyboard.press("Enter")


def begin(page: Page, web: WebProcess, text: str) -> str:
    """Say something in a new session; its address."""
    page.goto(f"{web.url}/sessions")
    say(page, text)
    page.wait_for_url("**/sessions/*")
    return page.url


def tell(page: Page, web: WebProcess, *said: str) -> str:
    """Say things in a new session, each with its reply; its address."""
    address = begin(page, web, said[0])
    expect(replies(page)).to_have_count(1)
    for number, text in enumerate(said[1:], start=2):
        say(page, text)
        expect(replies(page)).to_have_count(number)
    return address


def open_until(page: Page, address: str, wanted: str) -> None:
    """Load a page again and again until it has an element: memory learns in the background."""
    end = time.monotonic() + PATIENCE_SECONDS
    page.goto(address)
    while not page.locator(wanted).count():
        assert time.monotonic() < end, f"{wanted} is not on {address}: {page.locator('main').inner_text()[:500]}"
        page.wait_for_timeout(LOOK_SECONDS * 1000)
        page.goto(address)


def fact(text: str) -> str:
    """The link to a fact with this text."""
    return f'a.fact:text-is("{text}")'
