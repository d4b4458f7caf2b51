"""The sign-in pages in a real browser: their content and buttons, and protection from other pages."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import pytest

from hermes.memory_server.api.consent import WRONG
from tests.browser import open_browser
from tests.memory_server.serving import Served
from tests.memory_server.signing import ADMIN_KEY, LoopbackClient, error_of, label_on, poll_form

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.processes, pytest.mark.contract("8.5")]
SIZES = {"desktop": (1000, 760), "phone": (375, 720)}


@pytest.fixture(scope="module")
def browser(processes: None) -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Open a page in a separate browser context without scripts, which users may have disabled."""
    context = browser.new_context(java_script_enabled=False)
    yield context.new_page()
    context.close()


class Listener:
    """The program on this machine to which the browser returns."""

    def __init__(self, port: int, came: list[dict[str, str]]) -> None:
        self.redirect = f"http://127.0.0.1:{port}/callback"
        self.came = came


@contextmanager
def listening(body: str = "back") -> Iterator[Listener]:
    came: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/callback?"):  # a browser asks for an icon, too
                came.append(dict(parse_qsl(urlsplit(self.path).query)))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Listener(server.server_port, came)
        finally:
            server.shutdown()


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def approved(served: Served, page: Page) -> str:
    """Return the one-time code that the owner reads for the request of a page."""
    command = [sys.executable, "-m", "hermes", "memory", "approve", label_on(page.content())]
    env = {**os.environ, "HERMES_HOME": str(served.folder)}
    ran = subprocess.run([*command, *served.chosen], check=True, capture_output=True, text=True, env=env)
    return ran.stdout.strip()


def test_owner_allows_a_program_with_a_one_time_code(guarded: Served, page: Page, workspace: str) -> None:
    with listening() as back, guarded.client() as client:
        asking = LoopbackClient(redirect=back.redirect)
        page.goto(asking.link(guarded.url))
        assert "hermes-agent" in page.inner_text("main")
        assert urlsplit(back.redirect).netloc in page.inner_text("main")
        assert page.input_value("#workspace") == "hermes"
        page.get_by_label("Workspace").fill(workspace)
        page.get_by_label("Your name").fill("Nina")
        page.get_by_label("One-time code").fill("BCDF-GHJK")
        press(page, "Allow")
        assert WRONG.partition(".")[0] in page.get_by_role("alert").inner_text()
        assert page.input_value("#workspace") == workspace  # what was typed stays, but for the code
        assert page.input_value("#person") == "Nina"
        assert page.input_value("#code") == ""
        page.get_by_label("One-time code").fill(approved(guarded, page))
        press(page, "Allow")
        page.wait_for_url(f"{back.redirect}*")
        [told] = back.came
        assert told["state"] == asking.state
        tokens = client.post("/oauth/token", data=asking.exchange(told["code"])).json()
    assert tokens["config"] == {"peerName": "Nina", "workspace": workspace}


def test_owner_denies_a_program_without_any_code(guarded: Served, page: Page) -> None:
    with listening() as back:
        asking = LoopbackClient(redirect=back.redirect)
        page.goto(asking.link(guarded.url))
        press(page, "Deny")
        page.wait_for_url(f"{back.redirect}*")
        [told] = back.came
    assert (told["error"], told["state"]) == ("access_denied", asking.state)


def test_second_click_on_allow_still_brings_the_code_back(guarded: Served, page: Page, workspace: str) -> None:
    with listening() as back:
        page.goto(LoopbackClient(redirect=back.redirect).link(guarded.url))
        page.get_by_label("Workspace").fill(workspace)
        page.get_by_label("One-time code").fill(ADMIN_KEY)
        page.get_by_role("button", name="Allow", exact=True).dblclick()
        page.wait_for_url(f"{back.redirect}*")
        assert back.came
        assert {told["code"] for told in back.came} == {back.came[0]["code"]}


def test_another_page_cannot_press_allow(guarded: Served, browser: Browser) -> None:
    """The other page knows the form and even the one-time code, and runs scripts in the same browser."""
    context = browser.new_context()
    page = context.new_page()
    asking = LoopbackClient()
    page.goto(asking.link(guarded.url))
    hidden = {name: page.input_value(f"input[name={name}]") for name in ("request", "token")}
    filled = {**hidden, "decision": "allow", "workspace": "stolen", "code": approved(guarded, page)}
    inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in filled.items())
    form = f'<form method="post" action="{guarded.url}/authorize">{inputs}<button>Play a game</button></form>'
    frame = f'<iframe src="{asking.link(guarded.url).replace("&", "&amp;")}" name="inside"></iframe>'
    with listening(f"{form}{frame}") as evil:
        other = context.new_page()
        other.goto(evil.redirect)
        inside = other.frame("inside")
        assert inside is not None
        assert inside.url.startswith("chrome-error:")  # nothing of the consent page is shown in a frame
        assert "hermes-agent" not in inside.content()
        press(other, "Play a game")
        other.wait_for_url(f"{guarded.url}/authorize")
        assert "was not sent by a page of" in other.inner_text("main")
    with guarded.client(ADMIN_KEY) as admin:
        assert "stolen" not in admin.post("/v3/workspaces/list", json={}).text
    context.close()


def test_device_is_allowed_on_the_page_of_another_browser(guarded: Served, page: Page, workspace: str) -> None:
    with guarded.client() as device:
        codes = device.post("/oauth/device_authorization", data={"client_id": "honcho-cli"}).json()
        page.goto(codes["verification_uri"])
        page.get_by_label("Code of the device").fill("BCDF-GHJK")
        press(page, "Continue")
        assert "No program waits" in page.get_by_role("alert").inner_text()
        page.get_by_label("Code of the device").fill(codes["user_code"])
        press(page, "Continue")
        assert "honcho-cli" in page.inner_text("main")
        page.get_by_label("Workspace").fill(workspace)
        page.get_by_label("One-time code").fill(approved(guarded, page))
        press(page, "Allow")
        assert page.inner_text("h1") == "Allowed"
        tokens = device.post("/oauth/token", data=poll_form(codes["device_code"])).json()
    assert tokens["config"] == {"workspace": workspace}


def test_link_of_a_device_only_fills_its_code_in(guarded: Served, page: Page) -> None:
    with guarded.client() as device:
        codes = device.post("/oauth/device_authorization", data={"client_id": "honcho-cli"}).json()
        page.goto(codes["verification_uri_complete"])
        assert page.input_value("#user_code") == codes["user_code"]
        press(page, "Continue")
        press(page, "Deny")
        assert page.inner_text("h1") == "Denied"
        assert error_of(device.post("/oauth/token", data=poll_form(codes["device_code"]))) == "access_denied"


@pytest.mark.parametrize("size", [*SIZES])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_can_be_read(guarded: Served, browser: Browser, size: str, scheme: str) -> None:
    """Nothing overflows horizontally, buttons suit a thumb, and text has enough contrast (WCAG AA)."""
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = context.new_page()
    for path in (LoopbackClient().link(guarded.url), f"{guarded.url}/device", f"{guarded.url}/authorize"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for button in page.get_by_role("button").all():
            box = button.bounding_box()
            assert box is not None
            assert box["height"] >= 44
        assert page.evaluate(CONTRASTS) == []
    context.close()


CONTRASTS = """() => {
  const bright = (color) => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((value) => value / 255);
    const [r, g, b] = parts.map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = getComputedStyle(element).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("main *")].filter((element) => element.innerText).map((element) => {
    const pair = [bright(getComputedStyle(element).color), bright(behind(element))].sort((a, b) => b - a);
    return [element.innerText, (pair[0] + 0.05) / (pair[1] + 0.05)];
  }).filter(([, contrast]) => contrast < 4.5);
}"""
"""Finds elements with too little contrast between text and background."""
