"""Guests, groups and other profiles, which the owner's page does not show."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from hermes.types import Session
from tests.web.holding import hold, server_of
from tests.web.homes import HIDDEN, NOW, OWN, SECRET, fill, write
from tests.web.serving import SaidNext, WebProcess, serving

pytestmark = pytest.mark.contract("10.65")


@pytest.fixture(scope="module")
def signed(model: SaidNext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebProcess, httpx.Client]]:
    """The page of a home with guests, where users of the API are guests too, and with another profile."""
    home = tmp_path_factory.mktemp("reach") / "home"
    write(fill(home, *HIDDEN.values(), OWN))
    write(fill(home / "profiles" / "work", Session("elsewhere", "cli", NOW)))
    (home / "config.yaml").write_text("api:\n  users: guests\n", encoding="utf-8")
    with serving(home, model) as web, web.sign_in() as client:
        yield web, client


def test_sessions_of_guests_groups_and_profiles_are_not_listed_or_found(
    signed: tuple[WebProcess, httpx.Client],
) -> None:
    _, client = signed
    for path in ("/", "/sessions", f"/search?q={SECRET}", "/sessions/own"):
        text = client.get(path).text
        assert [name for name in (*HIDDEN, "elsewhere") if f"of {name} is" in text] == []
    assert f"of {OWN.id} is" in client.get("/sessions/own").text
    assert SECRET in client.get(f"/search?q={SECRET}").text


@pytest.mark.parametrize("session", [*HIDDEN, "elsewhere", "../work/state", "nobody"])
@pytest.mark.parametrize(
    "rest", ["", "/timeline", "/timeline/snapshots/1", "/stream", "/export?form=jsonl", "/delete", "/turns/1/memory"]
)
def test_sessions_of_others_get_404(signed: tuple[WebProcess, httpx.Client], session: str, rest: str) -> None:
    answer = signed[1].get(f"/sessions/{session}{rest}")
    assert answer.status_code == 404
    assert "out of tune" not in answer.text


@pytest.mark.parametrize("act", ["say", "title", "incognito", "delete"])
def test_sessions_of_others_cannot_be_changed(signed: tuple[WebProcess, httpx.Client], act: str) -> None:
    web, client = signed
    token = client.get("/sessions").text.partition('name="csrf" value="')[2].partition('"')[0]
    form = {"csrf": token, "text": "hello", "title": "mine", "everywhere": "1"}
    for session in HIDDEN:
        answer = client.post(f"/sessions/{session}/{act}", data=form, headers={"Origin": web.url})
        assert answer.status_code == 404


def test_waiting_entries_of_others_are_not_shown(signed: tuple[WebProcess, httpx.Client]) -> None:
    text = signed[1].get("/memory/waiting").text
    assert f"of {OWN.id} is" in text
    assert [name for name in HIDDEN if f"of {name} is" in text] == []
    assert text.count("not shown") == len(HIDDEN)


def test_facts_about_others_are_not_shown(signed: tuple[WebProcess, httpx.Client]) -> None:
    web, client = signed
    with server_of(web) as server:
        [theirs] = hold(server, ["I own a zither."], about="17")
        hold(server, ["I own a drum."])
    assert "I own a drum." in client.get("/memory").text
    for path in ("/memory", "/memory?q=own", "/memory/forget?q=own", "/memory/people", "/memory/export", "/news"):
        assert "zither" not in client.get(path).text
    found = client.get("/memory/forget?q=own").text
    assert "I own a drum." in found
    assert "1 entry of replies or of other people" in found
    assert client.get(f"/memory/facts/{theirs}").status_code == 404
