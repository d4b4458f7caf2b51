"""Sign-in to the memory provider from the page, with a real browser and our own server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from hermes.honcho.web_sign_in import STAYS_HERE
from hermes.memory.connect_routes import DONE
from hermes.web.api import TOKEN as TOKEN_HEADER
from hermes.web.door import STALE
from tests.db.processes import ROOT
from tests.honcho.issuer import Issuer
from tests.memory_server.serving import SECRET, Served, running
from tests.memory_server.signing import ADMIN_KEY
from tests.web.forms import Visitor, visiting
from tests.web.serving import SaidNext, WebProcess, environment, serving
from tests.web.talking import begin, replies, say

pytestmark = pytest.mark.contract("8.3", "10.71")

AT = "/api/memory/providers/honcho/oauth"
SHORT = (
    "-c",
    "import sys, hermes.honcho.web_sign_in as page; page.BrowserSignIn.finish.__defaults__ = (6.0,); "
    "page.ERROR_SECONDS = 4.0; from hermes.__main__ import main; sys.exit(main())",
)
"""Runs the program with shorter timeouts: six seconds for a person, four after an error."""


def configure(home: Path, url: str, **block: Any) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text("memory:\n  provider: honcho\n", encoding="utf-8")
    document = {"baseUrl": url, "hosts": {"hermes": {"peerName": "ann", **block}, "hermes_work": {}}}
    (home / "honcho.json").write_text(json.dumps(document), encoding="utf-8")


def block_of(home: Path, host: str = "hermes") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "honcho.json").read_text(encoding="utf-8"))["hosts"][host]
    return found


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """A server whose page grants access at once."""
    with Issuer() as made:
        yield made


@pytest.fixture
def visitor(issuer: Issuer, model: SaidNext, tmp_path: Path) -> Iterator[Visitor]:
    configure(tmp_path / "home", issuer.url)
    with serving(tmp_path / "home", model) as web, visiting(web) as made:
        yield made


def test_endpoints_take_the_cookie_with_the_token_and_nothing_else(visitor: Visitor, issuer: Issuer) -> None:
    client, origin = visitor.client, visitor.origin
    assert client.get(f"{AT}/status").json() == {"state": "idle", "detail": f"at {issuer.url}"}
    assert httpx.get(f"{visitor.web.url}{AT}/status", trust_env=False).status_code == 401
    for act in ("begin", "disconnect"):
        for headers in (origin, {**origin, TOKEN_HEADER: "x"}, {**origin, TOKEN_HEADER: "é".encode()}):
            bare = client.post(f"{AT}/{act}", headers=headers)  # type: ignore[arg-type]
            assert (bare.status_code, STALE.split("`")[0] in bare.text) == (400, True)
        assert client.post(f"{AT}/{act}", headers={"Origin": "https://evil.example"}).status_code == 403
    assert client.get("/api/memory/providers/files/oauth/status").status_code == 400
    found = client.post(f"{AT}/begin", headers={**origin, TOKEN_HEADER: visitor.token})
    assert found.json()["url"].startswith(f"{issuer.url}/authorize?")
    assert client.get(f"{AT}/status").json()["state"] == "waiting"
    elsewhere = httpx.get(f"{visitor.web.url}{AT}/callback?state=x&code=y", trust_env=False)
    assert elsewhere.status_code == 400, "a browser comes back from another site, without the cookie"
    assert DONE not in elsewhere.text
    assert client.post(f"{AT}/disconnect", headers={**origin, TOKEN_HEADER: visitor.token}).json()["state"] == "idle"


def test_second_profile_does_not_touch_the_first(visitor: Visitor, issuer: Issuer) -> None:
    home = visitor.web.home
    (home / "profiles" / "work").mkdir(parents=True)
    before = block_of(home)
    headers = {**visitor.origin, TOKEN_HEADER: visitor.token}
    begun = visitor.client.post(f"{AT}/begin?profile=work", headers=headers)
    assert visitor.client.get(f"{AT}/status").json()["state"] == "idle"
    httpx.get(begun.json()["url"], follow_redirects=True, trust_env=False)
    for _ in range(100):
        if (state := visitor.client.get(f"{AT}/status?profile=work").json()["state"]) != "waiting":
            break
    assert state == "connected"
    assert block_of(home) == before
    assert block_of(home, "hermes_work")["apiKey"] in issuer.issued
    assert 'data-state="idle"' in visitor.get("/settings/connect")
    assert visitor.client.get(f"{AT}/status?profile=nobody").status_code == 404


def test_link_is_a_page_without_scripts_and_is_sent_again_only_when_it_changes(visitor: Visitor) -> None:
    page = visitor.get("/settings/connect")
    mark = re.search(r"/settings/connect\?seen=([^\"]+)", page)
    assert mark is not None
    polled = f"/settings/connect?seen={mark[1]}"
    assert visitor.client.get(polled, headers={"HX-Request": "true"}).status_code == 204
    assert visitor.client.get(polled).status_code == 200
    leaving = visitor.send("/settings/connect", {})
    assert '<meta http-equiv="refresh" content="0; url=http://127.0.0.1:' in leaving.text
    waiting = visitor.client.get(polled, headers={"HX-Request": "true"})
    assert 'data-state="waiting"' in waiting.text
    assert '<noscript><meta http-equiv="refresh"' in waiting.text
    assert 'data-state="idle"' in visitor.send("/settings/disconnect", {}).text


@pytest.fixture(scope="module")
def keyed(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A memory server that requires keys."""
    with running(tmp_path_factory.mktemp("keyed"), AUTH_USE_AUTH="true", AUTH_JWT_SECRET=SECRET) as served:
        yield served


@contextmanager
def signed(browser: Browser, link: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    context.set_default_timeout(20_000)
    opened = context.new_page()
    opened.goto(link)
    yield opened
    context.close()


@contextmanager
def beginning(page: Page, button: str = "Connect") -> Iterator[Page]:
    """Click the link; yield the sign-in page that opens in another window."""
    with page.context.expect_page() as opened:
        page.get_by_role("button", name=button, exact=True).click()
    opened.value.wait_for_selector("button[value=allow]")
    yield opened.value
    opened.value.close()


def consent(page: Page, served: Served, home: Path, **fields: str) -> None:
    """Complete the sign-in page with the code of the server's owner, and grant access."""
    request = re.search(r"hermes memory approve (\w{4})", page.content())
    assert request is not None
    command = ("memory", "approve", request[1], "--data", str(served.folder), "--json")
    done = subprocess.run(
        [sys.executable, "-m", "hermes", *command],
        cwd=ROOT, env=environment(home), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    for name, value in {**fields, "code": json.loads(done.stdout)["code"]}.items():
        page.fill(f"#{name}", value)
    page.click("button[value=allow]")
    page.wait_for_url("http://127.0.0.1:*/callback?*")


def state(page: Page) -> Any:
    return page.locator("#connect[data-state]")


def said_by_session(served: Served, workspace: str) -> dict[str, list[str]]:
    """Return the messages on the server, by session."""
    with served.client(ADMIN_KEY) as client:
        at = f"/v3/workspaces/{workspace}/sessions"
        names = [one["id"] for one in client.post(f"{at}/list", json={}).json()["items"]]
        lists = {name: client.post(f"{at}/{name}/messages/list").json()["items"] for name in names}
    return {name: [one["content"] for one in found] for name, found in lists.items()}


def wait_for_said(page: Page, served: Served, workspace: str, text: str) -> str:
    """Wait until the server has a message; return its session."""
    for _ in range(150):
        found = [name for name, said in said_by_session(served, workspace).items() if text in said]
        if found:
            return found[0]
        page.wait_for_timeout(200)
    raise AssertionError(f"{text!r} did not arrive")


def find_bad(page: Page, axe: str) -> list[str]:
    """Return the serious violations that axe finds on the page."""
    page.evaluate(axe)
    found = page.evaluate("axe.run()")["violations"]
    return [one["id"] for one in found if one["impact"] in ("serious", "critical")]


@pytest.mark.processes
@pytest.mark.timeout(180)
def test_connecting_makes_the_next_turn_reach_memory(
    model: SaidNext, browser: Browser, keyed: Served, axe: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    configure(home, keyed.url, recallMode="context")
    with serving(home, model) as web, signed(browser, web.take_link()) as page:
        page.goto(f"{web.url}/settings")
        expect(state(page)).to_have_attribute("data-state", "idle")
        sizes = [page.locator("#provider").bounding_box()]
        with beginning(page) as there:
            expect(state(page)).to_have_attribute("data-state", "waiting")
            expect(page.get_by_role("link", name="Open it again")).to_be_visible()
            sizes.append(page.locator("#provider").bounding_box())
            assert find_bad(page, axe) == []
            consent(there, keyed, home, workspace="garden", person="Nina")
        expect(state(page)).to_have_attribute("data-state", "connected")
        expect(state(page)).to_contain_text("OAuth (hermes-agent, token valid")
        sizes.append(page.locator("#provider").bounding_box())
        assert find_bad(page, axe) == []
        assert sizes[1:] == sizes[:1] * 2, "the choice keeps its place and size in every state"
        block = block_of(home)
        kept = (block["peerName"], block["workspace"], block["recallMode"])
        assert kept == ("ann", "garden", "context"), "consent fills in what nobody set, and overwrites nothing"
        begin(page, web, "My bicycle is called Rocinante.")
        expect(replies(page)).to_have_count(1)
        begin(page, web, "My boat is called Pequod.")
        expect(replies(page)).to_have_count(1)
        first = wait_for_said(page, keyed, "garden", "My bicycle is called Rocinante.")
        assert first != wait_for_said(page, keyed, "garden", "My boat is called Pequod."), "each has its own session"
        _mend_an_ended_sign_in(page, web, keyed, home)


def _mend_an_ended_sign_in(page: Page, web: WebProcess, keyed: Served, home: Path) -> None:
    """Replace the grant by an invalid one; messages of the meantime arrive after another sign-in, done by clicks
    alone."""
    document = json.loads((home / "honcho.json").read_text(encoding="utf-8"))
    grant = document["hosts"]["hermes"]["oauth"]
    document["hosts"]["hermes"]["apiKey"] = "hch-at-ended"
    document["hosts"]["hermes"]["oauth"] = {**grant, "refreshToken": "hch-rt-ended", "expiresAt": 1}
    (home / "honcho.json").write_text(json.dumps(document), encoding="utf-8")
    say(page, "My horse is called Bucephalus.")
    expect(page.locator(".banner")).to_contain_text("Memory is not working", timeout=60_000)
    page.goto(f"{web.url}/settings")
    expect(state(page)).to_contain_text("expired")
    with beginning(page, "Connect again") as there:
        consent(there, keyed, home, workspace="garden", person="Nina")
    expect(state(page)).to_contain_text("token valid")
    wait_for_said(page, keyed, "garden", "My horse is called Bucephalus.")


@pytest.mark.processes
@pytest.mark.timeout(120)
def test_denial_and_timeout_are_shown_and_then_cleared(
    model: SaidNext, browser: Browser, keyed: Served, axe: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    configure(home, keyed.url)
    before = (home / "honcho.json").read_bytes()
    with serving(home, model, program=SHORT) as web, signed(browser, web.take_link()) as page:
        page.goto(f"{web.url}/settings")
        with beginning(page) as there:
            there.click("button[value=deny]")
        expect(state(page)).to_contain_text("The sign-in was declined")
        expect(page.get_by_role("button", name="Try again")).to_be_visible()
        assert find_bad(page, axe) == []
        expect(state(page)).to_have_attribute("data-state", "idle")
        with beginning(page):
            expect(state(page)).to_have_attribute("data-state", "waiting")
        expect(state(page)).to_contain_text("Nobody signed in within")
        expect(state(page)).to_have_attribute("data-state", "idle")
        with beginning(page):
            page.get_by_role("button", name="Cancel").click()
            expect(state(page)).to_have_attribute("data-state", "idle")
    assert (home / "honcho.json").read_bytes() == before


@pytest.mark.processes
@pytest.mark.timeout(120)
def test_connecting_saves_the_default_provider_as_the_choice(
    model: SaidNext, browser: Browser, issuer: Issuer, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    configure(home, issuer.url)
    (home / "config.yaml").unlink()
    with serving(home, model) as web, signed(browser, web.take_link()) as page:
        page.goto(f"{web.url}/settings")
        expect(state(page)).to_contain_text(STAYS_HERE)
        with page.context.expect_page():
            page.get_by_role("button", name="Connect", exact=True).click()
        expect(state(page)).to_have_attribute("data-state", "connected")
        expect(page.get_by_role("button", name="Disconnect")).to_be_visible()
        assert "provider: honcho" in (home / "config.yaml").read_text(encoding="utf-8")
        page.get_by_role("button", name="Disconnect").click()
        expect(state(page)).to_have_attribute("data-state", "idle")
        assert len(issuer.revoked) == 1


@pytest.mark.processes
@pytest.mark.timeout(120)
def test_page_of_another_profile_connects_that_profile_alone(
    model: SaidNext, browser: Browser, issuer: Issuer, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    configure(home, issuer.url)
    (home / "profiles" / "work").mkdir(parents=True)
    (home / "profiles" / "work" / "config.yaml").write_text("memory:\n  provider: honcho\n", encoding="utf-8")
    before = block_of(home)
    with serving(home, model, "-p", "work") as web, signed(browser, web.take_link()) as page:
        page.goto(f"{web.url}/settings")
        with page.context.expect_page():
            page.get_by_role("button", name="Connect", exact=True).click()
        expect(state(page)).to_have_attribute("data-state", "connected")
    with serving(home, model) as web, signed(browser, web.take_link()) as page:
        page.goto(f"{web.url}/settings")
        expect(state(page)).to_have_attribute("data-state", "idle")
    assert block_of(home) == before
    assert block_of(home, "hermes_work")["apiKey"] in issuer.issued
