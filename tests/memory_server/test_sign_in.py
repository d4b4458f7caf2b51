"""Sign-in over HTTP: consent, redirects, and the response to each mistake."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from hermes.memory_server import limits
from hermes.memory_server.api.oauth import DEVICE_GRANT, METADATA
from hermes.memory_server.api.sign_in_pages import STYLE
from tests.conftest import Ran
from tests.memory_server.serving import Served
from tests.memory_server.signing import (
    ADMIN_KEY,
    CALLBACK,
    LoopbackClient,
    consent_form,
    error_of,
    label_on,
    new_verifier,
    parameters_of,
    poll_form,
    sign_in,
)

pytestmark = [pytest.mark.processes, pytest.mark.contract("8.5")]
Cli = Callable[..., Ran]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_metadata_names_every_endpoint_and_grant(guarded: Served) -> None:
    with guarded.client() as client:
        told = client.get(METADATA).json()
    assert told["issuer"] == guarded.url
    assert told["authorization_endpoint"] == f"{guarded.url}/authorize"
    assert told["token_endpoint"] == f"{guarded.url}/oauth/token"
    assert told["device_authorization_endpoint"] == f"{guarded.url}/oauth/device_authorization"
    assert told["revocation_endpoint"] == f"{guarded.url}/oauth/revoke"
    assert set(told["grant_types_supported"]) == {"authorization_code", "refresh_token", DEVICE_GRANT}
    assert told["code_challenge_methods_supported"] == ["S256"]


def test_without_keys_there_is_nothing_to_sign_in_to(server: Served) -> None:
    with server.client() as client:
        for path in (METADATA, "/authorize", "/device", STYLE):
            assert client.get(path).status_code == 404
        for path in ("/authorize", "/device", "/oauth/token", "/oauth/device_authorization", "/oauth/revoke"):
            assert client.post(path, data={"client_id": "hermes-agent"}).status_code == 404


def test_token_opens_its_workspace_and_no_other(guarded: Served, workspace: str) -> None:
    tokens = sign_in(guarded, workspace, person="Nina Müller")
    assert tokens["access_token"].startswith("hch-at-")
    assert tokens["refresh_token"].startswith("hch-rt-")
    assert tokens["config"] == {"peerName": "Nina Müller", "workspace": workspace}
    assert (tokens["scope"], tokens["token_type"], tokens["expires_in"]) == ("write", "Bearer", 3600)
    with guarded.client(ADMIN_KEY) as admin, guarded.client(tokens["access_token"]) as client:
        admin.post("/v3/workspaces", json={"id": f"{workspace}-other"}).raise_for_status()
        assert client.post(f"/v3/workspaces/{workspace}/peers", json={"id": "nina"}).is_success
        listed = client.post("/v3/workspaces/list", json={}).json()
        assert [item["id"] for item in listed["items"]] == [workspace]
        for path, body in (
            (f"/v3/workspaces/{workspace}-other/peers", {"id": "nina"}),
            ("/v3/workspaces", {"id": f"{workspace}-other"}),
            ("/v3/keys", {}),
        ):
            assert client.post(path, json=body).status_code == 401
        refused = client.get("/v3/workspaces/x/webhooks", headers=bearer("hch-at-unknown"))
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == 'Bearer error="invalid_token"'


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"state": None}, "invalid_request"),
        ({"scope": "admin"}, "invalid_scope"),
        ({"source": "<b>"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
    ],
)
def test_client_is_told_of_its_mistake_with_its_state(guarded: Served, changed: dict[str, str], error: str) -> None:
    asking = LoopbackClient()
    with guarded.client() as browser:
        answer = browser.get(asking.link(guarded.url, **changed))
    assert answer.headers["location"].startswith(f"{CALLBACK}?")
    told = parameters_of(answer)
    assert told["error"] == error
    assert told.get("state") == (None if changed == {"state": None} else asking.state)


@pytest.mark.parametrize(
    "redirect",
    [
        "http://127.0.0.1:8765/other",
        "http://localhost:8765/callback",
        "http://127.0.0.1:8765/callback?more=1",
        "http://127.0.0.1:8765/callback#part",
        "http://127.0.0.1@evil.example/callback",
        "http://user@127.0.0.1/callback",
        "http://127.0.0.1.evil.example/callback",
        "https://127.0.0.1:8765/callback",
        "http://127.0.0.1:99999/callback",
        "https://evil.example/callback",
        "",
    ],
)
def test_nobody_is_sent_to_an_address_that_is_not_the_clients(guarded: Served, redirect: str) -> None:
    with guarded.client() as browser:
        answer = browser.get(LoopbackClient(redirect=redirect).link(guarded.url))
    assert answer.status_code == 422
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "redirect", ["http://127.0.0.1/callback", "http://127.0.0.1:1/callback", "http://[::1]:65535/callback"]
)
def test_loopback_redirect_may_have_any_port(guarded: Served, redirect: str) -> None:
    with guarded.client() as browser:
        assert browser.get(LoopbackClient(redirect=redirect).link(guarded.url)).status_code == 200


def test_code_is_exchanged_once_by_the_client_that_asked(guarded: Served, workspace: str) -> None:
    asking = LoopbackClient()
    with guarded.client() as browser:
        form = consent_form(browser.get(asking.link(guarded.url)).text, workspace=workspace)
        told = parameters_of(browser.post("/authorize", data=form, headers={"Origin": guarded.url}))
        assert told["state"] == asking.state
        code = told["code"]
        wrong = [
            asking.exchange(code, code_verifier=new_verifier()),
            asking.exchange(code, code_verifier="short"),
            asking.exchange(code, client_id="honcho-cli"),
            asking.exchange(code, redirect_uri="http://127.0.0.1:1/callback"),
            asking.exchange("é" + code),
            asking.exchange(code[:-1]),
        ]
        assert {error_of(browser.post("/oauth/token", data=data)) for data in wrong} == {"invalid_grant"}
        # A second click on Allow finds the same code: the browser drops the first answer.
        again = browser.post("/authorize", data=form, headers={"Origin": guarded.url})
        assert parameters_of(again)["code"] == code
        tokens = browser.post("/oauth/token", data=asking.exchange(code)).json()
        opened = f"/v3/workspaces/{workspace}/queue/status"
        assert browser.get(opened, headers=bearer(tokens["access_token"])).is_success
        assert error_of(browser.post("/oauth/token", data=asking.exchange(code))) == "invalid_grant"
        assert browser.get(opened, headers=bearer(tokens["access_token"])).status_code == 401
        assert error_of(browser.post("/oauth/token", data=asking.renewal(tokens["refresh_token"]))) == "invalid_grant"


@pytest.mark.parametrize(
    ("data", "error", "status"),
    [
        ({"client_id": "hermes-agent"}, "unsupported_grant_type", 400),
        ({"client_id": "hermes-agent", "grant_type": "password"}, "unsupported_grant_type", 400),
        ({"client_id": "hermes-agent", "grant_type": "authorization_code"}, "invalid_request", 400),
        ({"client_id": "hermes-agent", "grant_type": "refresh_token", "refresh_token": "x"}, "invalid_grant", 400),
        ({"client_id": "nobody", "grant_type": "refresh_token", "refresh_token": "x"}, "invalid_client", 401),
        ({"grant_type": "refresh_token", "refresh_token": "x" * 3000}, "invalid_request", 400),
        (poll_form("unknown"), "invalid_grant", 400),
    ],
)
def test_token_endpoint_refuses_in_the_words_of_oauth(
    guarded: Served, data: dict[str, str], error: str, status: int
) -> None:
    with guarded.client() as client:
        answer = client.post("/oauth/token", data=data)
    assert (error_of(answer), answer.status_code) == (error, status)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"client_id=hermes-agent&client_id=x", None),
        (b"client_id=%ff", None),
        (b"client_id=a%00", None),
        (b"x" * (limits.FORM_BYTES + 1), None),
        (b"&".join(b"a%d=1" % number for number in range(40)), None),
        (b'{"client_id": "hermes-agent"}', "application/json"),
        (b"", "text/plain"),
    ],
)
def test_form_that_cannot_be_read_is_refused(guarded: Served, content: bytes, kind: str | None) -> None:
    with guarded.client() as client:
        for path in ("/oauth/token", "/oauth/revoke", "/oauth/device_authorization"):
            headers = {"Content-Type": kind or "application/x-www-form-urlencoded"}
            assert error_of(client.post(path, content=content, headers=headers)) == "invalid_request"


def test_form_of_another_page_or_program_changes_nothing(guarded: Served, workspace: str) -> None:
    """The code is right, and the origin of the form is the reason for the refusal."""
    with guarded.client() as browser, guarded.client() as other:
        form = consent_form(browser.get(LoopbackClient().link(guarded.url)).text, workspace=workspace)
        own = {"Origin": guarded.url}
        foreign: list[dict[str, str]] = [
            {},
            {"Origin": "null"},
            {"Origin": "https://evil.example"},
            {"Origin": guarded.url.replace("127.0.0.1", "localhost")},
            {**own, "Sec-Fetch-Site": "cross-site"},
            {**own, "Host": "evil.example"},
            {"Origin": "http://evil.example", "Host": "evil.example"},
        ]
        assert {browser.post("/authorize", data=form, headers=headers).status_code for headers in foreign} == {403}
        assert other.post("/authorize", data=form, headers=own).status_code == 403  # it has not the browser's cookie
        assert browser.post("/authorize", data={**form, "token": "0" * 64}, headers=own).status_code == 403
        hidden = [{"Sec-Fetch-Dest": dest} for dest in ("iframe", "image", "script")]
        for headers in (*hidden, {"Host": "evil.example"}):
            assert browser.get(LoopbackClient().link(guarded.url), headers=headers).status_code == 403
            assert browser.get("/device", headers=headers).status_code == 403
        assert parameters_of(browser.post("/authorize", data=form, headers=own))["code"]


def test_pages_cannot_be_framed_cached_or_run_anything(guarded: Served) -> None:
    with guarded.client() as browser:
        for path in (LoopbackClient().link(guarded.url), f"{guarded.url}/device", f"{guarded.url}/authorize"):
            headers = browser.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")


@pytest.mark.parametrize(
    "chosen", [{"workspace": "a b"}, {"workspace": ""}, {"person": "x" * 101}, {"person": "a\x07b"}]
)
def test_what_cannot_be_a_name_is_asked_for_again(guarded: Served, workspace: str, chosen: dict[str, str]) -> None:
    with guarded.client() as browser:
        page = browser.get(LoopbackClient().link(guarded.url)).text
        form = consent_form(page, **{"workspace": workspace, **chosen})
        asked_again = browser.post("/authorize", data=form, headers={"Origin": guarded.url})
        assert asked_again.status_code == 422
        form = consent_form(asked_again.text, workspace=workspace)
        assert parameters_of(browser.post("/authorize", data=form, headers={"Origin": guarded.url}))["code"]


def test_what_a_client_sends_is_text_on_the_page(guarded: Served) -> None:
    with guarded.client() as browser:
        page = browser.get(LoopbackClient().link(guarded.url, config_path='"><script>alert(1)</script>\u202e')).text
        typed = browser.get("/device", params={"user_code": '"><b>'}).text
    assert "<script" not in page
    assert "\u202e" not in page
    assert "<b>" not in typed


def test_page_names_no_address_that_a_header_made_up(guarded: Served) -> None:
    with guarded.client() as client:
        headers = {"X-Forwarded-For": "your own laptop"}
        page = client.get(LoopbackClient().link(guarded.url), headers=headers).text
    assert "your own laptop" not in page
    assert "<dd>unknown</dd>" in page


def test_refresh_token_of_another_client_is_refused_and_stays_good(guarded: Served, workspace: str) -> None:
    tokens = sign_in(guarded, workspace)
    with guarded.client() as client:
        theirs = LoopbackClient(name="honcho-cli").renewal(tokens["refresh_token"])
        assert error_of(client.post("/oauth/token", data=theirs)) == "invalid_grant"
        client.post("/oauth/revoke", data={"client_id": "honcho-cli", "token": tokens["refresh_token"]})
        assert client.post("/oauth/token", data=LoopbackClient().renewal(tokens["refresh_token"])).is_success


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
def test_revoked_token_ends_the_whole_grant(guarded: Served, workspace: str, kind: str) -> None:
    tokens = sign_in(guarded, workspace)
    with guarded.client() as client:
        for _ in range(2):  # one that opens nothing any more is no error
            done = client.post("/oauth/revoke", data={"client_id": "hermes-agent", "token": tokens[kind]})
            assert done.status_code == 200
        assert error_of(client.post("/oauth/revoke", data={"client_id": "hermes-agent"})) == "invalid_request"
        path = f"/v3/workspaces/{workspace}/queue/status"
        assert client.get(path, headers=bearer(tokens["access_token"])).status_code == 401
        renewal = LoopbackClient().renewal(tokens["refresh_token"])
        assert error_of(client.post("/oauth/token", data=renewal)) == "invalid_grant"


def test_deleted_workspace_takes_its_grants_along(guarded: Served, workspace: str, hermes: Cli) -> None:
    tokens = sign_in(guarded, workspace)
    other = sign_in(guarded, f"{workspace}-other")
    with guarded.client(ADMIN_KEY) as admin:
        assert admin.delete(f"/v3/workspaces/{workspace}").status_code == 202
        admin.post("/v3/workspaces", json={"id": workspace}).raise_for_status()
        path = f"/v3/workspaces/{workspace}/queue/status"
        assert admin.get(path, headers=bearer(tokens["access_token"])).status_code == 401
        renewal = LoopbackClient().renewal(tokens["refresh_token"])
        assert error_of(admin.post("/oauth/token", data=renewal)) == "invalid_grant"
        path = f"/v3/workspaces/{workspace}-other/queue/status"
        assert admin.get(path, headers=bearer(other["access_token"])).is_success
    listed = hermes("memory", "clients", "grants", *guarded.chosen).out
    assert f"{workspace}-other" in listed
    assert f"{workspace} " not in listed


def test_owner_lists_and_revokes_grants(guarded: Served, workspace: str, hermes: Cli) -> None:
    tokens = sign_in(guarded, workspace, person="Nina")
    data = guarded.chosen
    row = next(line for line in hermes("memory", "clients", "grants", *data).out.splitlines() if workspace in line)
    assert "hermes-agent" in row
    assert "Nina" in row
    assert hermes("memory", "clients", "revoke", row.split()[0], *data).code == 0
    with guarded.client(tokens["access_token"]) as client:
        assert client.get(f"/v3/workspaces/{workspace}/queue/status").status_code == 401
    again = hermes("memory", "clients", "revoke", row.split()[0], *data)
    assert (again.code, "signed in" in again.err) == (2, True)


def test_owner_adds_and_removes_clients(guarded: Served, workspace: str, hermes: Cli) -> None:
    data = guarded.chosen
    exact = "https://app.example/back?from=memory"
    name = f"editor-{workspace[-8:]}"
    asking = LoopbackClient(name=name, redirect=exact)
    with guarded.client() as browser:
        assert browser.get(asking.link(guarded.url)).status_code == 422
        assert hermes("memory", "clients", "add", name, "--redirect", exact, *data).code == 0
        assert hermes("memory", "clients", "add", name, *data).code == 2
        assert name in hermes("memory", "clients", "list", *data).out
        form = consent_form(browser.get(asking.link(guarded.url)).text, workspace=workspace)
        answer = browser.post("/authorize", data=form, headers={"Origin": guarded.url})
        assert answer.headers["location"].startswith(f"{exact}&code=")
        tokens = browser.post("/oauth/token", data=asking.exchange(parameters_of(answer)["code"])).json()
        near = LoopbackClient(name=name, redirect="https://app.example:444/back?from=memory")
        assert browser.get(near.link(guarded.url)).status_code == 422
        assert "1 grant revoked" in hermes("memory", "clients", "remove", name, *data).out
        assert error_of(browser.post("/oauth/token", data=asking.renewal(tokens["refresh_token"]))) == "invalid_client"
        path = f"/v3/workspaces/{workspace}/queue/status"
        assert browser.get(path, headers=bearer(tokens["access_token"])).status_code == 401
    assert hermes("memory", "clients", "remove", "hermes-agent", *data).code == 2


@pytest.mark.parametrize(
    "url", ["http://app.example/", "javascript:alert(1)", "https://a@b.example/", "https://a.example/#x", "x"]
)
def test_url_that_no_browser_should_be_sent_to_is_no_redirect(guarded: Served, hermes: Cli, url: str) -> None:
    added = hermes("memory", "clients", "add", "program", "--redirect", url, *guarded.chosen)
    assert (added.code, "redirect URL" in added.err) == (2, True)


def test_database_holds_no_token_or_code_as_text(guarded: Served, workspace: str, hermes: Cli) -> None:
    tokens = sign_in(guarded, workspace)
    with guarded.client() as client:
        device = client.post("/oauth/device_authorization", data={"client_id": "honcho-cli"}).json()
        page = client.get(LoopbackClient().link(guarded.url)).text
        approved = hermes("memory", "approve", label_on(page), "--json", *guarded.chosen)
        code = json.loads(approved.out)["code"]
        form = consent_form(page, workspace=workspace, code=code)
        redirect = parameters_of(client.post("/authorize", data=form, headers={"Origin": guarded.url}))
    told = [tokens["access_token"], tokens["refresh_token"], device["device_code"], device["user_code"], code]
    with closing(sqlite3.connect(guarded.folder / "memory.db")) as connection:
        dump = "\n".join(connection.iterdump())
    logs = "".join(path.read_text() for path in guarded.folder.rglob("*.log"))
    assert "/authorize" in logs
    for secret in (*told, redirect["code"]):
        for written in (secret, secret.replace("-", "")):
            assert written not in dump
            assert written not in logs
