"""The pages' data as JSON: access, amounts, and changes."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hermes.embedded.rendezvous import read_rendezvous
from hermes.home import Home
from hermes.owner.web_key import FILE, make_web_key
from hermes.types import Session
from hermes.web import api
from hermes.web.api import MAX_LIMIT, TOKEN
from hermes.web.routing import DEFECT
from tests.db.processes import ROOT
from tests.embedded.clients import place_of
from tests.web.holding import hold, server_of
from tests.web.homes import HIDDEN, NOW, OWN, SECRET, change, fill, put_aside, write
from tests.web.serving import SaidNext, WebProcess, environment, serving

pytestmark = pytest.mark.contract("10.77")

GATEWAY_KEY = "gateway-key-0123456789"
READ = [
    "/api", "/api/health", "/api/activity", "/api/sessions", "/api/sessions/own/timeline", "/api/people", "/api/facts",
    "/api/facts/x", "/api/dead", "/api/nowhere",
]  # fmt: skip


@pytest.fixture(scope="module")
def web(model: SaidNext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    """The page of a home with guests, another profile, and entries that memory refused."""
    home = tmp_path_factory.mktemp("api") / "home"
    own = [Session(f"own-{number}", "cli", NOW) for number in range(45)]
    write(fill(home, *HIDDEN.values(), *own, OWN))
    write(change(home, put_aside))
    write(fill(home / "profiles" / "work", Session("elsewhere", "cli", NOW)))
    (home / "config.yaml").write_text(f"api:\n  users: guests\n  key: {GATEWAY_KEY}\n", encoding="utf-8")
    with serving(home, model) as running:
        yield running


@pytest.fixture(scope="module")
def key(web: WebProcess) -> str:
    return make_key(web.home)


def make_key(home: Path, *more: str) -> str:
    command = [sys.executable, "-m", "hermes", "web", "key", *more]
    done = subprocess.run(command, cwd=ROOT, env=environment(home), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def keyed(web: WebProcess, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=web.url, headers=headers, trust_env=False, timeout=30)


@pytest.fixture(scope="module")
def client(web: WebProcess, key: str) -> Iterator[httpx.Client]:
    with keyed(web, key) as client:
        yield client


@pytest.fixture(scope="module")
def signed(web: WebProcess) -> Iterator[httpx.Client]:
    with web.sign_in() as client:
        yield client


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["name"]


@pytest.mark.parametrize("path", READ)
def test_without_cookie_or_key_requests_are_refused(web: WebProcess, path: str) -> None:
    assert refusal(httpx.get(f"{web.url}{path}", trust_env=False)) == (401, "not_signed_in")


@pytest.mark.parametrize("path", READ[:-3])
def test_cookie_and_key_get_the_same_data(signed: httpx.Client, client: httpx.Client, path: str) -> None:
    by_cookie, by_key = signed.get(path), client.get(path)
    assert (by_cookie.status_code, by_key.status_code) == (200, 200)
    assert by_cookie.json().keys() == by_key.json().keys()


def test_key_opens_no_page_and_no_sign_in(client: httpx.Client) -> None:
    for path in ("/", "/health", "/sessions/own", "/api/memory/providers/honcho/oauth/status", "/apiary"):
        assert client.get(path).status_code == 401


def test_key_is_stored_as_a_hash_with_mode_0600(web: WebProcess, key: str) -> None:
    path = web.home / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key not in path.read_text(encoding="utf-8")
    log = (web.home / "logs" / "agent.log").read_text(encoding="utf-8")
    assert key not in log


def test_keys_of_gateway_and_memory_server_and_others_are_refused(web: WebProcess, signed: httpx.Client) -> None:
    with server_of(web):
        found = read_rendezvous(place_of(web.home).rendezvous)
    assert found is not None
    of_work = make_web_key(Home(web.home / "profiles" / "work", "work"))
    kept = (web.home / FILE).read_text(encoding="utf-8").strip() if (web.home / FILE).exists() else "x"
    for other in (GATEWAY_KEY, found.api_key, found.start_id, kept, of_work, "hwk_", "é" * 40):
        headers = {b"Authorization": b"Bearer " + other.encode()}
        for who in (signed, httpx):  # also with the cookie: a wrong key is said to be wrong
            answer = who.get(f"{web.url}/api/health", headers=headers)
            assert refusal(answer) == (401, "not_signed_in")


def test_new_key_replaces_the_old_one_and_removal_revokes_it(model: SaidNext, tmp_path: Path) -> None:
    with serving(tmp_path / "home", model, HERMES_MEMORY_PROVIDER="none") as web:
        first = make_key(web.home)
        with keyed(web, first) as client:
            assert client.get("/api").json()["csrf"] is None
            second = make_key(web.home)
            assert client.get("/api").status_code == 401
        with keyed(web, second) as client:
            assert client.get("/api/people").json() == {"items": []}
            make_key(web.home, "--remove")
            assert client.get("/api").status_code == 401


def test_other_hosts_and_pages_are_refused_even_with_the_key(client: httpx.Client) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert refusal(client.get("/api/health", headers=headers)) == (403, "foreign_request")
        assert refusal(client.post("/api/dead/1/drop", headers=headers)) == (403, "foreign_request")


def test_change_with_the_cookie_needs_the_token_and_our_origin(web: WebProcess, signed: httpx.Client) -> None:
    token = signed.get("/api").json()["csrf"]
    path, ours = "/api/dead/999999/retry", {"Origin": web.url}
    assert refusal(signed.post(path, headers={TOKEN: token})) == (403, "foreign_request")
    for wrong in ({}, {TOKEN: ""}, {TOKEN: token[:-1]}):
        assert refusal(signed.post(path, headers={**ours, **wrong})) == (400, "bad_request")
    assert refusal(signed.post(path, headers={**ours, TOKEN: token})) == (404, "not_found")


@pytest.mark.contract("10.65")
def test_guests_groups_and_other_profiles_are_not_in_the_json(client: httpx.Client) -> None:
    with_own = ""
    for path in ("/api/health", "/api/sessions", "/api/sessions?page=2", f"/api/facts?q={SECRET}", "/api/dead"):
        text = client.get(path).text
        with_own += text
        assert [name for name in (*HIDDEN, "elsewhere") if f"of {name} is" in text] == [], path
    assert f"of {OWN.id} is" in with_own
    listed = [one["id"] for page in (1, 2) for one in client.get(f"/api/sessions?page={page}").json()["items"]]
    assert not {*HIDDEN, "elsewhere"} & set(listed)
    for name in (*HIDDEN, "elsewhere", "../work/state"):
        assert refusal(client.get(f"/api/sessions/{name}/timeline")) == (404, "not_found")
    hidden = [one for one in client.get("/api/dead").json()["items"] if one["session_id"] in HIDDEN]
    assert [one["text"] for one in hidden] == [None] * len(HIDDEN)


def test_facts_about_others_are_not_in_the_json(web: WebProcess, client: httpx.Client) -> None:
    with server_of(web) as server:
        [theirs] = hold(server, ["I own a zither."], about="17")
        [ours] = hold(server, ["I own a drum."])
    found = client.get("/api/facts", params={"q": "own"}).json()["items"]
    assert "I own a drum." in [one["text"] for one in found]
    assert client.get(f"/api/facts/{ours}").json()["text"] == "I own a drum."
    assert refusal(client.get(f"/api/facts/{theirs}")) == (404, "not_found")
    assert "zither" not in client.get("/api/people").text + json.dumps(found)


ODD = [
    "sessions?page=0", "sessions?page=x", f"sessions?page={'9' * 400}", "sessions/own/timeline?before=x",
    "sessions/own/timeline?before=-1", f"dead?limit={MAX_LIMIT + 1}", "dead?limit=0", "dead?after=x",
    "facts?kind=x", "facts?day=yesterday", "facts?after=x", "activity?span=century",
]  # fmt: skip


@pytest.mark.parametrize("path", ODD, ids=lambda path: str(path)[:50])
def test_error_of_an_invalid_request_names_the_allowed_values(client: httpx.Client, path: str) -> None:
    answer = client.get(f"/api/{path}")
    assert refusal(answer) == (400, "bad_request")
    assert DEFECT not in answer.text


def test_wrong_method_and_unknown_path_have_error_names(client: httpx.Client) -> None:
    assert refusal(client.post("/api/health")) == (405, "wrong_method")
    assert refusal(client.get("/api/dead/1/drop")) == (405, "wrong_method")
    assert refusal(client.get("/api/nowhere")) == (404, "not_found")
    assert refusal(client.post(f"/api/dead/{'9' * 400}/drop")) == (404, "not_found")


def test_pages_of_lists_have_no_gaps(client: httpx.Client) -> None:
    pages = [client.get(f"/api/sessions?page={number}").json() for number in (1, 2)]
    assert [page["has_more"] for page in pages] == [True, False]
    ids = [one["id"] for page in pages for one in page["items"]]
    assert len(ids) == len(set(ids)) == 46
    dead: list[int] = []
    after: int | None = 0
    while after is not None:
        page = client.get(f"/api/dead?limit=20&after={after}").json()
        assert len(page["items"]) <= 20
        dead += [one["id"] for one in page["items"]]
        after = page["after"]
    assert dead == sorted(set(dead))
    assert len(dead) == 46 + len(HIDDEN)


def test_dead_letter_is_retried_or_dropped_once(client: httpx.Client) -> None:
    first, second = [one["id"] for one in client.get("/api/dead?limit=2").json()["items"]]
    assert client.post(f"/api/dead/{first}/drop").json() == {"dropped": [first]}
    assert client.post(f"/api/dead/{second}/retry").json() == {"retried": [second]}
    for entry in (first, second):
        for act in ("drop", "retry"):
            assert refusal(client.post(f"/api/dead/{entry}/{act}")) == (404, "not_found")
    left = [one["id"] for one in client.get(f"/api/dead?limit={MAX_LIMIT}").json()["items"]]
    assert not {first, second} & set(left)


def test_every_route_is_in_the_documentation(client: httpx.Client) -> None:
    text = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")
    told = client.get("/api").json()["endpoints"]
    assert len(told) == len(api.routes())
    for line in told:
        assert f"| `{line}` |" in text
