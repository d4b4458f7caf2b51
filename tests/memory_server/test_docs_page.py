"""`/docs` shows the whole API without scripts or other hosts."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from tests.memory_server.serving import Served
from tests.memory_server.shapes import METHODS

pytestmark = pytest.mark.contract("9.8")


class Page(HTMLParser):
    """The elements of a page, their references, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.references: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.references |= {value or "" for name, value in attrs if name in ("href", "src", "action", "data")}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_docs_show_every_route_and_shape_and_load_nothing(server: Served) -> None:
    with server.client() as client:
        spec = client.get("/openapi.json").json()
        answer = client.get("/docs")
    page = Page(answer.text)
    routes = [(path, method) for path, methods in spec["paths"].items() for method in methods if method in METHODS]
    assert [(path, m) for path, m in routes if f"{m.upper()} {path} " not in page.text] == []
    assert page.ids == sorted(spec["components"]["schemas"])
    assert page.references <= {"/openapi.json", *(f"#{name}" for name in page.ids)}
    assert not page.tags & {"script", "link", "img", "iframe", "form"}
    assert "url(" not in answer.text
    assert "@import" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none';")
