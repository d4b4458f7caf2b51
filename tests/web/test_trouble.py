"""Memory servers that die and come back or are of another make, and a store that fails."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from hermes.web.health import SAYS
from hermes.web.news import MEMORY_OFF
from tests.honcho.misbehaving import Fault, Misbehaving, never
from tests.memory_server.serving import kill, running, start, start_module, stop
from tests.web.holding import hold
from tests.web.serving import SaidNext, serving
from tests.web.talking import begin, fact, open_until, replies, say, tell

pytestmark = pytest.mark.contract("10.66")

RECOVERY_MS = 120_000


def configure(home: Path, url: str) -> None:
    """Choose the server at `url` as the home's memory, as a person would."""
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("memory:\n  provider: honcho\n", encoding="utf-8")
    (home / "honcho.json").write_text(json.dumps({"baseUrl": url, "peerName": "ann"}), encoding="utf-8")


@contextmanager
def signed(browser: Browser, link: str) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(20_000)
    opened = context.new_page()
    opened.goto(link)
    yield opened
    context.close()


def test_memory_server_outage_and_return_are_shown_and_nothing_is_lost(
    model: SaidNext, browser: Browser, tmp_path: Path
) -> None:
    folder = tmp_path / "memory"
    served = start(folder)
    port = served.url.rpartition(":")[2]
    configure(tmp_path / "home", served.url)
    with serving(tmp_path / "home", model) as web, signed(browser, web.take_link()) as page:
        address = tell(page, web, "My boat is called Esmeralda.")
        open_until(page, f"{web.url}/memory", fact("My boat is called Esmeralda."))
        page.goto(address)
        expect(page.locator(".banner")).to_have_count(0)
        kill(served)
        say(page, "My canoe is called Ash.")
        expect(replies(page)).to_have_count(2)
        expect(page.locator(".banner")).to_contain_text("Memory is not working", timeout=RECOVERY_MS)
        for path in ("/", "/memory", "/memory/waiting"):
            page.goto(f"{web.url}{path}")
            expect(page.locator("main")).to_contain_text("not working")
        page.goto(f"{web.url}/memory")
        page.locator("#new").fill("I row on Sundays.")
        page.get_by_role("button", name="Add").click()  # a note needs no server
        expect(page.locator(fact("I row on Sundays."))).to_be_visible()
        page.goto(address)
        again = start_module(["hermes", "memory", "serve", "--port", port, "--data", str(folder)], folder)
        expect(page.locator(".banner")).to_have_count(0, timeout=RECOVERY_MS)
        open_until(page, f"{web.url}/memory?q=canoe", fact("My canoe is called Ash."))
        page.goto(f"{web.url}/news")
        expect(page.locator("#sentence")).to_contain_text("Memory works.")
        stop(again)


@contextmanager
def misbehaving(upstream: str, *, is_foreign: bool = False) -> Iterator[Misbehaving]:
    """A proxy in front of a server. A foreign one has nothing beyond the API."""
    started, over = threading.Event(), threading.Event()
    server = Misbehaving(upstream, is_foreign=is_foreign)

    async def serve() -> None:
        async with server.served():
            started.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(30)
    try:
        yield server
    finally:
        over.set()
        thread.join()


def test_foreign_honcho_server_is_shown_with_its_limits(model: SaidNext, browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path / "memory") as served, misbehaving(served.url, is_foreign=True) as server:
        configure(tmp_path / "home", server.url)
        with serving(tmp_path / "home", model) as web, signed(browser, web.take_link()) as page:
            tell(page, web, "My kite is purple.")
            open_until(page, f"{web.url}/memory?q=kite", fact("My kite is purple."))
            page.goto(f"{web.url}/memory/people")
            expect(page.locator(".person").first).to_contain_text("What this memory server cannot tell")
            page.goto(f"{web.url}/memory/merge")
            expect(page.locator("main")).to_contain_text("cannot merge")


def refuse_messages(method: str, path: str) -> Fault | None:
    return "422" if method == "POST" and path.partition("?")[0].endswith("/messages") else None


@pytest.mark.contract("10.76")
def test_refused_entry_is_retried_or_dropped_by_clicks(model: SaidNext, browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path / "memory") as served, misbehaving(served.url) as server:
        configure(tmp_path / "home", server.url)
        with serving(tmp_path / "home", model) as web, signed(browser, web.take_link()) as page:
            server.choose = refuse_messages
            tell(page, web, "My otter is called Bo.")
            open_until(page, f"{web.url}/health", "text=Try all again")
            question, reply = (page.locator("li").filter(has_text=text) for text in ("otter", "Understood."))
            expect(question).to_contain_text("what was said")
            expect(question).to_contain_text("on purpose")
            reply.get_by_role("link", name="Drop").click()
            expect(page.locator("blockquote")).to_have_text("Understood.")
            page.get_by_role("button", name="Drop it for good").click()
            expect(page.locator("[role=status].note")).to_have_text(SAYS["dropped"])
            expect(reply).to_have_count(0)
            server.choose = never
            question.get_by_role("button", name="Try again").click()
            expect(page.locator("[role=status].note")).to_have_text(SAYS["retried"])
            open_until(page, f"{web.url}/memory?q=otter", fact("My otter is called Bo."))
            page.goto(f"{web.url}/memory/waiting")
            expect(page.locator("main")).to_contain_text("0 waiting, 0 refused")


@pytest.mark.contract("10.64")
def test_rare_word_is_found_without_reading_all_facts(model: SaidNext, tmp_path: Path) -> None:
    with running(tmp_path / "memory") as served, misbehaving(served.url) as server:
        configure(tmp_path / "home", server.url)
        with serving(tmp_path / "home", model) as web, web.sign_in() as client:
            with httpx.Client(base_url=served.url) as direct:
                hold(direct, ["I keep one unicorn.", *(f"I keep box {number}." for number in range(500))])
            assert "501 things known" in client.get("/news").text
            server.asked.clear()
            assert "I keep one unicorn." in client.get("/memory?q=UNICORN").text
            assert len([path for _, path in server.asked if "/conclusions/list" in path]) <= 3


def test_without_a_memory_provider_notes_and_chats_work(model: SaidNext, browser: Browser, tmp_path: Path) -> None:
    off = {"HERMES_MEMORY_PROVIDER": "none"}
    with serving(tmp_path / "home", model, **off) as web, signed(browser, web.take_link()) as page:
        expect(page.locator("#sentence")).to_have_text(MEMORY_OFF)
        begin(page, web, "Hello.")
        expect(replies(page)).to_have_count(1)
        for path in ("/memory", "/memory/people", "/memory/ask?q=x", "/memory/forget?q=x", "/memory/merge", "/news"):
            answer = page.goto(f"{web.url}{path}")
            assert answer is not None
            assert answer.status == 200, path
