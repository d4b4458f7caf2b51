"""Homes that a stock 0.19 made: found, explained, repaired once, and the next turn sees everything once, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.stock_homes.drive import configure
from scripts.stock_homes.loopback import Model, serving
from scripts.stock_homes.ours import run_doctor
from scripts.stock_homes.recipes import Recipe
from scripts.stock_homes.turn import take_turn, what_is_told
from tests.audit.looking import bytes_of, findings
from tests.audit.stock_fixtures import NAMES, put_home, read_said
from tests.conftest import Ran
from tests.store import old_files as old

Hermes = Callable[..., Ran]
FOUND = {
    "api-follows": [],
    "api-keeps-its-id": ["orphan-child"],
    "branch": [],
    "early-before-end-session": ["double-rows"],
    "early-in-place": [],
    "early-rotation": ["double-rows", "orphan-child"],
    "group-killed": ["orphan-child"],
    "in-place-thrice": [],
    "race": [],
    "race-in-place": [],
    "rotated-twice": [],
    "rotation-after-create-session": ["orphan-child"],
    "rotation-after-end-session": ["orphan-child"],
    "rotation-after-end-session-and-on": [],
    "rotation-after-replace-messages-and-on": ["orphan-child"],
    "rotation-before-replace-gateway-routing-entries": ["orphan-child"],
    "terminal-rotates": [],
}
LEFT_BEHIND = {"race", "race-in-place"}
BEGAN_ANEW = {"rotation-after-end-session-and-on", "rotation-after-replace-messages-and-on"}


def test_every_stored_home_has_expected_findings() -> None:
    assert sorted(FOUND) == NAMES


@pytest.mark.contract("3.12", "3.9")
@pytest.mark.parametrize("name", NAMES)
def test_damage_of_a_stock_home_is_explained_and_repaired_once(hermes: Hermes, home: Path, name: str) -> None:
    put_home(name, home)
    messages, sound = old.dump(home / "state.db", ["messages"]), bytes_of(home)
    ran = hermes("doctor", "--repair", "--yes", "--json")
    assert ran.code == 0
    told = json.loads(ran.out)
    assert sorted(mended["code"] for mended in told.get("repair", {"mended": []})["mended"]) == FOUND[name]
    assert all(mended["detail"] and mended["remedy"] for mended in told.get("repair", {"mended": []})["mended"])
    assert old.dump(home / "state.db", ["messages"]) == messages
    if not FOUND[name]:
        assert bytes_of(home) == sound
    after = bytes_of(home)
    again = hermes("doctor", "--repair", "--yes", "--json")
    assert (again.code, findings(again)) == (0, [])
    assert bytes_of(home) == after


@pytest.mark.processes
@pytest.mark.contract("3.12", "10.9")
@pytest.mark.parametrize("name", NAMES)
def test_next_turn_in_a_stock_home_sees_every_message_once_in_order(home: Path, name: str) -> None:
    put_home(name, home)

    async def repair_and_ask() -> list[str]:
        model = Model()
        async with serving(model) as port:
            configure(home, Recipe(name, ()), port)
            code, report = await run_doctor(home, "--repair", "--yes")
            assert code == 0
            faults, _ = await take_turn(model, home, read_said(name), what_is_told(report), "and now")
            return faults

    assert asyncio.run(repair_and_ask()) == []


@pytest.mark.contract("3.12")
@pytest.mark.parametrize("name", NAMES)
def test_unrepairable_messages_are_reported(hermes: Hermes, home: Path, name: str) -> None:
    put_home(name, home)
    told = [finding for finding in json.loads(hermes("doctor", "--json").out)["findings"] if finding["code"]]
    codes = ["began-anew"] * (name in BEGAN_ANEW) + ["left-behind"] * (name in LEFT_BEHIND)
    said = [finding for finding in told if finding["check"] == "sessions" and finding["level"] == "warn"]
    assert [finding["code"] for finding in said if finding["fix"]] == codes
    keys = [finding["detail"] for finding in told if "it is whole" in finding["detail"]]
    assert not (keys and FOUND[name]), "nothing is called whole beside a damage of the same conversation"
