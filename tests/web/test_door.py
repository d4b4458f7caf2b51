"""Access to the page, and what nobody gets."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from hermes.web import chat, health, memory, model_pages, news, people_pages, server, settings_pages
from hermes.web.chat import CROWDED, MAX_FOLLOWERS
from hermes.web.door import FOREIGN, LINK_USED, NO_COOKIE, STALE, WRONG_HOST
from hermes.web.routing import DEFECT
from tests.web.serving import WebProcess

pytestmark = pytest.mark.contract("10.60")

PAGES = [
    "/",
    "/settings",
    "/settings/connect",
    "/sessions",
    "/search",
    "/memory",
    "/sessions/x",
    "/sessions/x/stream",
    "/nowhere",
]


@pytest.fixture(scope="module")
def signed(web: WebProcess) -> Iterator[httpx.Client]:
    with web.sign_in() as client:
        yield client


def token(client: httpx.Client) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get("/sessions").text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("path", PAGES)
def test_without_the_cookie_no_page_is_shown(web: WebProcess, path: str) -> None:
    answer = httpx.get(f"{web.url}{path}", trust_env=False)
    assert answer.status_code == 401
    assert NO_COOKIE.split("`")[0] in answer.text


def test_link_works_once_and_the_next_one_is_printed(web: WebProcess) -> None:
    link = web.take_link()
    with httpx.Client(trust_env=False) as client:
        news = client.get(link)
        assert (news.status_code, news.headers["location"]) == (303, "/")
        assert {"HttpOnly", "SameSite=Strict"} <= set(news.headers["set-cookie"].split("; "))
    again = httpx.get(link, trust_env=False)
    assert again.status_code == 401
    assert LINK_USED.split("`")[0] in again.text
    assert "set-cookie" not in again.headers
    with web.sign_in() as client:
        assert client.get("/").status_code == 200


def test_invented_link_is_refused(web: WebProcess) -> None:
    for once in ("", "x", "%00", "é" * 50):
        assert httpx.get(f"{web.url}/enter", params={"once": once}, trust_env=False).status_code == 401


def test_no_page_has_a_token_in_a_url(signed: httpx.Client) -> None:
    answer = signed.get("/sessions")
    cookie = next(iter(signed.cookies.values()))
    assert cookie not in answer.text
    assert "once=" not in answer.text
    assert not re.search(rf'(?:href|action|src)="[^"]*{re.escape(token(signed))}', answer.text)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "a@127.0.0.1"])
def test_other_host_names_are_refused(web: WebProcess, signed: httpx.Client, host: str) -> None:
    port = web.url.rpartition(":")[2]
    answer = signed.get("/", headers={"Host": host.format(port=port)})
    assert answer.status_code in (400, 403)
    assert answer.status_code == 400 or WRONG_HOST in answer.text


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1"])
def test_other_pages_can_neither_read_nor_change_data(signed: httpx.Client, origin: str) -> None:
    form = {"csrf": token(signed), "text": "from elsewhere"}
    for answer in (
        signed.get("/", headers={"Origin": origin}),
        signed.post("/sessions", data=form, headers={"Origin": origin}),
    ):
        assert answer.status_code == 403
        assert FOREIGN in answer.text
        assert "access-control-allow-origin" not in answer.headers
    assert "from elsewhere" not in signed.get("/sessions").text


def test_form_needs_an_origin_and_a_token_of_this_start(web: WebProcess, signed: httpx.Client) -> None:
    form = {"csrf": token(signed), "text": "not to be said"}
    assert signed.post("/sessions", data=form).status_code == 403
    cross = {"Origin": web.url, "Sec-Fetch-Site": "cross-site"}
    assert signed.post("/sessions", data=form, headers=cross).status_code == 403
    for wrong in ("", "x", form["csrf"][:-1]):
        stale = signed.post("/sessions", data={**form, "csrf": wrong}, headers={"Origin": web.url})
        assert stale.status_code == 400
        assert STALE.split("`")[0] in stale.text
    assert "not to be said" not in signed.get("/sessions").text


def test_scripts_and_styles_are_served_by_the_page_only(signed: httpx.Client) -> None:
    answer = signed.get("/sessions")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|https?://", answer.text)
    assert answer.headers["cache-control"] == "no-store"


def form_paths() -> list[str]:
    """Return the address of every form of the page."""
    modules = (server, chat, news, health, memory, model_pages, people_pages, settings_pages, server)
    made = [route for module in modules for route in module.routes()]
    return [re.sub(r"\{\w+:\w+\}", "1", route.path) for route in made if route.methods and "POST" in route.methods]


@pytest.mark.parametrize("path", form_paths())
def test_foreign_forms_and_forms_without_a_token_are_refused(web: WebProcess, signed: httpx.Client, path: str) -> None:
    form = {"csrf": token(signed)}
    foreign = signed.post(path, data=form, headers={"Origin": "https://evil.example"})
    assert (foreign.status_code, FOREIGN in foreign.text) == (403, True)
    bare = signed.post(path, data={"csrf": "x"}, headers={"Origin": web.url})
    assert (bare.status_code, STALE.split("`")[0] in bare.text) == (400, True)
    assert httpx.post(f"{web.url}{path}", data=form, headers={"Origin": web.url}, trust_env=False).status_code == 401
    assert len(form_paths()) >= 22


LONG = "000000000001" + "9" * 5000


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/sessions?page={LONG}", 400),
        ("/sessions?page=%C2%B2", 400),
        (f"/memory?after={LONG}:", 400),
        ("/memory?after=%C2%B2:", 400),
        ("/memory?after=1.2:3", 400),
        ("/memory?after=1:1..2", 200),
        (f"/sessions/x/stream?after={LONG}", 404),
        (f"/sessions/x/turns/{LONG}/memory", 404),
        (f"/sessions/x/turns/1/lines/{LONG}", 404),
        ("/static/..%2f..%2fdoor.py", 404),
        ("/static/../door.py", 404),
    ],
    ids=lambda value: str(value)[:40],
)
def test_odd_address_gets_an_explanation_and_never_a_500(
    web: WebProcess, signed: httpx.Client, path: str, status: int
) -> None:
    answer = signed.get(httpx.URL(web.url).copy_with(raw_path=path.encode()))
    assert answer.status_code == status
    assert DEFECT not in answer.text
    assert "Error:" not in answer.text


@pytest.mark.parametrize("body", [b"\xff\xfe", b"a=%ff", b"csrf=" + b"x" * 3_000_000, b"&".join([b"a=1"] * 3000)])
def test_body_other_than_a_form_is_refused(web: WebProcess, signed: httpx.Client, body: bytes) -> None:
    headers = {"Origin": web.url, "Content-Type": "application/x-www-form-urlencoded"}
    answer = signed.post("/sessions", content=body, headers=headers)
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text


def test_streams_are_limited_and_closed(web: WebProcess, signed: httpx.Client) -> None:
    made = signed.post("/sessions", data={"csrf": token(signed), "text": "Hello."}, headers={"Origin": web.url})
    path = f"{made.headers['location']}/stream?after=0"
    lines: list[Iterator[str]] = []
    with ExitStack() as open_pages:
        for _ in range(MAX_FOLLOWERS):
            other = open_pages.enter_context(httpx.Client(base_url=web.url, cookies=signed.cookies, trust_env=False))
            followed = open_pages.enter_context(other.stream("GET", path))
            lines.append(followed.iter_lines())  # an iterator that is let go closes its stream
            assert next(lines[-1]).startswith("id: ")
        with signed.stream("GET", path) as refused:
            assert (refused.status_code, refused.read().decode()) == (503, CROWDED)
    for _ in range(100):
        with signed.stream("GET", path) as followed:
            if followed.status_code == 200:
                break
        time.sleep(0.1)
    assert followed.status_code == 200
