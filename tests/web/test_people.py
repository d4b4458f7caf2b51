"""Identities on the page: a preview of anybody, and the correction of a wrong mapping."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator

import pytest

from hermes.web.routing import NO_PAGE
from tests.web.forms import Visitor, field, problem, visiting
from tests.web.holding import hold, meet_people, server_of
from tests.web.serving import SaidNext, serving

pytestmark = pytest.mark.contract("10.72")


@pytest.fixture(scope="module")
def visitor(model: SaidNext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    home = tmp_path_factory.mktemp("people") / "home"
    home.mkdir()
    (home / "honcho.json").write_text(json.dumps({"peerName": "ann", "userPeerAliases": {"18": "carl"}}))
    asyncio.run(meet_people(home))
    with serving(home, model) as web, visiting(web) as made:
        yield made


def aliases(visitor: Visitor) -> dict[str, str]:
    document = json.loads((visitor.web.home / "honcho.json").read_text(encoding="utf-8"))
    found: dict[str, str] = document["hosts"].get("hermes", {}).get("userPeerAliases", document["userPeerAliases"])
    return found


def would_be(visitor: Visitor, user_id: str, platform: str = "telegram") -> str:
    text = visitor.client.get("/settings/people", params={"platform": platform, "id": user_id}).text
    found = re.search(r'id="would">(.*?)<a ', text, re.DOTALL)
    return problem(text) if found is None else re.sub(r"<[^>]+>", "", found[1]).strip()


def test_preview_shows_the_peer_of_any_account(visitor: Visitor) -> None:
    before = (visitor.web.home / "honcho.json").read_bytes()
    assert would_be(visitor, "4711") == "telegram:4711 would be 4711 (by id); reads: their own."
    assert would_be(visitor, "18").startswith("telegram:18 would be carl (by alias)")
    assert would_be(visitor, "19") == "telegram:19 is you, as ann (by owner); reads: everything."
    assert "would be ann-" in would_be(visitor, "ann"), "nobody becomes the owner by a name"
    assert "there is no platform 'icq'" in would_be(visitor, "1", "icq")
    assert "at most 200 characters" in would_be(visitor, "9" * 5000)
    assert (visitor.web.home / "honcho.json").read_bytes() == before


def test_wrong_mapping_is_corrected_after_a_preview(visitor: Visitor) -> None:
    page = visitor.get("/settings/people?account=telegram:18&name=robert")
    assert "Nothing is known of carl yet." in page
    form = {name: field(page, name) for name in ("account", "name", "before")}
    assert form["before"] == "carl"
    assert "Changed." in visitor.send("/settings/people", form).text
    assert aliases(visitor) == {"18": "robert"} or aliases(visitor)["telegram:18"] == "robert"
    assert would_be(visitor, "18").startswith("telegram:18 would be robert (by alias)")
    late = visitor.send("/settings/people", form)
    assert late.status_code == 400
    assert problem(late) != ""


def test_memory_moves_with_the_mapping_if_requested(visitor: Visitor) -> None:
    with server_of(visitor.web) as server:
        hold(server, ["Bob plays the banjo."], about="17")
    page = visitor.get("/settings/people?account=telegram:17&name=bobby")
    assert "conclusions concern it" in page
    form = {name: field(page, name) for name in ("account", "name", "before")}
    assert "Changed." in visitor.send("/settings/people", {**form, "memory": "merge"}).text
    assert would_be(visitor, "17").startswith("telegram:17 would be bobby (by alias)")


def test_account_becomes_the_owners_only_after_a_tick(visitor: Visitor) -> None:
    page = visitor.get("/settings/people?account=telegram:4711&name=ann")
    assert "is my own account" in page
    form = {name: field(page, name) for name in ("account", "name", "before")}
    refused = visitor.send("/settings/people", form)
    assert (refused.status_code, "nobody said that" in problem(refused)) == (400, True)
    assert "Changed." in visitor.send("/settings/people", {**form, "me": "1"}).text
    assert would_be(visitor, "4711").startswith("telegram:4711 is you, as ann")


@pytest.mark.parametrize("name", ["hermes", "!!", "x" * 300])
def test_forbidden_peer_is_refused_with_a_reason(visitor: Visitor, name: str) -> None:
    before = (visitor.web.home / "honcho.json").read_bytes()
    for answer in (
        visitor.client.get("/settings/people", params={"account": "telegram:5", "name": name}),
        visitor.send("/settings/people", {"account": "telegram:5", "name": name, "before": "5"}),
    ):
        assert answer.status_code == 400
        assert problem(answer) not in ("", NO_PAGE)
    assert (visitor.web.home / "honcho.json").read_bytes() == before
