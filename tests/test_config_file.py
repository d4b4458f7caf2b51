"""config.yaml: read with line numbers, edited in place, replaced atomically."""

from __future__ import annotations

import itertools
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from hermes.config_file import put_value, read_entries, read_env_file, write_setting
from hermes.configuration import configure
from hermes.errors import HomeError, SettingsError
from hermes.files import NOT_UTF8, locked, replace_file
from hermes.settings import COLOR, LOCK_TIMEOUT, TOOLS_OFF, Setting
from hermes.settings.compound_kinds import Map
from hermes.settings.kinds import Text

DEEP = Setting("a.b.c", Text(), "x", "deep")
NAMED = Setting("a.b", Map(Text()), {}, "a map")
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and links")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def entries(config: Path, text: str | bytes) -> dict[str, object]:
    config.write_bytes(text if isinstance(text, bytes) else text.encode())
    return {entry.key: entry.value for entry in read_entries(config)}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("# only a comment\n", {}),
        ("---\n", {}),
        ("{}\n", {}),
        ("store:\n", {"store": None}),
        ("store: {}\n", {}),
        ("store:\n  lock_timeout: 5\n", {"store.lock_timeout": 5}),
        ("store: 5\n", {"store": 5}),
        ("store.lock_timeout: 5\n", {"store.lock_timeout": 5}),
        ("display: {color: never}\n", {"display.color": "never"}),
        ("a: [1, 2]\n", {"a": [1, 2]}),
        ("a: null\nb: ~\n", {"a": None, "b": None}),
        ("a: yes\n", {"a": "yes"}),
        ("7: x\ntrue: y\n", {"7": "x", "True": "y"}),
        ("base: &b {x: 1}\nmore:\n  <<: *b\n  y: 2\n", {"base.x": 1, "more.x": 1, "more.y": 2}),
        ("\ufeffa: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    ],
)
def test_leaves_of_the_file_are_read(config: Path, text: str, wanted: dict[str, object]) -> None:
    assert entries(config, text) == wanted


def test_file_that_is_not_there_holds_nothing(config: Path) -> None:
    assert read_entries(config) == []
    assert not config.exists()


def test_entry_knows_its_line(config: Path) -> None:
    config.write_text("# head\n\nstore:\n  # why\n  lock_timeout: 5\nlast: [\n 1]\n")
    assert [entry.where for entry in read_entries(config)] == [f"{config}, line 5", f"{config}, line 6"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1, 2\nb: 3\n", r"config\.yaml, line \d+: "),
        ("a: 1\na: 2\n", r'config\.yaml, line 2: found duplicate key "a"'),
        ("a: b: c\n", r"config\.yaml, line 1: mapping values are not allowed here"),
        ("- a\n- b\n", "must hold settings as `name: value`"),
        ("just words\n", "must hold settings as `name: value`"),
        ("5\n", "must hold settings as `name: value`"),
        (b"\xff\xfe\x00binary", NOT_UTF8),
        (b"SQLite format 3\x00\x10", "config.yaml"),
        ("a: *nowhere\n", "undefined alias"),
        ("a: 1\n---\nb: 2\n", "document"),
        ("&r\na: *r\n", "'a' contains itself"),
        ("a: 2024-99-99\n", "config.yaml"),
        ("[" * 1000, "config.yaml"),
    ],
)
def test_broken_file_is_one_clear_line(config: Path, text: str | bytes, said: str) -> None:
    config.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SettingsError, match=said) as caught:
        read_entries(config)
    assert str(config) in caught.value.message
    assert "\n" not in caught.value.line()


def test_folder_in_place_of_the_file_is_reported(config: Path) -> None:
    config.mkdir()
    with pytest.raises(SettingsError, match=r"cannot read .*config\.yaml: it is a folder, not a file"):
        read_entries(config)


def told(config: Path) -> list[str]:
    """Return the location of each entry, or the error."""
    try:
        return [entry.where for entry in read_entries(config)]
    except SettingsError as refused:
        return [refused.line()]


@given(
    data=st.binary(max_size=40)
    | st.text(alphabet="ab:-[]{}&*!|>'\"#%@`~,? \n\t0123456789.", max_size=40).map(str.encode)
)
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    config = tmp_path_factory.getbasetemp() / "any.yaml"
    config.write_bytes(data)
    assert all(str(config) in line and "\n" not in line for line in told(config))


FULL = """\
# My settings.   Kept by hand.

display:      # how it looks
    color: 'auto'   # quoted

# a list in my own style
things:
      -  "one"
      - two
numbers: 0x1F
long: "{long}"
store:
    lock_timeout: 30.0 # seconds
    # last comment of the block

# the end
""".format(long="word " * 60)


@pytest.mark.parametrize(
    ("before", "setting", "value", "after"),
    [
        (FULL, LOCK_TIMEOUT, 5.5, FULL.replace("30.0 #", "5.5 #")),
        (FULL, COLOR, "never", FULL.replace("'auto'  ", "never  ")),
        (FULL, DEEP, "v", FULL.replace("30.0 # seconds\n", "30.0 # seconds\na:\n  b:\n    c: v\n")),
        ("", COLOR, "never", "display:\n  color: never\n"),
        ("# a note\n", COLOR, "never", "# a note\ndisplay:\n  color: never\n"),
        ("# a note", COLOR, "never", "# a note\ndisplay:\n  color: never\n"),
        ("display:\n", COLOR, "never", "display:\n  color: never\n"),
        ("display:  # look\n  # color: auto\nb: 1\n", COLOR, "never",
         "display:  # look\n  color: never\n  # color: auto\nb: 1\n"),
        ("display:\n  color:\nb: 1\n", COLOR, "never", "display:\n  color: never\nb: 1\n"),
        ("display:\n   size: 4", COLOR, "never", "display:\n   size: 4\n   color: never\n"),
        ("display:\r\n  size: 4\r\nb: 1\r\n", COLOR, "never",
         "display:\r\n  size: 4\r\n  color: never\r\nb: 1\r\n"),
        ("a:\n  b:\n    d: |\n      text\n      more\nz: 1\n", DEEP, "v",
         "a:\n  b:\n    d: |\n      text\n      more\n    c: v\nz: 1\n"),
        ("a:\n  b:\n    c: |\n      text\nz: 1\n", DEEP, "v", "a:\n  b:\n    c: v\nz: 1\n"),
        ("a:\n  x: 1\n", DEEP, "yes: # no", "a:\n  x: 1\n  b:\n    c: 'yes: # no'\n"),
        ("a: 1\nb:\n- x\n", COLOR, "never", "a: 1\nb:\n- x\ndisplay:\n  color: never\n"),
        ("", TOOLS_OFF, ("a", "b, c"), "agent:\n  tools_off: [a, 'b, c']\n"),
        ("agent:\n  tools_off: a,b  # two\n", TOOLS_OFF, ("c",), "agent:\n  tools_off: [c]  # two\n"),
        ("agent:\n  tools_off: [a, b]  # two\n", TOOLS_OFF, (), "agent:\n  tools_off: []  # two\n"),
        ("agent:\n  tools_off:\n    - a\n    - b  # last\n# of z\nz: 1\n", TOOLS_OFF, ("c",),
         "agent:\n  tools_off: [c]  # last\n# of z\nz: 1\n"),
        ("agent:\n  tools_off:  # mine\n    - a\n# of z\nz: 1\n", TOOLS_OFF, ("c",),
         "agent:\n  tools_off:  # mine\n    [c]\n# of z\nz: 1\n"),
        ("agent:\n  tools_off:\n# the end\n", TOOLS_OFF, ("c",), "agent:\n  tools_off: [c]\n# the end\n"),
        ("a:\n  b:\n    x: y\n  z: {k: [1]}\n", NAMED, {"x": "1", "7": "w"},
         "a:\n  b: {x: '1', '7': w}\n  z: {k: [1]}\n"),
    ],
)  # fmt: skip
def test_written_value_is_the_only_change(
    config: Path, before: str, setting: Setting[Any], value: object, after: str
) -> None:
    config.write_bytes(before.encode())
    write_setting(config, setting, value)
    assert config.read_bytes().decode() == after


@pytest.mark.parametrize(
    "before",
    ["{a: 1}\n", "display: {size: 4}\n", "display: null\nb: 1\n", "---\na: 1\n...\n", "display: &d\n  x: 1\nb: *d\n",
     "? display\n: size: 4\n", "display: {}\n", '"display": {"color": "auto"}\n', "display:\n  color: [1, 2]\n"],
)  # fmt: skip
def test_value_can_be_written_into_any_shape_of_file(config: Path, before: str) -> None:
    config.write_text(before)
    others = {entry.key: entry.value for entry in read_entries(config) if entry.key[0] not in "db"}
    write_setting(config, COLOR, "never")
    after = {entry.key: entry.value for entry in read_entries(config)}
    assert after["display.color"] == "never"
    assert {name: value for name, value in after.items() if name[0] not in "db"} == others


KEYS = st.sampled_from(["a", "b", "c", "store", "x y"])
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text("ab #:'\"\n", max_size=6)
    | st.lists(st.integers(0, 3), max_size=2)
)
DOCUMENTS = st.recursive(VALUES, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=6).filter(
    lambda value: isinstance(value, dict)
)


@given(DOCUMENTS, st.text(min_size=1, max_size=8).filter(str.isprintable))
def test_anything_written_is_read_back_and_nothing_else_changes(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, object], value: str
) -> None:
    config = tmp_path_factory.getbasetemp() / "some.yaml"
    with config.open("w", encoding="utf-8") as file:
        YAML().dump(document, file)
    before = {entry.key: entry.value for entry in read_entries(config)}
    if before.get("a") is not None or before.get("a.b") is not None:
        with pytest.raises(SettingsError, match="holds a value, not a block"):
            write_setting(config, DEEP, value)
        assert {entry.key: entry.value for entry in read_entries(config)} == before
        return
    write_setting(config, DEEP, value)
    after = {entry.key: entry.value for entry in read_entries(config)}
    assert after.pop("a.b.c") == value
    gone = {name for name in before if name == "a.b.c" or name.startswith("a.b.c.") or name in ("a", "a.b")}
    assert after == {name: found for name, found in before.items() if name not in gone}


DOTTED = st.recursive(
    VALUES,
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "c", "a.b", "b.c", "a.b.c", "c.d"]), inner, max_size=3),
    max_leaves=6,
).filter(lambda value: isinstance(value, dict))


@given(DOTTED)
def test_a_setting_is_written_where_it_stands_however_its_name_is_split(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, object]
) -> None:
    config = tmp_path_factory.getbasetemp() / "dotted.yaml"
    with config.open("w", encoding="utf-8") as file:
        YAML().dump(document, file)
    data = config.read_bytes()
    before = [(entry.key, repr(entry.value)) for entry in read_entries(config)]
    try:
        write_setting(config, DEEP, "new")
    except SettingsError:
        assert config.read_bytes() == data
        return
    after = [(entry.key, repr(entry.value)) for entry in read_entries(config)]
    assert [value for name, value in after if name == "a.b.c"] == ["'new'"]
    kept = [entry for entry in after if entry[0] != "a.b.c"]
    assert all(before.count(entry) >= kept.count(entry) for entry in kept)
    lost = [
        name for name, value in before if (name, value) not in after and not (name in ("a", "a.b") and value == "None")
    ]
    assert all(name == "a.b.c" or name.startswith("a.b.c.") for name in lost)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("display.color: auto  # mine\n", "display.color: never  # mine\n"),
        ("display:\n  size: 4\ndisplay.color: auto\n", "display:\n  size: 4\ndisplay.color: never\n"),
        ("display.size: 4\n", "display.size: 4\ndisplay:\n  color: never\n"),
    ],
)
def test_a_dotted_name_is_replaced_where_it_stands(config: Path, before: str, after: str) -> None:
    config.write_text(before)
    write_setting(config, COLOR, "never")
    assert config.read_text() == after


def test_setting_that_occurs_twice_is_an_error_that_names_both_lines(config: Path) -> None:
    text = "store.lock_timeout: 5\nstore:\n  lock_timeout: 6\n"
    config.write_text(text)
    with pytest.raises(SettingsError, match=r"line 3: store\.lock_timeout is set a second time .*line 1\)"):
        configure(read_entries(config), {}).checked()
    with pytest.raises(SettingsError, match=r"store\.lock_timeout is set 2 times"):
        write_setting(config, LOCK_TIMEOUT, 7.0)
    assert config.read_text() == text
    write_setting(config, COLOR, "never")
    assert config.read_text() == text + "display:\n  color: never\n"


def test_value_in_place_of_a_block_is_reported_and_kept(config: Path) -> None:
    config.write_text("display: 5\n")
    with pytest.raises(SettingsError, match="'display' holds a value, not a block of settings"):
        write_setting(config, COLOR, "never")
    assert config.read_text() == "display: 5\n"


def test_broken_file_is_not_overwritten(config: Path) -> None:
    config.write_text("a: [1\n")
    with pytest.raises(SettingsError):
        write_setting(config, COLOR, "never")
    assert config.read_text() == "a: [1\n"


ALIASES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{p: *a{n - 1}, q: *a{n - 1}}}\n" for n in range(1, 40))

LIST_ALIASES = (
    "a0: &a0 [x]\n"
    + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    + "gateway: {allow: *a39}\n"
)


@pytest.mark.contract("5.3")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 20_000, "line 1: lists and maps are nested more than 64 deep"),
        ("a: 1\nb: " + '{"c":' * 20_000, "line 2: lists and maps are nested more than 64 deep"),
        ("- " * 20_000, "nested more than 64 deep"),
        ("".join(" " * depth + f"k{depth}:\n" for depth in range(100)), "line 65: lists and maps are nested"),
        ("[" * 60_000_000, "it has 60,000,000 bytes, and at most 131,072 are read"),
        (ALIASES, "more than 10,000 settings"),
        (LIST_ALIASES, "more than 10,000 settings and list items"),
        ("b0: &b0 [x]\n" + "".join(f"b{n}: &b{n} [*b{n - 1}]\n" for n in range(1, 2000)), "nested more than 64 deep"),
        ("b0: &b0 {x: 1}\n" + "".join(f"b{n}: &b{n} {{c: *b{n - 1}}}\n" for n in range(1, 2000)), "more than 64 deep"),
    ],
    ids=["lists", "maps", "dashes", "blocks", "size", "aliases", "lists by alias", "deep lists", "deep maps"],
)
def test_file_that_takes_too_long_to_read_is_refused_and_kept(config: Path, text: str, told: str) -> None:
    config.write_text(text, encoding="utf-8")
    for use in (read_entries, lambda path: write_setting(path, COLOR, "never")):
        with pytest.raises(SettingsError, match=re.escape(str(config))) as error:
            use(config)
        assert told in error.value.message
    assert config.read_text(encoding="utf-8") == text


def test_put_value_is_pure() -> None:
    assert put_value("a: 1\n", ["b"], 2) == put_value("a: 1\n", ["b"], 2) == "a: 1\nb: 2\n"


def test_env_file_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    assert read_env_file(path) == {}
    path.write_bytes(b"\xef\xbb\xbf# keys\r\nA=1\r\nexport B='two words'\r\nC=$A\r\nEMPTY=\r\nALONE\r\n")
    assert read_env_file(path) == {"A": "1", "B": "two words", "C": "$A", "EMPTY": ""}
    path.write_bytes(b"A=\xff\n")
    with pytest.raises(SettingsError, match=NOT_UTF8):
        read_env_file(path)


@posix
def test_written_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    config = tmp_path / "new" / "config.yaml"
    write_setting(config, COLOR, "never")
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700
    config.chmod(0o644)
    write_setting(config, COLOR, "auto")
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


@posix
@pytest.mark.parametrize("there", [True, False])
def test_link_stays_a_link_and_its_target_is_written(tmp_path: Path, there: bool) -> None:
    target = tmp_path / "dotfiles" / "hermes.yaml"
    target.parent.mkdir()
    if there:
        target.write_text("# mine\n")
    config = tmp_path / "config.yaml"
    config.symlink_to(Path("dotfiles") / "hermes.yaml")
    write_setting(config, COLOR, "never")
    assert config.is_symlink()
    assert target.read_text() == ("# mine\n" if there else "") + "display:\n  color: never\n"
    assert names(tmp_path) == ["config.yaml", "config.yaml.lock", "dotfiles"]
    assert names(target.parent) == ["hermes.yaml"]


HOLD = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@posix
@pytest.mark.processes
def test_the_lock_is_the_one_that_other_programs_take_on_the_file(config: Path) -> None:
    """`flock` on `<path>.lock`, which is never removed: all waiting programs must find the same file."""
    command = [sys.executable, "-c", HOLD, f"{config}.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(HomeError, match=r"another process has locked .*config\.yaml"), locked(config, timeout=0.1):
            raise AssertionError("it was free")
        other.communicate()
    with locked(config, timeout=0.1):
        pass
    assert names(config.parent) == ["config.yaml.lock"]


@posix
def test_links_in_a_cycle_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(HomeError, match="cannot write"):
        replace_file(tmp_path / "a", "x")


def test_failed_replacement_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "half a file \ud800")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["config.yaml"]


def test_file_that_cannot_be_replaced_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config.yaml" / "full").mkdir(parents=True)
    with pytest.raises(HomeError, match=r"cannot write .*config\.yaml"):
        replace_file(tmp_path / "config.yaml", "x")
    assert names(tmp_path) == ["config.yaml"]


def test_concurrent_change_by_a_program_without_our_lock_is_kept(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a program that writes while our file is on its way to the disk, at the last moment that is noticed."""
    config.write_text("theirs: 0\n")
    sync, written = os.fsync, itertools.count(1)

    def sync_while_another_writes(file: int) -> None:
        sync(file)
        if (number := next(written)) <= 3:
            config.write_text(re.sub(r"theirs: \d+", f"theirs: {number}", config.read_text()))

    monkeypatch.setattr("hermes.files.os.fsync", sync_while_another_writes)
    write_setting(config, DEEP, "ours")
    assert YAML(typ="safe").load(config) == {"theirs": 3, "a": {"b": {"c": "ours"}}}


def test_file_that_keeps_changing_is_an_error(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = (f"theirs: {number}\n" for number in itertools.count())
    monkeypatch.setattr("hermes.config_file._read", lambda _: next(texts))
    with pytest.raises(SettingsError, match="another program keeps changing"):
        write_setting(config, DEEP, "x")
    assert names(config.parent) == ["config.yaml.lock"]
