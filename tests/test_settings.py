"""The settings table: what each value means, which source wins, and what a person reads when it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config_file import read_entries
from hermes.errors import SettingsError
from hermes.settings import COLOR, LOCK_TIMEOUT, TABLE, FileEntry, Setting, find_setting, problems, resolve

FLAG = Setting("t.flag", True, "a switch")
COUNT = Setting("t.count", 3, "a count", minimum=1, maximum=9)
LEAST = Setting("t.least", 3, "a count", minimum=1)
MOST = Setting("t.most", 3, "a count", maximum=9)
RATE = Setting("t.rate", 0.5, "a rate", minimum=0, maximum=1)
FREE = Setting("t.free", 0.5, "any number")
NAME = Setting("t.name", "x", "a name")
PICK = Setting("t.pick", "a", "a choice", choices=("a", "b"))
SECRET = Setting("t.secret", "", "a key", choices=("", "right"), secret=True)


@pytest.mark.parametrize(
    ("setting", "raw", "value"),
    [
        *((FLAG, word, True) for word in (True, 1, "true", "Yes", " ON ", "1")),
        *((FLAG, word, False) for word in (False, 0, "false", "No", "off", "0")),
        (COUNT, 5, 5), (COUNT, 5.0, 5), (COUNT, "5", 5), (COUNT, " 5 ", 5), (COUNT, "5.0", 5),
        (COUNT, 1, 1), (COUNT, 9, 9),
        (RATE, 1, 1.0), (RATE, "0.25", 0.25), (RATE, "1e-1", 0.1), (FREE, -7, -7.0), (LEAST, 10**30, 10**30),
        (NAME, "", ""), (NAME, "päth", "päth"), (NAME, 5, "5"), (NAME, 1.5, "1.5"),
        (PICK, "b", "b"), (SECRET, "right", "right"),
    ],
)  # fmt: skip
def test_value_is_understood(setting: Setting[Any], raw: object, value: object) -> None:
    parsed = setting.parse(raw, "here")
    assert (parsed, type(parsed)) == (value, type(setting.default))


@pytest.mark.parametrize(
    ("setting", "raw", "said"),
    [
        *((FLAG, raw, "true or false") for raw in ("maybe", 2, 1.0, "", None, [True])),
        *((COUNT, raw, "a whole number from 1 to 9") for raw in (0, 10, 5.5, "5.5", "five", True, None, [5], "")),
        (LEAST, 0, "a whole number of at least 1"), (MOST, 10, "a whole number of at most 9"),
        *((RATE, raw, "a number from 0 to 1") for raw in (-0.1, 1.1, "nan", "inf", float("nan"), False, None)),
        *((FREE, raw, "a number") for raw in (float("inf"), "-inf", "nan", 10**400, "x")),
        *((NAME, raw, "text") for raw in (None, True, ["a"], {"a": 1})),
        *((PICK, raw, "one of a, b") for raw in ("c", "A", "", 1)),
    ],
)  # fmt: skip
def test_wrong_value_is_named_with_what_is_allowed(setting: Setting[Any], raw: object, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        setting.parse(raw, "config.yaml, line 7")
    assert caught.value.message == f"config.yaml, line 7: {setting.name} is {raw!r}, but takes {said}"
    assert "hermes config list" in caught.value.hint


def test_secret_is_not_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        SECRET.parse("hunter2", "here")
    assert "hunter2" not in caught.value.line()
    assert "(hidden)" in caught.value.line()


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()))
def test_any_value_is_parsed_or_refused(raw: object) -> None:
    rows: tuple[Setting[Any], ...] = (FLAG, COUNT, RATE, FREE, NAME, PICK, *TABLE)
    for setting in rows:
        try:
            assert type(setting.parse(raw, "here")) is type(setting.default)
        except SettingsError:
            continue


def entry(name: str, value: object, line: int = 1) -> FileEntry:
    return FileEntry(name, value, f"config.yaml, line {line}")


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
    entries: list[FileEntry], env: dict[str, str], value: str, origin: str
) -> None:
    settings = resolve(entries, env)
    assert (settings.get(COLOR), settings.origin(COLOR)) == (value, origin)
    assert settings.get(LOCK_TIMEOUT) == LOCK_TIMEOUT.default


@pytest.mark.parametrize(("variable", "overrides"), [("HERMES_X", True), ("OPENAI_X", False), (None, False)])
def test_only_a_variable_of_our_own_overrides_the_file(variable: str | None, overrides: bool) -> None:
    assert Setting("t.x", "", "x", env=variable).env_overrides is overrides


def test_shared_variable_only_fills_in_what_the_file_leaves_open() -> None:
    shared = Setting("api.key", "", "a key", env="OPENAI_API_KEY", secret=True)
    env = {"OPENAI_API_KEY": "from outside"}
    for entries in ([], [entry("api.key", None)], [entry("api", None)]):
        assert resolve(entries, env, [shared]).get(shared) == "from outside"
    settings = resolve([entry("api.key", "from file")], env, [shared])
    assert (settings.get(shared), settings.origin(shared)) == ("from file", "file")


def test_secret_in_the_place_of_its_block_is_not_shown() -> None:
    shared = Setting("api.key", "", "a key", secret=True)
    (problem,) = problems([entry("api", "hunter2")], {}, [shared])
    assert problem.message == "config.yaml, line 1: 'api' is (hidden), but takes a block of settings (api.key)"


def test_wrong_variable_is_named() -> None:
    with pytest.raises(
        SettingsError, match=r"environment variable HERMES_COLOR: display\.color is 'pink', but takes one"
    ):
        resolve([], {"HERMES_COLOR": "pink"})


def test_wrong_file_value_that_a_variable_overrides_does_not_stop_anyone() -> None:
    settings = resolve([entry("display.color", "pink")], {"HERMES_COLOR": "never"})
    assert settings.get(COLOR) == "never"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("display:\n  colour: never\n", "line 2: unknown setting 'display.colour' (did you mean display.color?)"),
        ("zzz: 1\n", "line 1: unknown setting 'zzz'"),
        ("zzz:\n", "line 1: unknown setting 'zzz'"),
        ("\nstore: 5\n", "line 2: 'store' is 5, but takes a block of settings (store.lock_timeout)"),
        ("store: [1, 2]\n", "line 1: 'store' is [1, 2], but takes a block of settings (store.lock_timeout)"),
        ("store:\n  lock_timeout: [30]\n", "line 2: store.lock_timeout is [30], but takes a number from 0.1 to 600"),
        ("store:\n  lock_timeout: soon\n", "line 2: store.lock_timeout is 'soon', but takes a number from 0.1 to 600"),
        ("display:\n  color:\n    x: 1\n", "line 3: unknown setting 'display.color.x' (did you mean display.color?)"),
    ],
)  # fmt: skip
def test_mistake_in_the_file_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)
    found = problems(read_entries(config), {})
    assert [problem.message for problem in found] == [f"{config}, {said}"]


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "display:\n", "display:\n  color:\n", "store: {}\n", "display: ~\n"]
)
def test_what_is_left_open_is_no_mistake(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)
    assert problems(read_entries(config), {}) == []
    assert resolve(read_entries(config), {}).origin(COLOR) == "default"


def test_several_problems_are_counted() -> None:
    entries = [entry("zzz", 1, 1), entry("display.color", "pink", 2), entry("store.lock_timeout", -1, 3)]
    assert len(problems(entries, {})) == 3
    with pytest.raises(
        SettingsError, match=r"line 1: unknown setting 'zzz' \(and 2 more: `hermes doctor` lists them\)"
    ):
        resolve(entries, {})


def test_every_row_of_the_table_is_sound() -> None:
    assert len({setting.name for setting in TABLE}) == len(TABLE)
    for setting in TABLE:
        assert setting.parse(setting.default, "table") == setting.default
        assert find_setting(setting.name) is setting
        assert setting.help.endswith(".")


def test_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(SettingsError, match=r"there is no setting 'display.colr' \(did you mean display.color\?\)"):
        find_setting("display.colr")
