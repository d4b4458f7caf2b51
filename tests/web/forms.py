"""Sends forms of the page without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape

import httpx

from tests.web.serving import WebProcess


class Visitor:
    """A signed-in client that sends forms as the page does."""

    def __init__(self, web: WebProcess, client: httpx.Client) -> None:
        self.web, self.client = web, client
        self.token = field(client.get("/sessions").text, "csrf")
        self.origin = {"Origin": web.url}

    def get(self, path: str) -> str:
        """Return the text of a page."""
        return self.client.get(path).text

    def send(self, path: str, form: Mapping[str, str]) -> httpx.Response:
        """Send a form; return the next page."""
        return self.client.post(path, data={"csrf": self.token, **form}, headers=self.origin, follow_redirects=True)


@contextmanager
def visiting(web: WebProcess) -> Iterator[Visitor]:
    with web.sign_in() as client:
        yield Visitor(web, client)


def field(page: str, name: str) -> str:
    """Return the value of the first field with a name."""
    found = re.search(rf'name="{re.escape(name)}"[^>]* value="([^"]*)"', page)
    assert found is not None, name
    return unescape(found[1])


def problem(page: httpx.Response | str) -> str:
    """Return the error on a page; "" for none."""
    text = page if isinstance(page, str) else page.text
    found = re.search(r'<div id="problem" role="alert" class="problem">(.*?)</div>', text, re.DOTALL)
    return "" if found is None else unescape(found[1])
