"""`hermes backup` and `hermes restore`: one file for a home with its memory, whole whatever happens."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from hermes.owner import backup as backups
from hermes.owner import restoring
from hermes.owner.backup import MANIFEST, SHARED_MEMORY, Manifest, read_archive, read_manifest
from hermes.owner.restoring import HOW_TO_END
from tests.cli.filling import fill, hold_gateway
from tests.conftest import Ran
from tests.db.processes import ROOT

pytestmark = pytest.mark.contract("10.3")
Hermes = Callable[..., Ran]


def quiet(_done: int, _name: str) -> None:
    """Progress that nobody looks at."""


def furnish(home: Path) -> None:
    """Give a home a session, notes, settings, a key, a plugin, a profile, and a memory of one fact."""
    fill(home, "my cat is called Miso", "Miso!")
    (home / "config.yaml").write_text("model:\n  default: small\n", encoding="utf-8")
    (home / ".env").write_text("OPENAI_API_KEY=sk-secret\n", encoding="utf-8")
    (home / "USER.md").write_text("Likes tea.\n", encoding="utf-8")
    (home / "plugins").mkdir()
    (home / "plugins" / "mine.py").write_text("x = 1\n", encoding="utf-8")
    fill(home / "profiles" / "work", "a talk at work")
    (home / "memory").mkdir()
    (home / "memory" / "tombstones.key").write_bytes(b"k" * 32)
    (home / "memory" / "server.json").write_text("{}", encoding="utf-8")
    with closing(sqlite3.connect(home / "memory" / "memory.db")) as memory:
        memory.execute("CREATE TABLE conclusions (text TEXT)")
        memory.execute("INSERT INTO conclusions VALUES ('a cat called Miso')")
        memory.commit()


def texts_of(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "state.db")) as store:
        return [str(row[0]) for row in store.execute("SELECT content FROM messages ORDER BY id")]


@pytest.fixture
def saved(hermes: Hermes, home: Path, tmp_path: Path) -> Path:
    """A backup of a furnished home."""
    furnish(home)
    target = tmp_path / "saved.zip"
    assert hermes("backup", str(target)).code == 0
    return target


def test_a_backup_holds_all_of_a_home_for_its_owner_alone(hermes: Hermes, saved: Path, home: Path) -> None:
    with zipfile.ZipFile(saved) as zipped:
        names = set(zipped.namelist())
    held = {"home/state.db", "home/.env", "home/config.yaml", "home/USER.md", "home/plugins/mine.py"}
    assert held | {"home/profiles/work/state.db", "memory/memory.db", "memory/tombstones.key", MANIFEST} <= names
    assert not any(name.endswith(("server.json", "-wal", "-shm", ".lock")) for name in names)
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    found = read_archive(saved, None, quiet)
    assert found.count_rows("state.db") == {"sessions": 2, "messages": 3}
    assert found.count_rows("memory.db") == {"conclusions": 1}
    again = hermes("backup", str(saved))
    assert (again.code, "is there already" in again.err) == (2, True)
    forced = hermes("backup", str(saved), "--force", "--json")
    assert json.loads(forced.out)["state"] == {"sessions": 2, "messages": 3}


def test_a_person_is_told_that_a_backup_holds_secrets(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    furnish(home)
    ran = hermes("backup", str(tmp_path))
    assert "2 sessions, 3 messages, 1 conclusion" in ran.out
    assert "It contains your keys" in ran.out
    assert [path.suffix for path in tmp_path.glob("hermes-backup-default-*")] == [".zip"]


def test_a_backup_is_not_written_into_the_home(hermes: Hermes, home: Path) -> None:
    furnish(home)
    ran = hermes("backup", str(home / "saved.zip"))
    assert (ran.code, "is inside the home" in ran.err) == (2, True)


def test_a_restored_home_is_as_it_was_and_the_old_one_is_kept(hermes: Hermes, saved: Path, home: Path) -> None:
    fill(home, "said after the backup")
    (home / "USER.md").write_text("Likes coffee.\n", encoding="utf-8")
    refused = hermes("restore", str(saved))
    assert (refused.code, "needs a confirmation" in refused.err) == (2, True)
    done = hermes("restore", str(saved), "--yes", "--json")
    assert done.code == 0, done.err
    assert texts_of(home) == ["my cat is called Miso", "Miso!"]
    assert (home / "USER.md").read_text() == "Likes tea.\n"
    assert (home / "memory" / "tombstones.key").read_bytes() == b"k" * 32
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    kept = Path(json.loads(done.out)["kept"][str(home)])
    assert "said after the backup" in texts_of(kept)
    assert not list(home.parent.glob(".hermes-unfinished-*"))


def test_a_backup_becomes_a_home_where_there_was_none(
    hermes: Hermes, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "new" / "home"))
    ran = hermes("restore", str(saved))
    assert (ran.code, "kept" in ran.out) == (0, False), ran.err
    assert texts_of(tmp_path / "new" / "home") == ["my cat is called Miso", "Miso!"]


def test_a_memory_folder_elsewhere_is_saved_and_put_back_there(
    hermes: Hermes, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(home)
    elsewhere = tmp_path / "elsewhere"
    (home / "memory").rename(elsewhere)
    monkeypatch.setenv("HERMES_MEMORY_DATA", str(elsewhere))
    assert hermes("backup", str(tmp_path / "saved.zip")).code == 0
    (elsewhere / "tombstones.key").unlink()
    done = hermes("restore", str(tmp_path / "saved.zip"), "--yes", "--json")
    assert set(json.loads(done.out)["kept"]) == {str(home), str(elsewhere)}
    assert (elsewhere / "tombstones.key").exists()


def test_a_profile_is_saved_alone_and_goes_back_to_a_profile(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    furnish(home)
    target = tmp_path / "work.zip"
    ran = hermes("-p", "work", "backup", str(target))
    assert SHARED_MEMORY in ran.err
    assert not any(one.name.startswith("memory/") for one in read_manifest(target).files)
    refused = hermes("restore", str(target), "--yes")
    assert (refused.code, "-p work restore" in refused.err) == (2, True)
    assert hermes("-p", "other", "restore", str(target)).code == 0
    assert texts_of(home / "profiles" / "other") == ["a talk at work"]


def test_what_a_provider_keeps_elsewhere_is_saved_too(
    hermes: Hermes, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(home)
    monkeypatch.setenv("HERMES_MEMORY_PROVIDER", "honcho")
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    shared = tmp_path / "person" / ".honcho" / "config.json"
    shared.parent.mkdir(parents=True)
    shared.write_text('{"peerName": "ann"}', encoding="utf-8")
    assert hermes("backup", str(tmp_path / "saved.zip")).code == 0
    ran = hermes("restore", str(tmp_path / "saved.zip"), "--yes")
    put = home / "restored-outside" / "0" / "config.json"
    assert put.read_text() == '{"peerName": "ann"}'
    assert f"{put} was at {shared}" in ran.out


def test_nothing_is_restored_while_a_gateway_runs(hermes: Hermes, saved: Path, home: Path) -> None:
    hold_gateway(home)
    ran = hermes("restore", str(saved), "--yes")
    assert (ran.code, HOW_TO_END in ran.err) == (2, True)


@pytest.mark.skipif(not Path("/proc").exists(), reason="only /proc says who has a file open")
@pytest.mark.processes
def test_nothing_is_restored_while_a_process_has_the_store_open(hermes: Hermes, saved: Path, home: Path) -> None:
    program = "import sys, time; file = open(sys.argv[1]); print('open', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", program, home / "state.db"], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        ran = hermes("restore", str(saved), "--yes")
        assert (ran.code, f"process {holder.pid} uses {home}" in ran.err) == (2, True)
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.processes
def test_a_backup_is_of_one_moment_while_others_write(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    furnish(home)
    over = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(home / "memory" / "memory.db", timeout=30)) as memory:
            memory.execute("PRAGMA journal_mode = WAL")
            while (
                not over.is_set()
            ):  # two rows in each transaction: a copy of one moment has an odd number with the first
                memory.executemany("INSERT INTO conclusions VALUES (?)", [("one",), ("two",)])
                memory.commit()

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for number in range(5):
            target = tmp_path / f"{number}.zip"
            assert hermes("backup", str(target)).code == 0
            assert read_archive(target, None, quiet).count_rows("memory.db")["conclusions"] % 2 == 1
    finally:
        over.set()
        writing.join()


def rewrite(saved: Path, change: Callable[[Manifest], Manifest], extra: dict[str, bytes] | None = None) -> None:
    """Write an archive anew with another manifest, and more or other files."""
    with zipfile.ZipFile(saved) as zipped:
        held = {name: zipped.read(name) for name in zipped.namelist()} | (extra or {})
    found = change(msgspec.json.decode(held.pop(MANIFEST), type=Manifest))
    with zipfile.ZipFile(saved, "w") as zipped:
        for name, raw in held.items():
            zipped.writestr(name, raw)
        zipped.writestr(MANIFEST, msgspec.json.encode(found))


def renamed(found: Manifest, name: str) -> Manifest:
    first, *rest = found.files
    return msgspec.structs.replace(found, files=[msgspec.structs.replace(first, name=name), *rest])


def cut(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:-100])


def flip(saved: Path) -> None:
    rewrite(saved, lambda found: found, {"home/USER.md": b"Likes gin.\n"})


def grow(saved: Path) -> None:
    rewrite(saved, lambda found: found, {"home/USER.md": bytes(50_000_000)})


def add(saved: Path) -> None:
    rewrite(saved, lambda found: found, {"home/more.py": b"x"})


def climb(saved: Path) -> None:
    rewrite(saved, lambda found: renamed(found, "home/../../../tmp/climbed"))


def lead(saved: Path) -> None:
    rewrite(saved, lambda found: renamed(found, "/etc/climbed"))


def be_foreign(saved: Path) -> None:
    with zipfile.ZipFile(saved, "w") as zipped:
        zipped.writestr("photo.txt", b"x")


def be_text(saved: Path) -> None:
    saved.write_text("not an archive\n" * 100)


def be_later(saved: Path) -> None:
    rewrite(saved, lambda found: msgspec.structs.replace(found, hermes_backup=2))


FAULTS: dict[Callable[[Path], None], str] = {
    cut: "is no whole backup",
    flip: "home/USER.md is not what was saved",
    grow: "home/USER.md is not what was saved",
    add: "holds other files than its manifest lists",
    climb: "names a file outside of a home",
    lead: "names a file outside of a home",
    be_foreign: "is no backup of hermes",
    be_text: "is no whole backup",
    be_later: "has format 2",
}


@pytest.mark.parametrize("spoil", FAULTS)
def test_a_file_that_is_no_whole_backup_changes_nothing(
    hermes: Hermes, saved: Path, home: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(saved)
    before = sorted(path.name for path in home.parent.iterdir())
    ran = hermes("restore", str(saved), "--yes")
    assert (ran.code, FAULTS[spoil] in ran.err) == (1, True), ran.err
    assert texts_of(home) == ["my cat is called Miso", "Miso!"]
    assert sorted(path.name for path in home.parent.iterdir()) == before


def test_what_is_no_file_is_refused(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    furnish(home)
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("none.zip", "No such file"), ("", "it is a folder"), ("pipe", "it is a pipe")):
        ran = hermes("restore", str(tmp_path / name))
        assert (ran.code, why in ran.err) == (1, True), ran.err


def test_a_database_that_is_not_sound_is_named_and_leaves_no_backup(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    furnish(home)
    raw = bytearray((home / "state.db").read_bytes())
    raw[4096:12288] = os.urandom(8192)
    (home / "state.db").write_bytes(raw)
    ran = hermes("backup", str(tmp_path / "out" / "saved.zip"))
    (tmp_path / "out").mkdir()
    ran = hermes("backup", str(tmp_path / "out" / "saved.zip"))
    assert (ran.code, str(home / "state.db") in ran.err) == (1, True)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_restore_needs_room_before_it_writes(
    hermes: Hermes, saved: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "FREE_BYTES", 2**60)
    ran = hermes("restore", str(saved), "--yes")
    assert (ran.code, "are free; nothing was changed" in ran.err) == (1, True)


def test_a_full_disk_ends_a_backup_with_a_line(
    hermes: Hermes, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(home)

    def fill_up(_path: Path) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(backups, "_sync", fill_up)
    ran = hermes("backup", str(tmp_path / "saved.zip"))
    assert (ran.code, "No space left" in ran.err, "Free some space" in ran.err) == (1, True, True)
    assert not (tmp_path / "saved.zip").exists()


@pytest.fixture
def killed(home: Path, processes: None) -> Callable[..., None]:
    """Runs `hermes` in a process that is killed when it comes to a line of the source."""

    def run(place: str, *arguments: str) -> None:
        program = (
            "import os, signal, sys\n"
            "from hermes.owner import backup, restoring\n"
            "def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)\n"
            f"{place}\n"
            "from hermes.__main__ import main\n"
            "sys.exit(main())"
        )
        ran = subprocess.run([sys.executable, "-c", program, *arguments], cwd=ROOT, env=os.environ, check=False)
        assert ran.returncode == -signal.SIGKILL

    return run


@pytest.mark.parametrize("place", ["backup.check_sound = die", "backup._put = die", "backup.read_archive = die"])
def test_a_killed_backup_leaves_no_file_that_looks_like_one(
    hermes: Hermes, home: Path, tmp_path: Path, killed: Callable[..., None], place: str
) -> None:
    furnish(home)
    out = tmp_path / "out"
    out.mkdir()
    killed(place, "backup", str(out / "saved.zip"))
    assert not (out / "saved.zip").exists()
    assert len(list(out.glob(".hermes-unfinished-*"))) == 1
    assert hermes("backup", str(out / "saved.zip")).code == 0
    assert [path.name for path in out.iterdir()] == ["saved.zip"], "what was left is gone"


@pytest.mark.parametrize(
    "place",
    [
        "restoring._check_database = die",
        "restoring._put_in_place = die",
        "restoring.swap = die",
        "real = restoring.swap\ndef then_die(*given): real(*given); die()\nrestoring.swap = then_die",
    ],
)
def test_a_killed_restore_leaves_the_old_home_or_the_new_one(
    hermes: Hermes, saved: Path, home: Path, killed: Callable[..., None], place: str
) -> None:
    fill(home, "said after the backup")
    old, new = [*texts_of(home)], ["my cat is called Miso", "Miso!"]
    killed(place, "restore", str(saved), "--yes")
    assert texts_of(home) == (new if "then_die" in place else old)
    assert (home / "memory" / "tombstones.key").exists()
    assert hermes("restore", str(saved), "--yes").code == 0
    assert texts_of(home) == new
    asides = sorted(home.parent.glob(f"{home.name}.aside-*"))
    assert old in [texts_of(path) for path in asides], "what was there is never deleted"


def test_folders_change_places_without_the_systems_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    monkeypatch.setattr("sys.platform", "win32")
    restoring.swap(tmp_path / "one", tmp_path / "other")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["other"]
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["one"]
    assert len(list(tmp_path.iterdir())) == 2
