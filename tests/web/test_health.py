"""Health and the timeline of a session, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.db.queue import enqueue
from hermes.gateway.outbound import OUTBOUND
from hermes.store.compressions import Failures, record_failure
from hermes.store.store import Store
from hermes.types import Draft, Session, ToolCall
from hermes.web.health import KINDS, SAYS
from hermes.web.session_timeline import PARTS
from tests.web.homes import HIDDEN, change, fill, put_aside, write
from tests.web.looking import find_violations
from tests.web.serving import SaidNext, WebProcess, serving
from tests.web.talking import tell

SAID, TOOLS = 40, 3
SUMMARY = "They compare **larch** and robinia."
LONG = Session("long", "web", 1_795_000_000.0, title="The garden shed", system_prompt="You are hermes. " * 50)
GUESTS = [HIDDEN["guest"], HIDDEN["group"]]
TIMELINES = ["/sessions/long/timeline", "/sessions/long/timeline/snapshots/1", "/sessions/own/timeline"]


async def fill_long(home: Path) -> None:
    """Store a session with tool calls, one compression in the middle, and a reply that its chat refuses."""
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=5.0) as store:
        await store.write(lambda tx: store.sessions.create(tx, LONG))
        for number in range(SAID):
            if number == SAID // 2:
                await store.write(lambda tx: compress(store, tx))
            await store.append("long", Draft("user", f"How much is board {number}?"))
            if number < TOOLS:
                call = ToolCall("c", "session_search", '{"query": "board"}')
                await store.append("long", Draft("assistant", "", tool_calls=(call,)))
                await store.append("long", Draft("tool", "nothing", tool_call_id="c", tool_name="session_search"))
            await store.append("long", Draft("assistant", f"Board {number} is {number} €."))
        await store.write(queue_reply)


def compress(store: Store, tx: Tx) -> None:
    seen = store.compressions.look(tx, "long")
    ids = [one.id for one in seen.view.messages]
    store.compressions.swap(tx, seen, ids[-5], tuple(ids[:2]), SUMMARY, now=LONG.started_at)


def fail_to_compress(tx: Tx) -> None:
    record_failure(tx, "own", Failures(2, LONG.started_at + 3600, "the model did not answer"))


def queue_reply(tx: Tx) -> None:
    payload = {"chat": ["telegram", "1", "dm", None, None], "text": "Board 7 is 7 €.", "edit_id": None}
    enqueue(tx, OUTBOUND, "lane", "reply:0", payload, now=LONG.started_at, session_id="long")


@pytest.fixture(scope="module")
def web(model: SaidNext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    home = tmp_path_factory.mktemp("health") / "home"
    write(fill(home, *GUESTS, Session("own", "cli", LONG.started_at)))
    write(fill_long(home))
    write(change(home, put_aside))
    write(change(home, fail_to_compress))
    with serving(home, model) as running:
        yield running


@pytest.mark.contract("10.76")
def test_dead_letter_is_dropped_after_a_preview_or_retried(page: Page, web: WebProcess) -> None:
    page.goto(f"{web.url}/health")
    expect(page.locator("#letters")).to_be_visible()
    assert page.get_by_text("someone else’s, not shown").count() == len(GUESTS)
    assert "of guest is" not in page.content()
    reply, own = (page.locator("li").filter(has_text=text) for text in ("Board 7 is 7 €.", "of own is out of tune"))
    expect(reply).to_contain_text(KINDS["outbound"])
    expect(reply).to_contain_text("refused on purpose")
    reply.get_by_role("link", name=re.compile("^Drop")).click()
    expect(page.locator("blockquote")).to_have_text("Board 7 is 7 €.")
    page.get_by_role("link", name="Leave it").click()
    expect(reply).to_have_count(1)
    reply.get_by_role("link", name=re.compile("^Drop")).click()
    page.get_by_role("button", name="Drop it for good").click()
    expect(page.locator("[role=status].note")).to_have_text(SAYS["dropped"])
    expect(reply).to_have_count(0)
    own.get_by_role("button", name=re.compile("^Try again")).click()
    expect(page.locator("[role=status].note")).to_have_text(SAYS["retried"])
    expect(own).to_have_count(0)
    row = page.get_by_role("region", name="Table of queues").locator("tr").filter(has_text="memory:elsewhere")
    expect(row.locator("td").nth(1)).to_have_text("1")


def test_missing_dead_letter_is_reported(page: Page, web: WebProcess) -> None:
    page.goto(f"{web.url}/health/letters/999999")
    expect(page.get_by_role("alert")).to_contain_text("there is no entry 999999")


@pytest.mark.contract("10.76")
def test_health_shows_turns_models_and_warnings(page: Page, web: WebProcess) -> None:
    tell(page, web, "What is an adze?")
    page.goto(f"{web.url}/health")
    expect(page.locator(".tile").first).to_contain_text("Works")
    expect(page.locator(".tile").last).to_contain_text("Not running")
    expect(page.get_by_role("region", name="Table of model calls")).to_contain_text("loop-1")
    expect(page.locator("canvas")).to_have_count(4)
    tables = page.locator("table[data-chart]")
    expect(tables.first).to_be_hidden()  # the chart says the same
    page.locator("summary").first.click()
    expect(tables.first).to_be_visible()
    assert int(tables.first.locator("tbody tr").last.locator("td").last.inner_text()) >= 1
    page.get_by_role("link", name="30 days").click()
    expect(page.locator("canvas")).to_have_count(4)
    expect(tables.first.locator("tbody tr")).to_have_count(30)
    page.get_by_role("link", name="Run the checks").click()
    expect(page.locator(".facts")).to_contain_text("intact")


@pytest.mark.contract("10.76")
def test_health_works_without_scripts(browser: Browser, web: WebProcess) -> None:
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(web.take_link())
        page.goto(f"{web.url}/health?span=month")
        assert page.locator("canvas").count() == 0
        assert page.locator("table[data-chart]").count() >= 2
        assert all(table.is_visible() for table in page.locator("table[data-chart]").all())
        page.get_by_role("button", name="Try all again").click()
        expect(page.locator("[role=status].note")).to_have_text(SAYS["all"])
        expect(page.locator("main")).to_contain_text("Nothing. What fails is tried again")
        write(change(web.home, put_aside))
    finally:
        context.close()


@pytest.mark.contract("10.75")
def test_timeline_shows_parts_messages_and_the_compression(page: Page, web: WebProcess) -> None:
    page.goto(f"{web.url}/sessions/long")
    page.get_by_text("Session", exact=True).click()
    page.get_by_role("link", name=re.compile("^Timeline")).click()
    expect(page.locator("h1")).to_have_text("The garden shed: timeline")
    legend = page.locator(".legend li")
    names = [PARTS[name] for name in ("system", "kept", "summary", "said", "replies")]
    assert [one.inner_text().strip().rpartition(" tokens")[0].rstrip("0123456789, ") for one in legend.all()] == names
    assert page.locator("svg.parts rect").count() == len(names)
    total = int(page.locator("[aria-labelledby=now] strong").inner_text().replace(",", "").removesuffix(" tokens"))
    counts = [int(re.findall(r"([\d,]+) tokens", one.inner_text())[0].replace(",", "")) for one in legend.all()]
    assert sum(counts) == total
    expect(page.locator("ol.events > li")).to_have_count(61)  # a page of messages and the compression
    made = page.locator(".compressed")
    expect(made).to_contain_text("Compression 1")
    made.get_by_text("Summary").click()
    expect(made.locator("strong")).to_have_text("larch")
    made.get_by_role("link", name="What the model saw before").click()
    expect(page.locator(".msg.user")).to_have_count(SAID // 2)
    expect(page.locator("main")).to_contain_text("Board 19 is 19 €.")
    expect(page.locator("main")).not_to_contain_text("Board 20 is 20 €.")
    page.get_by_role("link", name="Back to the timeline").click()
    page.get_by_role("link", name="Earlier").click()
    expect(page.locator("ol.events")).to_contain_text("How much is board 0?")
    expect(page.locator("ol.events code").first).to_have_text("session_search")
    expect(page.locator(".compressed")).to_have_count(0)  # it stands where it was made, on the other page
    expect(page.get_by_role("link", name="To the newest")).to_be_visible()


@pytest.mark.contract("10.75")
def test_timeline_shows_waiting_entries_of_the_session(page: Page, web: WebProcess) -> None:
    page.goto(f"{web.url}/sessions/own/timeline")
    waits = page.get_by_role("region", name="What waits").locator("li")
    expect(waits.first).to_contain_text("A compression, which failed 2 times: the model did not answer.")
    expect(waits.last).to_contain_text("memory:elsewhere")


@pytest.mark.contract("10.67")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_health_and_timelines_are_accessible(page: Page, web: WebProcess, axe: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    found, wide = {}, []
    with web.sign_in() as client:
        dead = [one["id"] for one in client.get("/api/dead").json()["items"]]
    for path in [f"/health/letters/{dead[0]}", "/health/checks", "/health?span=month", "/health", *TIMELINES]:
        page.goto(f"{web.url}{path}")
        found[path] = find_violations(page, axe)
        page.set_viewport_size({"width": 375, "height": 800})
        wide += [path] if page.evaluate("document.documentElement.scrollWidth") > 375 else []
        page.set_viewport_size({"width": 1200, "height": 800})
    page.emulate_media(color_scheme=None)
    assert {path: one for path, one in found.items() if one} == {}
    assert wide == []
