"""Every key of honcho.json: `status` shows its source, it can stand in the host block and at the root, and it has
its effect. Files of the current and an earlier stock plugin work without a warning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hermes.honcho.configuration import HOST, ROOT
from hermes.honcho.keys import OAUTH, TABLE
from hermes.honcho.names import digest
from hermes.honcho.plugin import HonchoPlugin
from hermes.honcho.recall_policy import DialecticPlan
from hermes.honcho.server import find_server
from hermes.memory.provider import Conversation, Notebook, Speaker
from tests.cli.chatting import serving
from tests.honcho.configuring import Machine
from tests.honcho.places import ANN, CHAT, HERE, OWNER, plugin
from tests.honcho.recalling import Recalling
from tests.honcho.setting_up import LAYERS, Hermes, placed, status
from tests.honcho.values import EXAMPLE
from tests.honcho.writing import Arrived

TODAY: dict[str, Any] = {
    "apiKey": "hch-at-key",
    "oauth": {"refreshToken": "r", "clientId": "hermes-agent", "expiresAt": 32_000_000_000},
    "baseUrl": "http://127.0.0.1:9",
    "environment": "production",
    "timeout": 20,
    "enabled": True,
    "workspace": "lab",
    "peerName": "ann",
    "aiPeer": "scribe",
    "pinUserPeer": True,
    "userPeerAliases": {"7654321": "bob"},
    "runtimePeerPrefix": "tg_",
    "recallMode": "hybrid",
    "recallSync": True,
    "queryRewrite": True,
    "injection": {"sessionStart": ["summary", "peerRepresentation", "peerCard", "aiRepresentation", "aiCard"]},
    "firstTurnBaseWait": 3.0,
    "firstTurnDialecticWait": 2.0,
    "initOnSessionStart": False,
    "logging": True,
    "observationMode": "directional",
    "observation": {"user": {"observeMe": True}, "ai": {"observeOthers": True}},
    "writeFrequency": "async",
    "saveMessages": True,
    "sessionStrategy": "per-directory",
    "sessionPeerPrefix": True,
    "sessionAiPeerPrefix": True,
    "a2aSessions": True,
    "sessions": {"/srv/app": "app-main"},
    "dialecticDepth": 2,
    "dialecticDepthLevels": ["minimal", "low"],
    "dialecticReasoningLevel": "low",
    "dialecticDynamic": True,
    "dialecticMaxChars": 600,
    "dialecticMaxInputChars": 10000,
    "reasoningHeuristic": True,
    "reasoningLevelCap": "high",
    "contextTokens": 1200,
    "messageMaxChars": 25000,
    "contextCadence": 2,
    "dialecticCadence": 3,
    "injectionFrequency": "every-turn",
}
"""Every key that the current stock plugin documents."""
OURS = {"server", "pinGuests", "newSessionPolicy"}


def write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
    path.chmod(0o600)


@pytest.mark.contract("5.2", "5.3")
@LAYERS
def test_status_shows_every_key_of_today_with_its_origin(chosen: Path, hermes: Hermes, layer: str) -> None:
    assert {row.key for row in TABLE} - OURS == TODAY.keys()
    write(chosen, placed(layer, TODAY))
    shown = status(hermes)
    assert {key: shown["keys"][key]["from"] for key in TODAY} == dict.fromkeys(TODAY, layer)
    plain = [key for key in TODAY if key not in ("apiKey", "oauth")]
    assert {key: shown["keys"][key]["value"] for key in plain} == {key: TODAY[key] for key in plain}
    assert "hch-at-key" not in json.dumps(shown)


@pytest.mark.contract("5.3")
@pytest.mark.parametrize("document", [placed(ROOT, TODAY), placed(HOST, TODAY), EXAMPLE, {"requestTimeout": 7}])
def test_files_of_the_plugin_work_without_a_word(chosen: Path, hermes: Hermes, document: dict[str, Any]) -> None:
    write(chosen, document)
    shown = status(hermes)
    assert (shown["problems"], shown["remarks"]) == ([], [])
    doctor = hermes("doctor")
    assert "ok    memory    honcho is chosen and configured" in doctor.out
    assert "honcho.json" not in doctor.out


@pytest.mark.contract("5.1", "5.3")
@LAYERS
def test_unknown_keys_are_named_by_status_and_doctor_and_survive(chosen: Path, hermes: Hermes, layer: str) -> None:
    write(chosen, placed(layer, {"baseUrl": "http://127.0.0.1:9", "colour": "red", "recalSync": True}))
    told = "\n".join(status(hermes)["remarks"])
    assert "unknown keys, which are kept and not used: colour" in told
    assert "there is no key recalSync (did you mean recallSync?)" in told
    assert "unknown keys, which are kept and not used: colour" in " ".join(hermes("doctor").out.split())
    assert hermes("honcho", "mode", "tools").code == 0
    kept = json.loads(chosen.read_text(encoding="utf-8"))
    assert (kept if layer == ROOT else kept["hosts"]["hermes"])["colour"] == "red"


@pytest.mark.contract("5.1", "5.3")
@LAYERS
def test_unknown_names_inside_a_key_are_named_and_survive_too(chosen: Path, hermes: Hermes, layer: str) -> None:
    inside = {
        "injection": {"sessionStart": ["summary"], "everyTurn": ["card"]},
        "observation": {"user": {"observeMe": False, "observeOther": False}, "group": {"observeMe": True}},
    }
    write(chosen, placed(layer, {"baseUrl": "http://127.0.0.1:9", **inside}))
    shown = status(hermes)
    told = "\n".join(shown["remarks"])
    assert "unknown keys, which are kept and not used: injection.everyTurn, observation.group" in told
    meant = "there is no key observation.user.observeOther (did you mean observation.user.observeOthers?)"
    assert meant in told
    assert shown["problems"] == []
    assert shown["keys"]["injection"]["value"] == {"sessionStart": ["summary"]}
    assert shown["keys"]["observation"]["value"] == {"user": {"observeMe": False}}
    assert meant in " ".join(hermes("doctor").out.split())
    assert hermes("honcho", "mode", "tools").code == 0
    kept = json.loads(chosen.read_text(encoding="utf-8"))
    kept = kept if layer == ROOT else kept["hosts"]["hermes"]
    assert {key: kept[key] for key in inside} == inside


Observe = Callable[[HonchoPlugin], object]
TITLED = Conversation("s4", "cli", "everything", OWNER, title="Stamps", directory=HERE.directory)


def session(place: Conversation = HERE) -> Observe:
    return lambda found: found.address(place).data["session"]


def peer(speaker: Speaker) -> Observe:
    """Return the peer that owns a person's notes."""
    return lambda found: found.address(Notebook(speaker, "telegram")).lane.rpartition("/")[2]


def plan(field: str) -> Observe:
    return lambda found: getattr(DialecticPlan.of(found.configuration()), field)


def opened(found: HonchoPlugin) -> tuple[str, ...]:
    return tuple(tool.name for tool in found.open(HERE, found.address(HERE)).tools)


def level_is_offered(found: HonchoPlugin) -> bool:
    tools = {tool.name: tool for tool in found.open(HERE, found.address(HERE)).tools}
    return "level" in tools["honcho_reasoning"].parameters["properties"]


EFFECTS: dict[str, tuple[Any, Observe, object, object]] = {
    "apiKey": ("k", lambda found: find_server(found.configuration()).kind, "embedded", "cloud"),
    "oauth": (TODAY["oauth"], lambda found: found.configuration().get(OAUTH) is not None, False, True),
    "baseUrl": (
        "http://127.0.0.1:9/v3",
        lambda found: find_server(found.configuration()).url,
        "",
        "http://127.0.0.1:9",
    ),
    "environment": ("local", lambda found: find_server(found.configuration()).kind, "embedded", "local"),
    "timeout": (0.2, lambda found: found.configuration().request_seconds, None, 1.0),
    "enabled": (False, lambda found: bool(found.address(HERE).wants), True, False),
    "workspace": ("lab", lambda found: found.address(HERE).data["workspace"], "hermes", "lab"),
    "peerName": ("zoe", peer(OWNER), "ann", "zoe"),
    "aiPeer": ("scribe", lambda found: found.address(HERE).data["aiPeer"], "hermes", "scribe"),
    "userPeerAliases": ({"17": "ann-b"}, peer(ANN), "17", "ann-b"),
    "runtimePeerPrefix": ("tg_", peer(ANN), "17", "tg_17"),
    "recallMode": ("context", lambda found: bool(opened(found)), True, False),
    "observationMode": ("unified", lambda found: found.configuration().observation["ai"]["observeMe"], True, False),
    "observation": (
        {"ai": {"observeMe": False}},
        lambda found: found.configuration().observation["ai"]["observeMe"],
        True,
        False,
    ),
    "writeFrequency": (4, lambda found: found.address(HERE).pace, "async", 4),
    "saveMessages": (
        False,
        lambda found: sorted(found.address(HERE).wants),
        ["correct", "forget", "note", "own", "reply", "said", "undo"],
        ["correct", "forget", "own", "undo"],
    ),
    "sessionStrategy": ("per-session", session(), "app", "s1"),
    "sessionPeerPrefix": (True, session(), "app", "ann-app"),
    "sessionAiPeerPrefix": (
        True,
        session(CHAT),
        "agent-main-telegram-dm-17",
        "hermes-agent-main-telegram-dm-17",
    ),
    "sessions": ({"/code/app": "shop"}, session(), "app", "shop"),
    "dialecticDepth": (3, plan("depth"), 1, 3),
    "dialecticDepthLevels": (["high"], plan("explicit"), (), ("high",)),
    "dialecticReasoningLevel": ("max", plan("base"), "low", "max"),
    "dialecticDynamic": (False, level_is_offered, True, False),
    "dialecticMaxChars": (50, plan("longest_answer"), 600, 50),
    "dialecticMaxInputChars": (50, plan("longest_question"), 10_000, 50),
    "reasoningHeuristic": (False, plan("heuristic"), True, False),
    "reasoningLevelCap": ("max", plan("cap"), "high", "max"),
    "messageMaxChars": (99, lambda found: found.address(HERE).data["maxChars"], 25_000, 99),
}
"""By key: a value, a function that observes its effect, and the results without and with the value."""
ELSEWHERE = {
    "pinUserPeer": "test_a_pin_takes_the_owners_aliased_account_for_peer_name",
    "initOnSessionStart": "changes nothing",
    "a2aSessions": "test_agents.py",
    **dict.fromkeys(
        (
            *("recallSync", "queryRewrite", "injection", "firstTurnBaseWait", "firstTurnDialecticWait", "logging"),
            *("contextTokens", "contextCadence", "dialecticCadence", "injectionFrequency"),
        ),
        "test_todays_recall.py",
    ),
}
"""Keys whose effect another test shows."""


def test_each_key_of_today_has_a_test_of_its_effect() -> None:
    assert EFFECTS.keys() | ELSEWHERE.keys() == TODAY.keys()


@pytest.mark.contract("5.2", "5.9", "5.10", "6.6")
@LAYERS
@pytest.mark.parametrize("key", EFFECTS)
def test_a_key_changes_what_it_should(machine: Machine, key: str, layer: str) -> None:
    value, observe, before, after = EFFECTS[key]
    machine.write({})
    found = plugin(machine)
    assert observe(found) == before
    machine.write(placed(layer, {key: value}))
    assert observe(found) == after


@pytest.mark.contract("5.6")
@LAYERS
def test_a_pin_takes_the_owners_aliased_account_for_peer_name(machine: Machine, layer: str) -> None:
    mine = Speaker("17", is_owner=True)
    machine.write({"peerName": "ann", "userPeerAliases": {"17": "annie"}})
    found = plugin(machine)
    assert peer(mine)(found) == "annie"
    pinned = {"pinUserPeer": True, "peerName": "ann", "userPeerAliases": {"17": "annie"}}
    machine.write(placed(layer, pinned))
    assert peer(mine)(found) == "ann"


@pytest.mark.contract("5.10")
def test_both_prefixes_go_before_derived_names_and_not_before_given_ones(machine: Machine) -> None:
    both = {"sessionPeerPrefix": True, "sessionAiPeerPrefix": True}
    machine.write({**both, "aiPeer": "scribe", "sessions": {"/given": "mine"}})
    found = plugin(machine)
    given = Conversation("s5", "cli", "everything", OWNER, directory=Path("/given"))
    names = [session(place)(found) for place in (HERE, CHAT, TITLED, given)]
    assert names == [
        "ann-scribe-app",
        "17-scribe-agent-main-telegram-dm-17",
        "ann-scribe-Stamps",
        "mine",
    ]


@pytest.mark.contract("5.10")
def test_conversations_of_an_earlier_version_keep_their_session(machine: Machine) -> None:
    mark = digest(json.dumps(["hermes", "per-directory", False, None, None]))
    bound = replace(HERE, bound={"session": "begun-as", "naming": mark})
    machine.write({})
    assert session(bound)(plugin(machine)) == "begun-as"
    machine.write({"sessionAiPeerPrefix": True})
    assert session(bound)(plugin(machine)) == "hermes-app"


@pytest.mark.contract("5.3")
@pytest.mark.parametrize("key", ["workspace", "peerName", "aiPeer"])
def test_a_number_is_no_name(machine: Machine, key: str) -> None:
    machine.write({key: 7})
    [problem] = machine.load().problems
    assert f"{key} is 7, but takes a name" in problem.message
    machine.write({key: "7"})
    assert machine.load().problems == []


@pytest.mark.contract("5.3")
@pytest.mark.parametrize("key", ["apiKey", "runtimePeerPrefix"])
def test_a_number_is_no_text(machine: Machine, key: str) -> None:
    machine.write({key: float("nan")})
    [problem] = machine.load().problems
    assert problem.message.startswith(f"{machine.home / 'honcho.json'}: {key} is ")


@pytest.mark.contract("5.5")
def test_a_write_renames_the_old_pin_at_the_root_too(chosen: Path, hermes: Hermes) -> None:
    write(chosen, {"baseUrl": "http://127.0.0.1:9", "peerName": "ann", "pinPeerName": True})
    assert hermes("honcho", "mode", "tools").code == 0
    found = json.loads(chosen.read_text(encoding="utf-8"))
    assert (found.get("pinUserPeer"), "pinPeerName" in found) == (True, False)
    assert status(hermes)["keys"]["pinUserPeer"] == {"value": True, "from": ROOT, "where": str(chosen)}


@pytest.mark.processes
@pytest.mark.contract("5.2", "5.3", "5.10")
@pytest.mark.parametrize(
    ("document", "session_name", "logs"),
    [(TODAY, "ann-scribe-work", True), (EXAMPLE, "work", False)],
    ids=["today", "earlier"],
)
def test_a_conversation_goes_by_a_file_of_the_plugin(
    recalling: Recalling, commanded: Path, document: dict[str, Any], session_name: str, logs: bool
) -> None:
    here = {"baseUrl": recalling.between.url, "workspace": recalling.workspace}
    write(commanded / "honcho.json", {**document, **here})
    folder = recalling.machine.folder
    (folder / "work").mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_MEMORY_")}
    with serving([], then={"echo": True}) as model:
        env |= {"OPENAI_BASE_URL": model.base_url, "HERMES_MODEL": "m", "HERMES_AUTO_TITLE": "false"}
        for text in ("My cat is called Miso.", "What is my cat called?"):
            asked = [sys.executable, "-m", "hermes", "chat", "-q", text]
            done = subprocess.run(asked, cwd=folder / "work", env=env, capture_output=True, text=True, check=True)
            assert done.stderr == "", "nothing is said of the file"
            deliver = [sys.executable, "-m", "hermes", "memory", "outbox", "deliver"]
            subprocess.run(deliver, env=env, check=True, capture_output=True)
    said = Arrived(recalling.server, recalling.workspace).said(session_name)
    assert [(who, text) for who, text in said if who == document["peerName"]] == [
        (document["peerName"], "My cat is called Miso."),
        (document["peerName"], "What is my cat called?"),
    ]
    log = folder / ".honcho" / "injection.log"
    assert log.exists() is logs
    if logs:
        assert "Miso" in log.read_text(encoding="utf-8").splitlines()[-1]
