"""Routes of signing in: for a minimal provider, and for Honcho."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from hermes.errors import ProviderError
from hermes.home import Home
from hermes.honcho.server import Machine
from hermes.honcho.web_sign_in import WebSignIn
from hermes.memory.connect_routes import DONE, FOREIGN, connect_routes
from hermes.memory.provider import Connect, ConnectSource, ConnectStatus
from tests.honcho.configuring import Machine as Place
from tests.honcho.issuer import Issuer

pytestmark = pytest.mark.contract("8.3")


class Postbox:
    """A provider whose sign-in is a letter."""

    def __init__(self) -> None:
        self._state, self._letter, self._began = "", "", ""

    def begin(self, source: ConnectSource) -> str:
        self._state, self._began = secrets.token_urlsafe(8), source
        return f"https://post.example/write?state={self._state}"

    def status(self) -> ConnectStatus:
        if self._letter:
            return ConnectStatus("connected", f"a letter from {self._letter}, by {self._began}")
        return ConnectStatus("waiting" if self._state else "idle")

    def callback(self, query: Mapping[str, str]) -> None:
        if not self._state or query.get("state") != self._state:
            raise ProviderError("this letter is not for us", hint="")
        self._letter, self._state = query["sender"], ""

    def disconnect(self) -> None:
        self._letter = self._state = ""


def client_of(**connects: Connect) -> TestClient:
    """Return a client; `name` and `name__profile` are the existing sign-ins."""
    found = {tuple((*name.split("__"), "")[:2]): connect for name, connect in connects.items()}
    return TestClient(Starlette(routes=connect_routes(lambda profile, name: found.get((name, profile)))))


def test_any_provider_is_signed_in_to_and_out_of() -> None:
    client, at = client_of(post=Postbox()), "/api/memory/providers/post/oauth"
    assert client.get(f"{at}/status").json() == {"state": "idle", "detail": ""}
    page = client.post(f"{at}/begin?source=desktop").json()["url"]
    assert client.get(f"{at}/status").json()["state"] == "waiting"
    state = dict(parse_qsl(urlsplit(page).query))["state"]
    wrong = client.get(f"{at}/callback", params={"state": "other", "sender": "eve"})
    assert (wrong.status_code, wrong.json()) == (400, {"error": "this letter is not for us"})
    came = client.get(f"{at}/callback", params={"state": state, "sender": "ann"})
    assert (came.status_code, came.text, came.headers["cache-control"]) == (200, DONE, "no-store")
    assert client.get(f"{at}/callback", params={"state": state, "sender": "eve"}).status_code == 400, "once"
    told = {"state": "connected", "detail": "a letter from ann, by desktop"}
    assert client.get(f"{at}/status").json() == told
    assert client.post(f"{at}/disconnect").json()["state"] == "idle"


def test_profiles_and_providers_are_apart() -> None:
    client = client_of(post=Postbox(), post__work=Postbox())
    client.post("/api/memory/providers/post/oauth/begin?profile=work")
    states = [client.get(f"/api/memory/providers/post/oauth/status{which}").json() for which in ("", "?profile=work")]
    assert [one["state"] for one in states] == ["idle", "waiting"]
    for path in ("files/oauth/status", "post/oauth/status?profile=other"):
        assert client.get(f"/api/memory/providers/{path}").status_code == 404


@pytest.mark.parametrize("act", ["begin", "disconnect"])
def test_another_page_or_a_link_begins_and_ends_nothing(act: str) -> None:
    client, at = client_of(post=Postbox()), "/api/memory/providers/post/oauth"
    client.post(f"{at}/begin")
    refused = client.post(f"{at}/{act}", headers={"Sec-Fetch-Site": "cross-site"})
    assert (refused.status_code, refused.json()) == (400, {"error": FOREIGN})
    assert client.get(f"{at}/{act}").status_code == 405
    assert client.get(f"{at}/status").json()["state"] == "waiting"
    assert client.post(f"{at}/begin?source=elsewhere").status_code == 400


def test_honcho_is_signed_in_to_by_the_same_routes(tmp_path: Path) -> None:
    at = "/api/memory/providers/honcho/oauth"
    with Issuer() as issuer:
        place = Place(tmp_path)
        place.write({"baseUrl": issuer.url})
        connect = WebSignIn(Machine(Home(place.home), {"HOME": str(place.folder)}))
        client = client_of(honcho=connect)
        page = client.post(f"{at}/begin").json()["url"]
        assert page.startswith(f"{issuer.url}/authorize?")
        wrong = client.get(f"{at}/callback", params={"state": "other", "code": "x"})
        assert wrong.status_code == 400
        told = dict(parse_qsl(urlsplit(page).query))
        issuer._codes["code"] = (told["code_challenge"], told["redirect_uri"], told["client_id"])
        came = client.get(f"{at}/callback", params={"state": told["state"], "code": "code"})
        assert (came.status_code, came.text) == (200, DONE)
        end = time.monotonic() + 30
        while (found := client.get(f"{at}/status").json())["state"] == "waiting" and time.monotonic() < end:
            time.sleep(0.01)
        assert found == {"state": "connected", "detail": "OAuth (hermes-agent, token valid 60m)"}
        assert client.post(f"{at}/disconnect").json() == {"state": "idle", "detail": f"at {issuer.url}"}
        assert len(issuer.revoked) == 1
