"""The settings of a memory plugin, in its own JSON file: every key and type of Honcho's reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from hermes.errors import SettingsError
from hermes.settings.compound_kinds import Either, Fields, List, Map, optional
from hermes.settings.kinds import Boolean, Choice, Integer, Number, Secret, Text, Url
from hermes.settings.layers import Layer, Settings, environment
from hermes.settings.setting import Setting, Table, collect
from tests.settings.resolving import resolve

LEVEL = Choice(("minimal", "low", "medium", "high", "max"))
SIGHT = Fields({"observeMe": Boolean(), "observeOthers": Boolean()})


class Rows:
    """The fields as a plugin declares them; `collect` makes the table."""

    api_key = Setting("apiKey", Secret(), "", "The key.", env="HONCHO_API_KEY")
    oauth = Setting(
        "oauth",
        optional(
            Fields(
                {"refreshToken": Secret(), "expiresAt": Number(), "tokenEndpoint": Url()}
                | dict.fromkeys(("clientId", "scope", "tokenType"), Text())
            )
        ),
        None,
        "The grant.",
    )
    base_url = Setting("baseUrl", Url(), "", "The server.", env="HONCHO_BASE_URL")
    environment = Setting("environment", Text(), "production", "The SDK's environment.", env="HONCHO_ENVIRONMENT")
    enabled = Setting("enabled", optional(Boolean()), None, "On, off, or by itself.")
    workspace = Setting("workspace", Text(), "hermes_coder", "The workspace.")
    peer_name = Setting("peerName", Text(), "", "The person.")
    ai_peer = Setting("aiPeer", Text(), "hermes_coder", "The agent.")
    pin_user_peer = Setting("pinUserPeer", Boolean(), False, "One peer for all.", also=("pinPeerName",))
    aliases = Setting("userPeerAliases", Map(Text()), {}, "Ids and their peers.")
    prefix = Setting("runtimePeerPrefix", Text(), "", "Before unknown ids.")
    recall_mode = Setting("recallMode", Choice(("hybrid", "context", "tools"), {"auto": "hybrid"}), "hybrid", "Recall.")
    observation_mode = Setting("observationMode", Choice(("directional", "unified")), "directional", "A preset.")
    observation = Setting("observation", optional(Fields({"user": SIGHT, "ai": SIGHT})), None, "Per peer.")
    write_frequency = Setting(
        "writeFrequency", Either(Choice(("async", "turn", "session")), Integer(1)), "async", "When to write."
    )
    save_messages = Setting("saveMessages", Boolean(), True, "Keep messages.")
    strategy = Setting(
        "sessionStrategy", Choice(("per-directory", "per-session", "per-repo", "global")), "per-directory", "Sessions."
    )
    session_prefix = Setting("sessionPeerPrefix", Boolean(), False, "The peer before the session.")
    sessions = Setting("sessions", Map(Text()), {}, "Folders and their sessions.")
    depth = Setting("dialecticDepth", Integer(1, 3, clamped=True), 1, "Passes.")
    depth_levels = Setting("dialecticDepthLevels", optional(List(LEVEL)), None, "A level for each pass.")
    level = Setting("dialecticReasoningLevel", LEVEL, "low", "The level.")
    dynamic = Setting("dialecticDynamic", Boolean(), True, "The model may choose.")
    max_chars = Setting("dialecticMaxChars", Integer(1), 600, "Characters of a result.")
    max_input = Setting("dialecticMaxInputChars", Integer(1), 10_000, "Characters of a question.")
    heuristic = Setting("reasoningHeuristic", Boolean(), True, "Longer questions, higher level.")
    cap = Setting("reasoningLevelCap", LEVEL, "high", "The highest level.")
    context_tokens = Setting("contextTokens", optional(Integer(1)), None, "The budget.")
    message_max = Setting("messageMaxChars", Integer(1), 25_000, "Characters of a message.")
    context_cadence = Setting("contextCadence", Integer(1), 1, "Turns.")
    dialectic_cadence = Setting("dialecticCadence", Integer(1), 1, "Turns.")
    injection = Setting("injectionFrequency", Choice(("every-turn", "first-turn")), "every-turn", "How often.")


TABLE: Table = collect(vars(Rows))


def settings_of(
    document: Mapping[str, Any], host: str = "hermes_coder", env: Mapping[str, str] | None = None
) -> Settings:
    block = document.get("hosts", {}).get(host, {})
    layers = [
        Layer.of(f"hosts.{host}", block, f"honcho.json, hosts.{host}"),
        Layer.of("root", document, "honcho.json"),
        environment(TABLE, env or {}),
    ]
    return resolve(TABLE, layers)


EXAMPLE = json.loads("""
{
  "apiKey": "root-key", "workspace": "hermes", "peerName": "username", "contextCadence": 2, "contextTokens": 800,
  "userPeerAliases": {"7654321": "alice"}, "recallMode": "auto", "writeFrequency": "turn", "pinPeerName": true,
  "sessions": {"/work/my project": "myproject-main"},
  "hosts": {
    "hermes": {"aiPeer": "hermes"},
    "hermes_coder": {
      "enabled": true, "aiPeer": "coder", "sessionStrategy": "per-repo", "dialecticDepth": 9,
      "dialecticDepthLevels": ["low", "max"], "contextTokens": null, "writeFrequency": 5, "userPeerAliases": {},
      "runtimePeerPrefix": "", "oauth": {"refreshToken": "single-use", "expiresAt": 1800000000},
      "observation": {"user": {"observeMe": true, "observeOthers": false}, "ai": {"observeMe": true}}
    }
  }
}
""")


def test_every_key_has_the_value_of_its_most_important_layer() -> None:
    settings = settings_of(EXAMPLE, env={"HONCHO_API_KEY": "variable", "HONCHO_BASE_URL": "http://127.0.0.1:8000"})
    found = {setting.key: (settings.get(setting), settings.origin(setting)) for setting in TABLE}
    host, root, default = "hosts.hermes_coder", "root", "default"
    assert found == {
        "apiKey": ("root-key", root),
        "oauth": ({"refreshToken": "single-use", "expiresAt": 1_800_000_000.0}, host),
        "baseUrl": ("http://127.0.0.1:8000", "environment"),
        "environment": ("production", default),
        "enabled": (True, host),
        "workspace": ("hermes", root),
        "peerName": ("username", root),
        "aiPeer": ("coder", host),
        "pinUserPeer": (True, root),
        "userPeerAliases": ({}, host),
        "runtimePeerPrefix": ("", host),
        "recallMode": ("hybrid", root),
        "observationMode": ("directional", default),
        "observation": ({"user": {"observeMe": True, "observeOthers": False}, "ai": {"observeMe": True}}, host),
        "writeFrequency": (5, host),
        "saveMessages": (True, default),
        "sessionStrategy": ("per-repo", host),
        "sessionPeerPrefix": (False, default),
        "sessions": ({"/work/my project": "myproject-main"}, root),
        "dialecticDepth": (3, host),
        "dialecticDepthLevels": (("low", "max"), host),
        "dialecticReasoningLevel": ("low", default),
        "dialecticDynamic": (True, default),
        "dialecticMaxChars": (600, default),
        "dialecticMaxInputChars": (10_000, default),
        "reasoningHeuristic": (True, default),
        "reasoningLevelCap": ("high", default),
        "contextTokens": (None, host),
        "messageMaxChars": (25_000, default),
        "contextCadence": (2, root),
        "dialecticCadence": (1, default),
        "injectionFrequency": ("every-turn", default),
    }


def test_another_host_inherits_from_the_root() -> None:
    settings = settings_of(EXAMPLE, "hermes")
    assert settings.get(Rows.ai_peer) == "hermes"
    assert settings.get(Rows.context_tokens) == 800
    assert settings.get(Rows.write_frequency) == "turn"
    assert settings.get(Rows.aliases) == {"7654321": "alice"}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "writeFrequency",
            "never",
            "writeFrequency is 'never', but takes one of async, turn, session or a whole number",
        ),
        ("userPeerAliases", {"7": ["a"]}, "userPeerAliases.7 is ['a'], but takes text"),
        ("observation", {"ai": {"observeMe": "x"}}, "observation.ai.observeMe is 'x', but takes true or false"),
        ("dialecticDepthLevels", ["low", "all"], "dialecticDepthLevels item 2 is 'all', but takes one of minimal, low"),
        ("contextTokens", "lots", "contextTokens is 'lots', but takes none or a whole number of at least 1"),
        ("oauth", {"refreshToken": ["hunter2"]}, "oauth.refreshToken is (hidden), but takes text"),
        ("baseUrl", "localhost", "baseUrl is 'localhost', but takes an http:// or https:// URL"),
    ],
)
def test_a_wrong_value_names_file_block_key_value_and_what_is_allowed(key: str, value: object, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_of({"hosts": {"hermes_coder": {key: value}}})
    assert caught.value.message.startswith(f"honcho.json, hosts.hermes_coder: {said}")


def test_every_default_is_a_value_of_its_kind_and_secrets_are_known() -> None:
    for setting in TABLE:
        assert setting.parse(setting.default, "default") == setting.default
    assert [setting.key for setting in TABLE if setting.secret] == ["apiKey", "oauth"]
