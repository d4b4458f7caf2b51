"""Sign-in to a real server: the requests of a client, and the owner's steps on the pages."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

from hermes.memory_server.api.auth import ADMIN, make_key
from hermes.memory_server.api.oauth import DEVICE_GRANT
from tests.memory_server.serving import SECRET, Served

CALLBACK = "http://127.0.0.1:8765/callback"
ADMIN_KEY = make_key(ADMIN, SECRET, 0, None)


def new_verifier() -> str:
    return secrets.token_urlsafe(48)


def challenge_of(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


@dataclass
class LoopbackClient:
    """A public client with a redirect URL on this machine."""

    name: str = "hermes-agent"
    redirect: str = CALLBACK
    state: str = field(default_factory=lambda: secrets.token_urlsafe(8))
    verifier: str = field(default_factory=new_verifier)

    def query(self, **changed: str | None) -> dict[str, str]:
        """Return the parameters of its authorize link; a value of None removes a parameter."""
        usual: dict[str, str | None] = {
            "client_id": self.name,
            "redirect_uri": self.redirect,
            "response_type": "code",
            "scope": "write",
            "code_challenge": challenge_of(self.verifier),
            "code_challenge_method": "S256",
            "state": self.state,
            "source": "cli",
            "config_path": "~/.hermes/honcho.json",
        }
        return {name: value for name, value in {**usual, **changed}.items() if value is not None}

    def link(self, url: str, **changed: str | None) -> str:
        return f"{url}/authorize?{urlencode(self.query(**changed))}"

    def exchange(self, code: str, **changed: str) -> dict[str, str]:
        """Return the form that exchanges a code."""
        usual = {"grant_type": "authorization_code", "client_id": self.name, "code": code}
        return {**usual, "redirect_uri": self.redirect, "code_verifier": self.verifier, **changed}

    def renewal(self, token: str) -> dict[str, str]:
        """Return the form that exchanges a refresh token."""
        return {"grant_type": "refresh_token", "client_id": self.name, "refresh_token": token}


def poll_form(device_code: str, name: str = "honcho-cli") -> dict[str, str]:
    """Return the form with which a device polls for its tokens."""
    return {"grant_type": DEVICE_GRANT, "client_id": name, "device_code": device_code}


def hidden_fields(page: str) -> dict[str, str]:
    return {name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)}


def label_on(page: str) -> str:
    """Return the four letters with which `hermes memory approve` identifies the request of a page."""
    found = re.search(r"hermes memory approve (\w{4})<", page)
    assert found
    return found[1]


def consent_form(page: str, code: str = ADMIN_KEY, **changed: str) -> dict[str, str]:
    """Return the form of a consent page, completed as the owner would."""
    return {**hidden_fields(page), "decision": "allow", "workspace": "hermes", "code": code, **changed}


def parameters_of(answer: httpx.Response) -> dict[str, str]:
    """Return the parameters of the redirect to the client."""
    assert answer.status_code == 303, answer.text
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query))


def sign_in(served: Served, workspace: str, client: LoopbackClient | None = None, **chosen: str) -> dict[str, Any]:
    """Sign a client in with the admin key, and return the response with its tokens."""
    client = client or LoopbackClient()
    with served.client() as browser:
        page = browser.get(client.link(served.url)).text
        form = consent_form(page, workspace=workspace, **chosen)
        answer = browser.post("/authorize", data=form, headers={"Origin": served.url})
        given = browser.post("/oauth/token", data=client.exchange(parameters_of(answer)["code"]))
        assert given.status_code == 200, given.text
        tokens: dict[str, Any] = given.json()
        return tokens


def error_of(answer: httpx.Response) -> str:
    """Return the error code of a refusal in the form of RFC 6749."""
    told: Mapping[str, str] = answer.json()
    assert answer.status_code >= 400
    assert told["error_description"]
    assert answer.headers["cache-control"] == "no-store"
    return told["error"]
