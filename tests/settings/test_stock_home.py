"""A config.yaml of a stock Hermes works and is never changed; keys that are not ours cause notices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from hermes.app import App
from hermes.assembly import open_agent
from hermes.config_file import read_entries
from hermes.configuration import configure
from hermes.scope import OWNER
from hermes.settings import (
    API_KEY,
    BASE_URL,
    COMPRESSION_ENABLED,
    COMPRESSION_THRESHOLD,
    CONTEXT_LENGTH,
    LOG_LEVEL,
    MAX_STEPS,
    MEMORY_LIMIT,
    MODEL,
    PROVIDER,
    USER_LIMIT,
    Setting,
)
from hermes.store.store import Store
from tests.conftest import Ran
from tests.llm.scripted import ScriptedModel

Hermes = Callable[..., Ran]

STOCK = """\
# Kept by hand.
_config_version: 33
model:
  default: "some/model"   # quoted
  provider: custom
  base_url: http://127.0.0.1:9/v1
  api_key: ''
  context_length: 65536
providers: {}
toolsets:
- all
agent:
  max_turns: 90
  gateway_timeout: 1800
  personalities:
    helpful: "You are a helpful, friendly AI assistant."
terminal:
  backend: local
  cwd: .
  timeout: 180
compression:
  enabled: false
  threshold: 0.6
  target_ratio: 0.2
  protect_last_n: 20
auxiliary:
  vision: {provider: auto,   model: ''}
display:
  compact: false
  skin: default
memory:
  memory_enabled: true
  user_profile_enabled: true
  memory_char_limit: 2300
  user_char_limit: 1375
  provider: ''
honcho: {}
telegram:
  reactions: false
  channel_prompts: {}
logging:
  level: WARNING
  max_size_mb: 5
# the end
"""
FOREIGN = [
    "_config_version",
    "agent.gateway_timeout",
    "agent.personalities",
    "auxiliary",
    "compression.protect_last_n",
    "compression.target_ratio",
    "display.compact",
    "display.skin",
    "logging.max_size_mb",
    "memory.memory_enabled",
    "memory.user_profile_enabled",
    "telegram.reactions",
    "terminal",
    "toolsets",
]


@pytest.fixture
def config(home: Path) -> Path:
    home.mkdir()
    path = home / "config.yaml"
    path.write_text(STOCK)
    return path


@pytest.mark.contract("10.9")
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        (MODEL, "some/model"),
        (BASE_URL, "http://127.0.0.1:9/v1"),
        (API_KEY, ""),
        (CONTEXT_LENGTH, 65536),
        (MAX_STEPS, 90),
        (COMPRESSION_THRESHOLD, 0.6),
        (COMPRESSION_ENABLED, False),
        (PROVIDER, "none"),
        (MEMORY_LIMIT, 2300),
        (USER_LIMIT, 1375),
        (LOG_LEVEL, "warning"),
    ],
)
def test_keys_that_mean_the_same_are_understood(config: Path, setting: Setting[Any], value: object) -> None:
    settings = configure(read_entries(config), {}).checked()
    assert (settings.get(setting), settings.origin(setting)) == (value, "file")


@pytest.mark.contract("10.9")
async def test_stock_settings_reach_the_agent(home: Path, store: Store) -> None:
    (home / "config.yaml").write_text(STOCK)
    session = await store.create_session("cli")
    agent = open_agent(App.load(), store, ScriptedModel([]), session, OWNER, "owner")
    await agent.close()
    assert (agent.policy.max_steps, agent.policy.compresses_itself, agent.policy.compress_at) == (90, False, 0.6)


@pytest.mark.contract("10.9")
def test_a_model_may_be_a_bare_name(config: Path) -> None:
    config.write_text("model: some/model\n")
    found = configure(read_entries(config), {})
    assert (found.checked().get(MODEL), found.foreign) == ("some/model", [])


def test_our_own_key_comes_before_the_one_of_stock(config: Path, hermes: Hermes) -> None:
    assert hermes("config", "set", "agent.max_turns", "40").code == 0
    assert hermes("config", "get", "agent.max_steps").out == hermes("config", "get", "agent.max_turns").out == "40\n"
    assert "  max_turns: 90\n" in config.read_text()


@pytest.mark.contract("10.9")
def test_a_start_names_what_is_not_ours_in_one_line_and_goes_on(config: Path, hermes: Hermes) -> None:
    ran = hermes("sessions", "list")
    assert ran.code == 0
    assert ran.err == (
        f"hermes: {config}: 14 settings are not ours: _config_version, agent.gateway_timeout, agent.personalities "
        "and 11 more (kept; `hermes config list` names them)\nno sessions yet\n"
    )
    config.write_text("display:\n  color: never\nmodel:\n  provider: auto\n")
    assert hermes("sessions", "list").err == "no sessions yet\n"


@pytest.mark.contract("10.9")
def test_doctor_and_config_list_name_every_foreign_key(config: Path, hermes: Hermes) -> None:
    for command in (("config", "list"), ("config", "list", "--json"), ("doctor",)):
        ran = hermes(*command)
        assert ran.code == 0
        assert f"14 settings are not ours: {', '.join(FOREIGN)}" in ran.out + ran.err
    assert "compression.enabled" in json.loads(hermes("config", "list", "--json").out)
    config.chmod(0o600)
    findings = json.loads(hermes("doctor", "--json").out)["findings"]
    assert {finding["level"] for finding in findings if finding["check"] == "settings"} == {"ok"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("display:\n  colour: never\n", "display.colour (did you mean display.color?)"),
        ("displai:\n  color: never\n", "displai.color (did you mean display.color?)"),
        ("timeout.model: 5\n", "timeout.model (did you mean model.timeout?)"),
        ("model:\n  provider: openrouter\n", "model.provider"),
        ("model:\n  provider: [custom]\n", "model.provider"),
        ("model:\n  name: x\n", "model.name"),
        ("terminal:\n  color: never\n", "terminal"),
        ("memory:\n  limit: 5\n", "memory.limit"),
        ("zzz:\n", "zzz"),
        ("7: [1]\n", "7"),
    ],
)
def test_a_suggestion_is_made_only_for_a_slip(config: Path, hermes: Hermes, text: str, named: str) -> None:
    config.write_text(text)
    ran = hermes("sessions", "list")
    assert ran.code == 0
    assert f"1 setting is not ours: {named} (kept)\n" in ran.err
    doctor = hermes("doctor")
    assert ("correct its name" in doctor.out) is ("did you mean" in named)
    assert named in doctor.out


def test_probable_typos_are_named_first(config: Path, hermes: Hermes) -> None:
    config.write_text(f"{STOCK}zzz: 1\nlgo.level: debug\n")
    assert (
        "16 settings are not ours: lgo.level (did you mean log.level?), _config_version"
        in hermes("sessions", "list").err
    )


def test_a_key_that_steers_terminals_does_not_reach_one(config: Path, hermes: Hermes) -> None:
    config.write_text('"\\e[31mred": 1\n')
    for command in (("sessions", "list"), ("config", "list"), ("doctor",)):
        ran = hermes(*command)
        assert "[31mred" in ran.out + ran.err
        assert "\x1b" not in ran.out + ran.err


@pytest.mark.contract("10.9")
@pytest.mark.parametrize(
    "line",
    ["agent:\n  max_turns: many\n", "compression:\n  enabled: maybe\n", "logging:\n  level: loud\n", "model: [a]\n"],
)
def test_a_wrong_value_of_a_key_that_we_read_is_an_error_that_names_it(config: Path, hermes: Hermes, line: str) -> None:
    config.write_text(line)
    ran = hermes("sessions", "list")
    assert ran.code == 2
    key = ".".join(part.partition(":")[0].strip() for part in line.splitlines())
    assert f"{config}, line {line.count(chr(10))}: {key} is " in ran.err
    assert ", but takes " in ran.err


CHANGES = (
    ("model.default", "new", '  default: "some/model"   # quoted\n', "  default: new   # quoted\n"),
    ("model.api_key", "k", "  api_key: ''\n", "  api_key: k\n"),
    ("memory.provider", "honcho", "  provider: ''\n", "  provider: honcho\n"),
    ("compression.threshold", "0.7", "  threshold: 0.6\n", "  threshold: 0.7\n"),
    ("agent.tools_off", "a, b", 'friendly AI assistant."\n', 'friendly AI assistant."\n  tools_off: [a, b]\n'),
    ("log.level", "debug", "  max_size_mb: 5\n", "  max_size_mb: 5\nlog:\n  level: debug\n"),
)


@pytest.mark.contract("10.9")
def test_our_writes_leave_everything_else_unchanged(config: Path, hermes: Hermes) -> None:
    expected = STOCK
    for key, value, before, after in CHANGES:
        assert hermes("config", "set", key, value).code == 0
        expected = expected.replace(before, after)
        assert config.read_text() == expected
    document = YAML(typ="safe").load(expected)
    assert {key: document[key] for key in ("_config_version", "terminal", "toolsets", "auxiliary")} == {
        key: YAML(typ="safe").load(STOCK)[key] for key in ("_config_version", "terminal", "toolsets", "auxiliary")
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model: a/b  # mine\n\n# of z\nz: [1,  2]\n",
         "model:  # mine\n  default: a/b\n  base_url: http://x/v1\n\n# of z\nz: [1,  2]\n"),
        ("z: 1\nmodel: 'a: b'", "z: 1\nmodel:\n  default: 'a: b'\n  base_url: http://x/v1\n"),
        ("model: a\r\nz: 1\r\n", "model:\r\n  default: a\r\n  base_url: http://x/v1\r\nz: 1\r\n"),
        ("model:\nz: 1\n", "model:\n  base_url: http://x/v1\nz: 1\n"),
    ],
)  # fmt: skip
def test_bare_model_name_becomes_a_block_when_more_keys_are_set(
    config: Path, hermes: Hermes, before: str, after: str
) -> None:
    config.write_bytes(before.encode())
    assert hermes("config", "set", "model.base_url", "http://x/v1").code == 0
    assert config.read_bytes().decode() == after


def test_a_name_over_several_lines_is_left_for_a_person_to_move(config: Path, hermes: Hermes) -> None:
    text = "model: >\n  a\n  b\n"
    config.write_text(text)
    ran = hermes("config", "set", "model.base_url", "http://x/v1")
    assert ran.code == 2
    assert "'model' holds a value, not a block of settings" in ran.err
    assert config.read_text() == text
