"""honcho-projects.json: chats of one gateway in separate workspaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.errors import ProviderError
from hermes.memory.provider import Conversation, Notebook, Speaker, Wording
from tests.honcho.configuring import Machine
from tests.honcho.places import CHAT, GROUP, HERE, plugin
from tests.honcho.recalling import ANN, BOT, OWNER, Recalling
from tests.honcho.setting_up import Hermes, status

FILE = "honcho-projects.json"
FORUM = Conversation("s6", "telegram", "here", None, "forum", "agent:main:telegram:forum:-100:7")


def projects(folder: Path, chats: dict[str, dict[str, str]]) -> Path:
    path = folder / FILE
    path.write_text(json.dumps({"projects": {name: {"sessions": given} for name, given in chats.items()}}))
    return path


def where(machine: Machine, *places: Conversation | Notebook) -> list[tuple[str, str | None]]:
    found = plugin(machine)
    data = [found.address(place).data for place in places]
    return [(one["workspace"], one["session"]) for one in data]


@pytest.mark.contract("5.9")
def test_the_longest_end_of_a_key_on_whole_segments_decides(machine: Machine) -> None:
    machine.write({"workspace": "lab"})
    chats = {"garden": {"100": "bed", "telegram-group--100": "beds"}, "house": {"7": "roof", "dm-1": "no segment"}}
    projects(machine.home, chats)
    assert where(machine, GROUP, FORUM, CHAT, HERE) == [
        ("garden", "beds"),
        ("house", "roof"),
        ("lab", "agent-main-telegram-dm-17"),
        ("lab", "app"),
    ]


@pytest.mark.contract("5.9")
def test_projects_need_no_honcho_json(machine: Machine) -> None:
    machine.home.mkdir(exist_ok=True)
    projects(machine.home, {"garden": {"100": "bed"}})
    assert machine.load().file is None
    assert where(machine, GROUP) == [("garden", "bed")]


@pytest.mark.contract("5.9")
def test_the_notes_of_a_group_go_with_its_chat(machine: Machine) -> None:
    machine.write({"workspace": "lab"})
    projects(machine.home, {"garden": {"-100": "bed"}})
    group = Notebook(None, "telegram", GROUP.gateway_session_key)
    assert where(machine, group, Notebook(OWNER)) == [("garden", None), ("lab", None)]


@pytest.mark.contract("5.9", "6.11", "4.5")
def test_a_change_counts_from_the_next_message_and_entries_keep_their_address(machine: Machine) -> None:
    machine.write({"workspace": "lab"})
    found = plugin(machine)
    before, frozen = found.cache_busting_signature(), found.address(GROUP)
    path = projects(machine.home, {"garden": {"100": "bed"}})
    assert found.cache_busting_signature() != before, "sessions are opened anew"
    assert found.address(GROUP).data["workspace"] == "garden"
    assert frozen.data["workspace"] == "lab"
    path.unlink()
    assert found.cache_busting_signature() == before
    assert found.address(GROUP) == frozen


@pytest.mark.contract("5.3", "P5")
@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("{", "is invalid"),
        ({"project": {}}, "missing required field `projects`"),
        ({"projects": {"garden": {"chats": {"100": "bed"}}}}, "missing required field `sessions`"),
        ({"projects": {"garden": {"sessions": {"100": 7}}}}, "Expected `str`, got `int`"),
        ({"projects": {"garden": {"sessions": {":": "bed"}}}}, "need letters, digits"),
        ({"projects": {"a": {"sessions": {"9": "x"}}, "b": {"sessions": {"9": "x"}}}}, "both in a/x and b/x"),
    ],
)
def test_invalid_projects_file_is_reported_and_sends_nothing_elsewhere(
    machine: Machine, document: Any, told: str
) -> None:
    machine.write({"workspace": "lab"})
    path = machine.home / FILE
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(ProviderError, match=FILE) as caught:
        plugin(machine).address(GROUP)
    assert told in caught.value.message
    path.unlink()
    projects(machine.home, {"garden": {"100": "bed"}})
    heard: list[str] = []
    found = plugin(machine, told=heard)
    found.address(GROUP)
    path.write_text("{")
    assert found.address(GROUP).data["workspace"] == "garden", "what it said before is in force"
    assert len(heard) == 1
    assert heard[0].endswith("; what it said before is in force")


@pytest.mark.contract("5.1")
def test_status_names_the_projects_beside_the_file_in_force(chosen: Path, hermes: Hermes) -> None:
    projects(chosen.parent, {"garden": {"100": "bed", "200": "pond"}, "house": {"300": "roof"}})
    assert status(hermes)["projects"] == {"garden": 2, "house": 1}
    shown = hermes("honcho", "status").out
    assert "garden: 2 chats" in shown
    assert "house: 1 chat" in shown


@pytest.mark.contract("5.9", "7.9")
async def test_a_project_recalls_its_own_and_nothing_of_the_others(recalling: Recalling) -> None:
    recalling.configure()
    garden = f"{recalling.workspace}-g"
    projects(recalling.machine.home, {garden: {"telegram-dm-1": "bed"}})
    recalling.tell("elsewhere", (ANN, "My roof is red."))
    main, recalling.workspace = recalling.workspace, garden
    recalling.tell("earlier", (ANN, "My roses are yellow."))
    mine = Conversation("s7", "telegram", "everything", OWNER, "dm", "agent:main:telegram:dm:1")
    async with recalling.host() as talk:
        in_project = await talk.turn("What do you know of my roses and my roof?", mine)
        outside = await talk.turn("What do you know of my roses and my roof?")
    assert "yellow" in in_project
    assert "red" not in in_project
    assert "red" in outside
    assert "yellow" not in outside
    recalling.workspace = main


async def test_forgetting_words_reaches_every_project(recalling: Recalling) -> None:
    recalling.configure()
    main, garden = recalling.workspace, f"{recalling.workspace}-g"
    projects(recalling.machine.home, {garden: {"telegram-dm-1": "bed"}})
    recalling.conclude(BOT, ANN, "Ann has yellow roses.")
    recalling.workspace = garden
    recalling.conclude(BOT, ANN, "Ann waters yellow roses.")
    found = plugin(recalling.machine)
    wording = Wording(("yellow", "roses"))
    held = found.find_remembered(wording)
    assert {one.text for one in held.items} == {"Ann has yellow roses.", "Ann waters yellow roses."}
    found.forget(held.items)
    assert found.find_remembered(wording).items == ()
    recalling.workspace = main


@pytest.mark.contract("5.9", "5.10")
def test_guest_cannot_enter_a_project_by_choosing_its_key(machine: Machine) -> None:
    machine.write({"workspace": "lab"})
    projects(machine.home, {"garden": {"telegram-dm-17": "bed"}})
    key = "api:eve:agent:main:telegram:dm:17"
    eve = Conversation("s7", "api", "here", Speaker("eve"), "api", key)
    [(chat, bed), (guests, theirs)] = where(machine, CHAT, eve)
    assert (chat, bed, guests) == ("garden", "bed", "lab")
    assert theirs != bed
