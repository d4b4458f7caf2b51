"""The pages of settings in a real browser: repairs by clicks alone, for everybody, on any screen."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.llm.beside import beside
from tests.web.holding import meet_people
from tests.web.serving import SaidNext, WebProcess, serving
from tests.web.talking import begin, open_until, replies

pytestmark = [pytest.mark.processes, pytest.mark.contract("10.67", "10.70")]

PAGES = (
    "/settings",
    "/settings/connect",
    "/settings/people",
    "/settings/people?platform=telegram&id=4711",
    "/settings/people?account=telegram:18",
    "/settings/people?account=telegram:18&name=ann",
    "/settings/people?account=telegram:18&name=hermes",
    "/settings/models",
    "/settings/all",
    "/settings/all?table=honcho&key=recallMode",
    "/settings/all?key=telegram.token",
    "/settings/all?key=nope",
)
NOBODY = "http://127.0.0.1:9/v1"


@pytest.fixture(scope="module")
def other(processes: None) -> Iterator[SaidNext]:
    with beside(SaidNext()) as running:
        yield running


@pytest.fixture(scope="module")
def web(other: SaidNext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    """The page of a home with people on Telegram, a wrong mapping and a wrong address of the model."""
    home = tmp_path_factory.mktemp("mended") / "home"
    home.mkdir()
    (home / "honcho.json").write_text(json.dumps({"peerName": "ann", "userPeerAliases": {"18": "carl"}}))
    lines = (
        "sessions:",
        "  auto_title: false",
        "model:",
        f"  base_url: {NOBODY}",
        "  default: other-1",
        "  tools: off",
    )
    (home / "config.yaml").write_text("\n".join([*lines, ""]), encoding="utf-8")
    with ThreadPoolExecutor(1) as beside_playwright:  # which has a loop of its own in this thread
        beside_playwright.submit(asyncio.run, meet_people(home)).result()
    with serving(home, HONCHO_OAUTH_AUTHORIZE_URL=NOBODY) as running:
        yield running


def test_wrong_mapping_is_corrected_by_clicks(page: Page, web: WebProcess) -> None:
    page.goto(f"{web.url}/settings")
    page.get_by_role("link", name="People", exact=True).click()
    row = page.locator(".facts > li", has_text="telegram:18")
    expect(row).to_contain_text("carl")
    row.get_by_role("link", name="Change").click()
    page.get_by_label("Name of the person in memory").fill("robert")
    page.get_by_role("button", name="See what would change").click()
    expect(page.get_by_text("Nothing is known of carl yet.")).to_be_visible()
    page.get_by_role("button", name="Change it").click()
    expect(page.locator("[role=status].note")).to_contain_text("Changed.")
    expect(page.locator(".facts > li", has_text="telegram:18")).to_contain_text("robert")


def test_owners_peer_is_assigned_only_after_a_tick(page: Page, web: WebProcess) -> None:
    page.goto(f"{web.url}/settings/people")
    page.get_by_label("Id of the user there").fill("4711")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#would")).to_contain_text("telegram:4711 would be 4711")
    page.get_by_role("link", name="Make it somebody else").click()
    page.get_by_label("Name of the person in memory").fill("ann")
    page.get_by_role("button", name="See what would change").click()
    page.get_by_role("button", name="Change it").click()
    expect(page.get_by_role("checkbox")).to_have_js_property("validity.valid", value=False)
    page.get_by_role("checkbox").check()
    page.get_by_role("button", name="Change it").click()
    expect(page.locator(".facts > li", has_text="telegram:4711")).to_contain_text("everything")


def test_wrong_model_address_is_corrected_by_clicks(page: Page, web: WebProcess, other: SaidNext) -> None:
    begin(page, web, "Do you hear me?")
    expect(page.locator("#live .problem")).to_contain_text("refuses the connection")
    page.goto(f"{web.url}/settings/models")
    form = page.locator("form[action='/settings/models/host']")
    form.get_by_role("button", name="Test").click()
    expect(form.locator("[role=status]")).to_contain_text("It does not answer")
    form.get_by_label("Address").fill(other.base_url)
    form.get_by_role("button", name="Test").click()
    expect(form.locator("[role=status]")).to_contain_text("answers")
    expect(form.get_by_label("Address")).to_have_value(other.base_url)
    form.get_by_role("button", name="Save").click()
    expect(page.locator("[role=status].note")).to_contain_text("Saved.")
    begin(page, web, "And now?")
    expect(replies(page)).to_contain_text("Understood.")


def test_recall_mode_chosen_by_clicks_takes_effect_at_once(page: Page, web: WebProcess) -> None:
    page.goto(f"{web.url}/settings")
    group = page.get_by_role("group", name="What does the model get of memory?")
    expect(group.get_by_role("radio", name=re.compile("^hybrid"))).to_be_checked()
    group.get_by_role("radio", name=re.compile("^context")).check()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("[role=status].note")).to_contain_text("Saved.")
    page.goto(f"{web.url}/memory/waiting")
    expect(page.locator(".told-by")).to_contain_text("context")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_settings_are_accessible(page: Page, web: WebProcess, axe: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    found = {}
    for path in PAGES:
        page.goto(f"{web.url}{path}")
        page.evaluate(axe)
        told = page.evaluate("axe.run()")["violations"]
        bad = [one for one in told if one["impact"] in ("serious", "critical")]
        found[path] = [(one["id"], node["target"]) for one in bad for node in one["nodes"]]
    page.emulate_media(color_scheme=None)
    assert {path: one for path, one in found.items() if one} == {}


def test_nothing_is_wider_than_a_phone(page: Page, web: WebProcess) -> None:
    page.set_viewport_size({"width": 375, "height": 800})
    wide = []
    for path in PAGES:
        page.goto(f"{web.url}{path}")
        wide += [path] if page.evaluate("document.documentElement.scrollWidth > innerWidth") else []
        if not page.get_by_role("link", name="Settings", exact=True).is_visible():
            wide.append(f"{path}: no way to the settings")
    page.set_viewport_size({"width": 1200, "height": 800})
    assert wide == []


def test_settings_work_with_the_keyboard_and_without_scripts(browser: Browser, web: WebProcess) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(web.take_link())
    page.goto(f"{web.url}/settings/all?table=honcho&key=contextTokens")
    page.get_by_label("It takes").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("many")
    page.keyboard.press("Enter")
    expect(page.locator("#problem")).to_contain_text("contextTokens is 'many', but takes")
    expect(page.get_by_label("It takes")).to_have_value("many")
    page.get_by_label("It takes").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("700")
    page.keyboard.press("Enter")
    expect(page.locator("[role=status].note")).to_contain_text("Saved.")
    page.goto(f"{web.url}/settings")
    page.get_by_role("button", name="Connect", exact=True).click()
    open_until(page, f"{web.url}/settings/connect", "#connect[data-state=waiting]")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#connect")).to_have_attribute("data-state", "idle")
    context.close()
