"""Conversations on the page."""

from __future__ import annotations

import time

from playwright.sync_api import Locator, Page, expect

from tests.web.serving import WebProcess

TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.3


def replies(page: Page) -> Locator:
    return page.locator(".msg.assistant:not(.running)")


def say(page: Page, text: str) -> None:
    page.locator("#text").fill(text)
    page.keyboard.press("Enter")


def begin(page: Page, web: WebProcess, text: str) -> str:
    """Send the first message of a session; return its address."""
    page.goto(f"{web.url}/sessions")
    say(page, text)
    page.wait_for_url("**/sessions/*")
    return page.url


def tell(page: Page, web: WebProcess, *said: str) -> str:
    """Send messages in a new session, each with its reply; return its address."""
    address = begin(page, web, said[0])
    expect(replies(page)).to_have_count(1)
    for number, text in enumerate(said[1:], start=2):
        say(page, text)
        expect(replies(page)).to_have_count(number)
    return address


def open_until(page: Page, address: str, wanted: str) -> None:
    """Reload a page until it has an element, because memory learns in the background."""
    end = time.monotonic() + TIMEOUT_SECONDS
    page.goto(address)
    while not page.locator(wanted).count():
        assert time.monotonic() < end, f"{wanted} is not on {address}: {page.locator('main').inner_text()[:500]}"
        page.wait_for_timeout(POLL_SECONDS * 1000)
        page.goto(address)


def fact(text: str) -> str:
    """Return the link to a fact with this text."""
    return f'a.fact:text-is("{text}")'
