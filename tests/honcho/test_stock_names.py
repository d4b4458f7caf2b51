"""A home that a stock Hermes uses too: `hermes honcho status` shows both names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.honcho.setting_up import Hermes, meet


@pytest.mark.contract("5.6", "10.9")
def test_people_are_shown_with_their_peer_and_the_one_a_stock_hermes_gives_them(chosen: Path, hermes: Hermes) -> None:
    meet(hermes, "matrix:a:b.org", "telegram:17", "telegram:18")
    assert hermes("gateway", "people", "--me", "telegram:18").code == 0
    told = {one["who"]: one for one in json.loads(hermes("honcho", "status", "--json").out)["people"]}
    assert (told["telegram:17"]["peer"], told["telegram:17"]["peer_in_stock"]) == ("17", None)
    assert (told["telegram:18"]["peer"], told["telegram:18"]["by"]) == ("ann", "owner")
    assert told["telegram:18"]["peer_in_stock"] == "18"
    assert told["matrix:a:b.org"]["peer"].startswith("a-b-org-")
    assert told["matrix:a:b.org"]["peer_in_stock"] == "a-b-org"
    assert hermes("honcho", "peers", "map", "a:b.org", "a-b-org", "--leave").code == 0
    told = {one["who"]: one for one in json.loads(hermes("honcho", "status", "--json").out)["people"]}
    assert (told["matrix:a:b.org"]["peer"], told["matrix:a:b.org"]["peer_in_stock"]) == ("a-b-org", None)


@pytest.mark.contract("10.9")
@pytest.mark.parametrize(
    ("prefix", "who", "in_stock"),
    [
        ("tg_", "telegram:17", None),
        ("tg_", "telegram:ab-12345678", "tg_ab-12345678"),
        ("her", "telegram:mes", "hermes"),
        ("tg_", "telegram:" + "7" * 120, "tg_" + "7" * 120),
    ],
)
def test_behind_a_prefix_too_the_name_in_a_stock_hermes_is_the_one_it_gives(
    chosen: Path, hermes: Hermes, prefix: str, who: str, in_stock: str | None
) -> None:
    meet(hermes, who)
    chosen.write_text(json.dumps({"baseUrl": "http://127.0.0.1:9", "runtimePeerPrefix": prefix}), encoding="utf-8")
    [person] = json.loads(hermes("honcho", "status", "--json").out)["people"]
    assert person["peer_in_stock"] == in_stock


@pytest.mark.contract("10.9")
@pytest.mark.parametrize(
    ("value", "ours", "in_stock"),
    [
        ({}, "my-work", "my--work"),
        ({"peerName": "ann", "sessionPeerPrefix": True}, "ann-my-work", "ann-my--work"),
        ({"sessionPeerPrefix": True}, "ann-my-work", "my--work"),
        ({"sessionStrategy": "per-repo"}, "the-repo", "the--repo"),
        ({"sessionStrategy": "global"}, "hermes", None),
    ],
)
def test_the_session_here_is_shown_with_its_name_in_a_stock_hermes(
    chosen: Path,
    hermes: Hermes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: dict[str, Any],
    ours: str,
    in_stock: str | None,
) -> None:
    directory = tmp_path / "the. repo" / "my. work"
    directory.mkdir(parents=True)
    (directory.parent / ".git").mkdir()
    monkeypatch.chdir(directory)
    chosen.write_text(json.dumps({"baseUrl": "http://127.0.0.1:9", **value}), encoding="utf-8")
    told = json.loads(hermes("honcho", "status", "--json").out)
    assert (told["session_here"], told["session_here_in_stock"]) == (ours, in_stock)
