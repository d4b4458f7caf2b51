"""config.yaml and the environment: which source takes precedence, and the error texts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hermes.config_file import read_entries
from hermes.configuration import configure
from hermes.errors import SettingsError
from hermes.settings import ALLOW, API_KEY, COLOR, LOCK_TIMEOUT, PROVIDER, TABLE, TOOLS_OFF, Setting, find_setting
from hermes.settings.compound_kinds import Map
from hermes.settings.kinds import Secret, Text
from hermes.settings.layers import Given


def entry(key: str, value: object, line: int = 1) -> Given:
    return Given(key, value, f"config.yaml, line {line}")


@pytest.mark.parametrize(
    ("entries", "env", "value", "origin"),
    [
        ([], {}, "auto", "default"),
        ([entry("display.color", "never")], {}, "never", "file"),
        ([], {"HERMES_COLOR": "always"}, "always", "environment"),
        ([entry("display.color", "never")], {"HERMES_COLOR": "always"}, "always", "environment"),
        ([entry("display.color", "never")], {"HERMES_COLOR": ""}, "never", "file"),
        ([entry("display.color", None)], {}, "auto", "default"),
        ([entry("display", None)], {}, "auto", "default"),
    ],
)
def test_our_variable_beats_the_file_and_the_file_beats_the_default(
    entries: list[Given], env: dict[str, str], value: str, origin: str
) -> None:
    settings = configure(entries, env).checked()
    assert (settings.get(COLOR), settings.origin(COLOR)) == (value, origin)
    assert settings.get(LOCK_TIMEOUT) == LOCK_TIMEOUT.default


def test_only_hermes_variables_override_the_file() -> None:
    """A variable that other programs share is not meant for us alone."""
    for setting in TABLE:
        stands_in = setting is PROVIDER  # its variable says what is in force where the file says nothing
        assert setting.env_wins is ((setting.env or "").startswith("HERMES_") and not stands_in)


def test_shared_variable_applies_only_where_the_file_has_no_value() -> None:
    shared = Setting("api.key", Secret(), "", "a key", env="OPENAI_API_KEY")
    env = {"OPENAI_API_KEY": "from outside"}
    for entries in ([], [entry("api.key", None)], [entry("api", None)]):
        assert configure(entries, env, [shared]).checked().get(shared) == "from outside"
    settings = configure([entry("api.key", "from file")], env, [shared]).checked()
    assert (settings.get(shared), settings.origin(shared)) == ("from file", "file")


def test_secret_in_the_place_of_its_block_is_not_shown() -> None:
    shared = Setting("api.key", Secret(), "", "a key")
    (problem,) = configure([entry("api", "hunter2")], {}, [shared]).problems
    assert problem.message == "config.yaml, line 1: 'api' is (hidden), but takes a block of settings (api.key)"


def test_wrong_variable_is_named() -> None:
    with pytest.raises(
        SettingsError, match=r"environment variable HERMES_COLOR: display\.color is 'pink', but takes one"
    ):
        configure([], {"HERMES_COLOR": "pink"}).checked()


def test_wrong_file_value_that_a_variable_overrides_does_not_stop_anyone() -> None:
    settings = configure([entry("display.color", "pink")], {"HERMES_COLOR": "never"}).checked()
    assert settings.get(COLOR) == "never"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nstore: 5\n", "line 2: 'store' is 5, but takes a block of settings (store.lock_timeout)"),
        ("store: [1, 2]\n", "line 1: 'store' is [1, 2], but takes a block of settings (store.lock_timeout)"),
        ("store:\n  lock_timeout: [30]\n", "line 2: store.lock_timeout is [30], but takes a number from 0.1 to 600"),
        ("store:\n  lock_timeout: soon\n", "line 2: store.lock_timeout is 'soon', but takes a number from 0.1 to 600"),
        ("display:\n  color:\n    x: 1\n", "line 2: display.color is {'x': 1}, but takes one of auto, always, never"),
    ],
)  # fmt: skip
def test_mistake_in_the_file_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)
    found = configure(read_entries(config), {}).problems
    assert [problem.message for problem in found] == [f"{config}, {said}"]


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "display:\n", "display:\n  color:\n", "store: {}\n", "display: ~\n"]
)
def test_empty_values_are_no_errors(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)
    assert configure(read_entries(config), {}).problems == []
    assert configure(read_entries(config), {}).checked().origin(COLOR) == "default"


def test_several_problems_are_counted() -> None:
    entries = [entry("log", 1, 1), entry("display.color", "pink", 2), entry("store.lock_timeout", -1, 3)]
    assert len(configure(entries, {}).problems) == 3
    with pytest.raises(SettingsError, match=r"line 1: 'log' is 1, .* \(and 2 more: `hermes doctor` lists them\)"):
        configure(entries, {}).checked()


def test_every_row_of_the_table_is_sound() -> None:
    assert len({setting.key for setting in TABLE}) == len(TABLE)
    for setting in TABLE:
        assert setting.parse(setting.default, "table") == setting.default
        assert find_setting(setting.key) is setting
        assert setting.help.endswith(".")


def test_unknown_name_gets_a_suggestion() -> None:
    for key, meant in {
        "display.colr": "display.color",
        "timeout.model": "model.timeout",
        "log.lvel": "log.level",
    }.items():
        with pytest.raises(SettingsError, match=rf"there is no setting '{key}' \(did you mean {meant}\?\)"):
            find_setting(key)


def test_unknown_name_that_is_far_from_any_other_gets_its_neighbours() -> None:
    with pytest.raises(SettingsError) as caught:
        find_setting("model.name")
    assert caught.value.message == "there is no setting 'model.name'"
    assert caught.value.hint.startswith("'model' has model.base_url, model.api_key, model.default, ")
    with pytest.raises(SettingsError, match="there is no setting 'zzz'") as caught:
        find_setting("zzz")
    assert "hermes config list" in caught.value.hint


@pytest.mark.parametrize("text", ["[a, b]", "a, b", "'a,b'", "\n    - a\n    - b", '["a", "b"]'])
def test_a_list_is_a_yaml_list_or_a_text_with_commas(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"agent:\n  tools_off: {text}\ngateway:\n  allow: {text}\n")
    settings = configure(read_entries(config), {}).checked()
    assert settings.get(TOOLS_OFF) == settings.get(ALLOW) == ("a", "b")


def test_a_map_in_the_file_is_one_value(tmp_path: Path) -> None:
    names = Setting("people.names", Map(Text()), {}, "names")
    config = tmp_path / "config.yaml"
    config.write_text("people:\n  names:\n    7: alice\n    x.y: bob\n")
    settings = configure(read_entries(config, [names]), {}, [names]).checked()
    assert settings.get(names) == {"7": "alice", "x.y": "bob"}
    assert settings.where(names) == f"{config}, line 2"
    config.write_text("people:\n  names:\n    7: [alice]\n")
    (problem,) = configure(read_entries(config, [names]), {}, [names]).problems
    assert problem.message == f"{config}, line 2: people.names.7 is ['alice'], but takes text"


def test_a_wrong_secret_is_not_shown() -> None:
    (problem,) = configure([entry("model.api_key", ["hunter2"])], {}).problems
    assert problem.message == f"config.yaml, line 1: {API_KEY.key} is (hidden), but takes text"


@pytest.mark.processes
def test_the_table_costs_little_to_import() -> None:
    """`hermes --version` and every plugin import it."""
    code = "import sys, hermes.settings; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"ruamel.yaml", "asyncio", "pydantic", "httpx", "typer", "difflib"} & set(loaded)
