"""Signing in from a terminal: browser, device code, pasted address; what is stored, and what ends it."""

from __future__ import annotations

import json
import socket
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from hermes.errors import ProviderError, UsageError
from hermes.honcho.browser_sign_in import DENIED, DONE, ENDINGS, FOREIGN, OVER, PORT, BrowserSignIn, sign_in_by_code
from hermes.honcho.oauth import Endpoints, TokenError, find_endpoints
from hermes.honcho.sign_in import OTHER_WORKSPACE
from tests.honcho.asking import Person
from tests.honcho.between import until_it_is_so
from tests.honcho.issuer import DEVICE_GRANT, Fault, Issuer
from tests.honcho.setting_up import USE, Hermes, block, document, provider, status, write
from tests.honcho.signing_in import visiting
from tests.plain_http import PLAIN

VARIABLES = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")


@pytest.fixture(autouse=True)
def _no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as made:
        yield made


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Response]:
    """A browser on this machine, and the pages that it ended at."""
    pages: list[httpx.Response] = []

    def visit(url: str) -> bool:
        pages.append(visiting(url))
        return True

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", visit)
    return pages


@pytest.fixture
def here(home: Path, hermes: Hermes, issuer: Issuer) -> Path:
    """A signed-out home whose Honcho is the issuer."""
    assert hermes("config", "set", "memory.provider", "honcho").code == 0
    write(home, {"baseUrl": issuer.url, "peerName": "ann", "custom": 7})
    return home


def endpoints(issuer: Issuer) -> Endpoints:
    return find_endpoints(issuer.url, {})


def with_state(waiting: BrowserSignIn, **query: str) -> str:
    state = parse_qs(urlsplit(waiting.url).query)["state"][0]
    return f"{waiting.redirect_uri}?{urlencode({'state': state, **query})}"


@pytest.mark.contract("8.1", "8.4")
def test_login_with_a_browser_stores_the_grant(
    here: Path, hermes: Hermes, issuer: Issuer, browser: list[httpx.Response]
) -> None:
    ran = hermes("honcho", "login")
    assert ran.code == 0, ran.err
    found = block(here)
    assert found["apiKey"] in issuer.issued
    assert {**found["oauth"], "refreshToken": "", "expiresAt": 0, "grantedAt": 0} == {
        "refreshToken": "",
        "expiresAt": 0,
        "grantedAt": 0,
        "clientId": "hermes-agent",
        "tokenEndpoint": f"{issuer.url}/oauth/token",
        "scope": "write",
        "tokenType": "Bearer",
        "server": issuer.url,
    }
    assert (document(here)["custom"], (here / "honcho.json").stat().st_mode & 0o777) == (7, 0o600)
    until_it_is_so(lambda: [DONE in page.text for page in browser] == [True])
    assert str(browser[0].history[0].url) in ran.out.splitlines(), "an address is only useful whole"
    told = status(hermes)
    assert told["auth"] == "OAuth (hermes-agent, token valid 60m), host block"
    assert told["connection"] == "it answers"


@pytest.mark.contract("8.3")
def test_login_for_another_workspace_than_the_one_in_force_says_so(
    here: Path, hermes: Hermes, issuer: Issuer, browser: list[httpx.Response]
) -> None:
    write(here, {"baseUrl": issuer.url, "hosts": {"hermes": {"workspace": "old"}}})
    issuer.config = {"workspace": "garden"}
    told = " ".join(hermes("honcho", "login").out.split())
    assert OTHER_WORKSPACE.format(chosen="garden", used="old") in told
    assert block(here)["workspace"] == "old"
    until_it_is_so(lambda: len(browser) == 1)
    issuer.end_tokens()
    assert status(hermes)["connection"].startswith("it answers, but refuses the sign-in for the workspace old;")
    assert hermes("memory", "setup", "honcho", "--yes", "--unchecked", "--workspace", "garden").code == 0
    assert "Note: on the page" not in hermes("honcho", "login").out


@pytest.mark.contract("8.1")
def test_page_is_asked_with_pkce_a_source_and_a_path_below_home(
    here: Path, hermes: Hermes, issuer: Issuer, browser: list[httpx.Response]
) -> None:
    assert hermes("honcho", "login").code == 0
    until_it_is_so(lambda: len(browser) == 1)
    query = parse_qs(urlsplit(str(browser[0].history[0].url)).query)
    assert {name: query[name] for name in ("response_type", "client_id", "scope", "source", "config_path")} == {
        "response_type": ["code"],
        "client_id": ["hermes-agent"],
        "scope": ["write"],
        "source": ["cli"],
        "config_path": ["honcho.json"],
    }
    assert query["code_challenge_method"] == ["S256"]
    assert query["redirect_uri"][0].startswith("http://127.0.0.1:")
    verifier = next(form["code_verifier"] for _, _, form in issuer.asked if "code_verifier" in form)
    assert verifier not in str(browser[0].history[0].url)


@pytest.mark.contract("8.1")
def test_variables_name_the_endpoints_and_the_client(issuer: Issuer) -> None:
    env = {"HONCHO_OAUTH_CLIENT_ID": "other", "HONCHO_OAUTH_SCOPE": "read", "HONCHO_OAUTH_DASHBOARD": "https://d.org/"}
    found = find_endpoints(issuer.url, env)
    assert (found.client_id, found.scope, found.authorize) == ("other", "read", "https://d.org/authorize")
    exact = {"HONCHO_OAUTH_AUTHORIZE_URL": "https://a.org/x", "HONCHO_OAUTH_TOKEN_URL": "https://t.org/y"}
    found = find_endpoints(issuer.url, {**env, **exact})
    assert (found.authorize, found.token) == ("https://a.org/x", "https://t.org/y")


@pytest.mark.contract("8.1")
def test_server_that_says_nothing_has_the_addresses_of_its_kind(issuer: Issuer) -> None:
    issuer.has_metadata = False
    found = find_endpoints(issuer.url, {})
    assert (found.authorize, found.token) == ("http://localhost:3000/authorize", f"{issuer.url}/oauth/token")
    assert (found.device, found.is_offered) == ("", False)


@pytest.mark.contract("8.1")
def test_login_where_there_is_no_page_ends_at_once(
    here: Path, hermes: Hermes, issuer: Issuer, browser: list[httpx.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.has_metadata = False
    monkeypatch.setenv("HONCHO_OAUTH_DASHBOARD", f"{issuer.url}/nowhere")
    for way in ((), ("--paste",)):
        ran = hermes("honcho", "login", *way)
        assert (ran.code, browser) == (1, [])
        assert f"there is no page at {issuer.url}/nowhere/authorize" in " ".join(ran.err.split())
        assert "takes an API key instead" in ran.err
    monkeypatch.delenv("HONCHO_OAUTH_DASHBOARD")
    monkeypatch.setenv("HONCHO_OAUTH_AUTHORIZE_URL", f"{issuer.url}/authorize")
    assert hermes("honcho", "login").code == 0


@pytest.mark.contract("8.1")
def test_endpoint_of_another_origin_gets_no_secret(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("https://evil.example/t", f"{issuer.url}@evil.example/t", "file:///etc/passwd", "https://[", 7):
        told = {**issuer._metadata(), "token_endpoint": url, "revocation_endpoint": url}
        monkeypatch.setattr(issuer, "_metadata", lambda told=told: told)
        found = find_endpoints(issuer.url, {})
        assert (found.token, found.revoke) == (f"{issuer.url}/oauth/token", "")


@pytest.mark.contract("8.1")
def test_port_that_is_taken_is_replaced_by_another(issuer: Issuer) -> None:
    with socket.socket() as holder:
        try:
            holder.bind(("127.0.0.1", PORT))
            holder.listen()
        except OSError:
            pass  # another program holds it: that is as good
        with BrowserSignIn(endpoints(issuer), "cli", "x") as waiting:
            assert urlsplit(waiting.redirect_uri).port != PORT
            assert DONE in visiting(waiting.url).text
            assert waiting.finish(10).access_token in issuer.issued


@pytest.mark.contract("8.1")
def test_foreign_answers_do_not_end_the_wait_and_the_right_one_counts_once(issuer: Issuer) -> None:
    with BrowserSignIn(endpoints(issuer), "cli", "x") as waiting:
        base = waiting.redirect_uri
        for address, words in (
            (f"{base}?code=x&state=wrong", FOREIGN),
            (f"{base}?code=x", FOREIGN),
            (f"{base}?error=access_denied&state=wrong", FOREIGN),
            (with_state(waiting), FOREIGN),
            (with_state(waiting, code="x" * 5_000), FOREIGN),
        ):
            page = visiting(address)
            assert (page.status_code, words in page.text) == (400, True)
        assert visiting(base.replace("/callback", "/other")).status_code == 404
        stranger = httpx.get(with_state(waiting, code="x"), headers={"Host": "evil.example"}, verify=PLAIN)
        assert stranger.status_code == 404
        assert DONE in visiting(waiting.url).text
        for again in (with_state(waiting, code="another"), with_state(waiting, error="access_denied")):
            assert OVER in visiting(again).text
        assert waiting.finish(10).access_token in issuer.issued
    with pytest.raises(httpx.ConnectError):
        visiting(with_state(waiting, code="late"))


@pytest.mark.contract("8.1")
@pytest.mark.parametrize("named", ["state", "no state"])
def test_error_in_the_callback_ends_the_wait(issuer: Issuer, named: str) -> None:
    with BrowserSignIn(endpoints(issuer), "cli", "x") as waiting:
        told = {"error": "access_denied", "error_description": "not\x1b[31m now"}
        bare = f"{waiting.redirect_uri}?{urlencode(told)}"
        assert DENIED in visiting(with_state(waiting, **told) if named == "state" else bare).text
        with pytest.raises(TokenError, match=r"declined \(access_denied not  ?\[31m now\)"):
            waiting.finish(10)


@pytest.mark.contract("8.1")
def test_code_of_another_challenge_is_worth_nothing(issuer: Issuer) -> None:
    with BrowserSignIn(endpoints(issuer), "cli", "x") as other, BrowserSignIn(endpoints(issuer), "cli", "x") as ours:
        came = httpx.get(other.url, follow_redirects=False, verify=PLAIN).headers["Location"]
        visiting(with_state(ours, code=parse_qs(urlsplit(came).query)["code"][0]))
        with pytest.raises(TokenError, match="invalid_grant"):
            ours.finish(10)


@pytest.mark.contract("8.1")
def test_nobody_comes_and_the_wait_ends(issuer: Issuer) -> None:
    with BrowserSignIn(endpoints(issuer), "cli", "x") as waiting, pytest.raises(TokenError, match="nobody signed in"):
        waiting.finish(0.05)


@pytest.mark.contract("8.1")
def test_denied_login_stores_nothing(here: Path, hermes: Hermes, issuer: Issuer, browser: list[httpx.Response]) -> None:
    before, issuer.is_approved = document(here), False
    ran = hermes("honcho", "login")
    assert (ran.code, "the sign-in was declined (access_denied)" in ran.err) == (1, True)
    assert document(here) == before
    until_it_is_so(lambda: len(browser) == 1)


@pytest.mark.contract("8.1")
def test_device_code_is_chosen_where_no_browser_can_open(
    here: Path, hermes: Hermes, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 22")
    issuer.on_pending = lambda: issuer.decide(allowed=True)
    ran = hermes("honcho", "login")
    assert ran.code == 0, ran.err
    assert f"Open {issuer.url}/device in any browser" in " ".join(ran.out.split())
    assert "WDJB-MJHT" in ran.out
    assert block(here)["apiKey"] in issuer.issued
    begun = next(form for _, path, form in issuer.asked if path == "/oauth/device_authorization")
    assert begun == {"client_id": "hermes-agent", "scope": "write", "source": "cli"}


@pytest.mark.contract("8.1")
def test_device_polls_more_slowly_when_told_and_ends_with_the_answer(issuer: Issuer) -> None:
    faults: Iterator[Fault | None] = iter((None, "slow_down", "500", None))
    pauses: list[float] = []
    issuer.fault = lambda kind: next(faults, None) if kind.endswith("device_code") else None

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            issuer.decide(allowed=False)

    with pytest.raises(TokenError, match="the sign-in was declined"):
        sign_in_by_code(endpoints(issuer), "cli", lambda _: None, sleep)
    assert pauses == [1, 1, 6, 11, 11]


@pytest.mark.contract("8.1")
def test_device_stops_when_its_code_has_ended(issuer: Issuer) -> None:
    issuer.device_seconds, issuer.device_interval = 0.2, 0.05
    with pytest.raises(TokenError, match=ENDINGS["expired_token"]) as raised:
        sign_in_by_code(endpoints(issuer), "cli", lambda _: None)
    assert (raised.value.code, issuer.counts[DEVICE_GRANT] > 0) == ("expired_token", True)


@pytest.mark.contract("8.1")
@pytest.mark.parametrize(
    ("fault", "words"),
    [("expired_token", ENDINGS["expired_token"]), ("invalid_request", "answered 400 (invalid_request)")],
)
def test_device_does_not_ask_again_after_an_error_that_stays(issuer: Issuer, fault: Fault, words: str) -> None:
    issuer.fault = lambda kind: fault if kind == DEVICE_GRANT else None
    with pytest.raises(TokenError) as raised:
        sign_in_by_code(endpoints(issuer), "cli", lambda _: None, lambda _: None)
    assert (words in raised.value.message, issuer.counts[DEVICE_GRANT]) == (True, 1)


@pytest.mark.contract("8.1")
def test_device_is_refused_where_the_server_does_not_offer_it(here: Path, hermes: Hermes, issuer: Issuer) -> None:
    issuer.has_devices = False
    ran = hermes("honcho", "login", "--device")
    assert (ran.code, "offers no sign-in by code" in ran.err) == (1, True)


@pytest.mark.contract("8.1")
def test_pasted_address_is_the_last_resort(
    here: Path, hermes: Hermes, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.has_devices = False

    class Elsewhere(Person):
        """A person with a browser on another machine, whose first paste is wrong."""

        def ask(self, text: str, default: str = "", *, secret: bool = False) -> str:
            self.asked.append(text)
            if len(self.asked) == 1:
                return "http://127.0.0.1:8765/callback?code=x&state=other"
            address = next(line for line in self.heard if line.startswith(f"{issuer.url}/authorize"))
            return httpx.get(address, follow_redirects=False, verify=PLAIN).headers["Location"]

    person = Elsewhere().sits_down(monkeypatch)
    assert hermes("honcho", "login").code == 0
    assert (len(person.asked), FOREIGN in person.heard) == (2, True)
    assert block(here)["apiKey"] in issuer.issued


@pytest.mark.contract("8.1")
@pytest.mark.parametrize("pasted", ["http://[", "http://127.0.0.1/callback?code=x&state=\udcff", "", "x" * 100_000])
def test_pasted_text_that_is_no_answer_is_asked_for_again(issuer: Issuer, pasted: str) -> None:
    with BrowserSignIn(endpoints(issuer), "cli", "x") as waiting:
        with pytest.raises(UsageError, match=FOREIGN):
            waiting.take_pasted(pasted)
        assert DONE in visiting(waiting.url).text


@pytest.mark.contract("8.4")
@pytest.mark.parametrize("ends", ["1e999", "1" + "0" * 400, "-1", "true", "1700000000000000"])
def test_end_that_no_clock_shows_is_an_unknown_age(here: Path, hermes: Hermes, issuer: Issuer, ends: str) -> None:
    write(here, {"baseUrl": issuer.url, "hosts": {"hermes": issuer.grant()}})
    path = here / "honcho.json"
    found = document(here)
    found["hosts"]["hermes"]["oauth"]["expiresAt"] = "END"
    path.write_text(json.dumps(found).replace('"END"', ends))
    ran = hermes("honcho", "status")
    assert ran.code == 0, ran.err
    assert "OAuth (hermes-agent, token of unknown age)" in " ".join(ran.out.split())


@pytest.mark.contract("8.1")
@pytest.mark.parametrize("answer", ["an API key", "no refresh token", "garbage", "two lines"])
def test_answer_that_is_no_sign_in_stores_nothing(
    here: Path,
    hermes: Hermes,
    issuer: Issuer,
    browser: list[httpx.Response],
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = issuer._new_pair(99)
    told: Any = {
        "an API key": {**good, "access_token": "key"},
        "no refresh token": {**good, "refresh_token": None},
        "garbage": ["x"],
        "two lines": {**good, "access_token": "hch-at-1\r\nX: y"},
    }[answer]
    monkeypatch.setattr(issuer, "_exchange_code", lambda _: (200, told))
    monkeypatch.setattr(issuer, "fault", lambda _: None)
    before = document(here)
    ran = hermes("honcho", "login")
    assert (ran.code, document(here), len(browser)) == (1, before, 1)
    assert "hch-" not in ran.out + ran.err.replace("begins with hch-at-", "")


@pytest.mark.contract("8.1")
def test_login_over_an_open_line_is_refused(here: Path, hermes: Hermes) -> None:
    write(here, {"baseUrl": "http://honcho.example.org"})
    ran = hermes("honcho", "login", "--paste")
    assert (ran.code, "is not encrypted: nobody can sign in there" in ran.err) == (1, True)


@pytest.mark.contract("8.3")
def test_login_to_our_own_server_names_the_set_up(here: Path, hermes: Hermes) -> None:
    write(here, {})
    ran = hermes("honcho", "login")
    assert (ran.code, "`hermes memory setup honcho`" in ran.err) == (2, True)


@pytest.mark.contract("8.3")
def test_logout_takes_the_tokens_out_and_revokes_them(
    here: Path, hermes: Hermes, issuer: Issuer, browser: list[httpx.Response]
) -> None:
    assert hermes("honcho", "login").code == 0
    refresh = block(here)["oauth"]["refreshToken"]
    ran = hermes("honcho", "logout")
    assert ran.code == 0, ran.err
    assert (block(here), issuer.revoked) == ({}, [refresh])
    assert document(here)["baseUrl"] == issuer.url
    again = hermes("honcho", "logout")
    assert (again.code, "nobody is signed in here" in again.err) == (1, True)


@pytest.mark.contract("8.3")
def test_logout_of_the_cloud_sends_memory_nowhere_else(
    here: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.honcho.sign_in.revoke", lambda *_: None)
    write(here, {"hosts": {"hermes": {"apiKey": "hch-at-1", "oauth": {"refreshToken": "hch-rt-1"}}}})
    ran = hermes("honcho", "logout")
    assert "what is said waits in the outbox until you sign in again" in " ".join(ran.out.split())
    assert block(here) == {"baseUrl": "https://api.honcho.dev"}
    assert status(hermes)["server"] == "cloud at https://api.honcho.dev"


@pytest.mark.contract("8.1")
def test_new_login_ends_the_grant_before_it(
    here: Path, hermes: Hermes, issuer: Issuer, browser: list[httpx.Response]
) -> None:
    assert hermes("honcho", "login").code == 0
    first = block(here)["oauth"]["refreshToken"]
    assert hermes("honcho", "login").code == 0
    assert (issuer.revoked, block(here)["oauth"]["refreshToken"] != first) == ([first], True)


@pytest.mark.contract("8.3")
def test_set_up_signs_in_at_once_and_offers_the_name_of_the_consent(
    here: Path,
    hermes: Hermes,
    issuer: Issuer,
    browser: list[httpx.Response],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(here, {"baseUrl": issuer.url})
    issuer.config = {"peerName": "Nina", "workspace": "garden", "userPeerAliases": {"1": "Nina"}, "aiPeer": "会话"}
    monkeypatch.setattr("hermes.honcho.wizard.try_server", lambda *_: "")
    person = Person("", "", "", "", "", "", *USE).sits_down(monkeypatch)
    ran = hermes("memory", "setup", "honcho")
    assert (ran.code, person.answers) == (0, []), ran.err
    assert person.asked[:4] == ["Where is Honcho?", "URL of the server", "How do you sign in?", "Your name at Honcho"]
    found = block(here)
    assert (found["peerName"], found["workspace"], found["apiKey"] in issuer.issued) == ("Nina", "garden", True)
    assert "userPeerAliases" not in found
    assert "aiPeer" not in found
    assert not any("hch-" in line for line in person.heard)
    monkeypatch.setattr(issuer, "has_metadata", False)
    again = Person("", "", "", "", "", "", *USE).sits_down(monkeypatch)
    assert hermes("memory", "setup", "honcho").code == 0
    assert again.offers["stay"].startswith("stay signed in: OAuth (hermes-agent, token valid")
    assert (block(here), issuer.revoked) == (found, [])
    Person("", "", "browser", "", "", "", *USE).sits_down(monkeypatch)
    monkeypatch.setattr(issuer, "has_metadata", True)
    assert hermes("memory", "setup", "honcho").code == 0
    assert (issuer.revoked, block(here)["apiKey"] != found["apiKey"]) == ([found["oauth"]["refreshToken"]], True)


@pytest.mark.contract("8.3")
def test_sign_in_that_fails_in_the_set_up_is_asked_for_again(
    here: Path,
    hermes: Hermes,
    issuer: Issuer,
    browser: list[httpx.Response],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    issuer.is_approved = False
    person = Person("", "", "browser", "key", "hch-key", "", "", "", *USE).sits_down(monkeypatch)
    assert hermes("memory", "setup", "honcho", "--unchecked").code == 0
    assert any(line.startswith("You are not signed in: the sign-in was declined") for line in person.heard)
    assert (block(here), provider(hermes)) == ({"apiKey": "hch-key"}, "honcho")


@pytest.mark.contract("5.4", "8.2")
def test_token_goes_to_the_server_it_was_made_for_alone(
    here: Path, hermes: Hermes, issuer: Issuer, browser: list[httpx.Response]
) -> None:
    assert hermes("honcho", "login").code == 0
    with Issuer() as other:
        found = document(here)
        for place in (found, found["hosts"]["hermes"]):
            place["baseUrl"] = other.url
            write(here, found)
            told = status(hermes)
            assert told["auth"].startswith(f"none: the sign-in of the host block was made for {issuer.url}")
            assert "`hermes honcho login` signs in there" in told["auth"]
        assert hermes("honcho", "logout").code == 0
        assert ("apiKey" in block(here), "oauth" in block(here), other.revoked) == (False, False, [])
        assert issuer.revoked == [found["hosts"]["hermes"]["oauth"]["refreshToken"]]


def test_listener_takes_nothing_after_it_is_closed(issuer: Issuer) -> None:
    waiting = BrowserSignIn(endpoints(issuer), "cli", "x")
    waiting.close()
    with pytest.raises(UsageError, match=OVER):
        waiting.take({"state": "x"})
    with pytest.raises(ProviderError, match="was cancelled"):
        waiting.finish(1)
