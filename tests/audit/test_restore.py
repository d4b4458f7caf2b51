"""Restoring: a backup replaces the store, and the previous store is kept."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.audit.looking import backups, bytes_of, check_sound
from tests.audit.wounds import Hand, child_that_no_key_follows
from tests.conftest import Ran
from tests.db.processes import hear
from tests.store import old_files as old

Hermes = Callable[..., Ran]
LEAVES_A_LOG = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("PRAGMA journal_mode = wal")
db.execute("UPDATE sessions SET title = 'after the backup'  WHERE id = (SELECT id FROM sessions LIMIT 1)")
db.commit()
os._exit(9)
"""


def repaired(hermes: Hermes, home: Path) -> tuple[Path, dict[str, list[tuple[object, ...]]]]:
    """A backup by a repair, and the content of the file before it."""
    file = old.current_file(home)
    child_that_no_key_follows(Hand(file))
    before = old.dump(file.path)
    assert hermes("doctor", "--repair", "--yes").code == 0
    assert old.dump(file.path) != before
    (backup,) = backups(home)
    return backup, before


@pytest.mark.contract("3.12")
def test_a_restored_file_is_what_it_was_before_the_repair(hermes: Hermes, home: Path) -> None:
    backup, before = repaired(hermes, home)
    mended = old.dump(home / "state.db")
    ran = hermes("doctor", "--restore", str(backup), "--yes")
    assert f"Restored from {backup}" in ran.out
    assert "[orphan-child]" in ran.out, "the damage is back, and said"
    assert old.dump(home / "state.db") == before
    (kept,) = [path for path in backups(home) if path != backup]
    assert old.dump(kept) == mended
    assert hermes("doctor", "--repair", "--yes").code == 0


@pytest.mark.processes
@pytest.mark.contract("3.12")
def test_old_wal_is_not_applied_to_the_restored_file(hermes: Hermes, home: Path) -> None:
    backup, before = repaired(hermes, home)
    subprocess.run([sys.executable, "-c", LEAVES_A_LOG, home / "state.db"], check=False)
    assert (home / "state.db-wal").stat().st_size > 0
    assert hermes("doctor", "--restore", str(backup), "--yes").code == 1
    check_sound(home / "state.db")
    assert old.dump(home / "state.db") == before


@pytest.mark.contract("3.12")
def test_unreadable_file_is_moved_aside_with_its_companions(hermes: Hermes, home: Path) -> None:
    backup, before = repaired(hermes, home)
    (home / "state.db").write_bytes(b"not a database, " * 999)
    (home / "state.db-wal").write_bytes(b"nor a log")
    hermes("doctor", "--restore", str(backup), "--yes")
    assert old.dump(home / "state.db") == before
    assert {path.name.partition("Z")[2] for path in home.glob("state.db.damaged-*")} >= {"", "-wal"}


@pytest.mark.contract("3.12")
@pytest.mark.parametrize("spoil", ["missing", "half", "foreign", "itself"])
def test_invalid_backup_is_refused_and_nothing_changes(hermes: Hermes, home: Path, spoil: str) -> None:
    backup, _ = repaired(hermes, home)
    wrong = home / "wrong.db"
    if spoil == "half":
        wrong.write_bytes(backup.read_bytes()[: backup.stat().st_size // 2])
    elif spoil == "foreign":
        with closing(sqlite3.connect(wrong)) as db:
            db.execute("CREATE TABLE recipes (name)")
    elif spoil == "itself":
        wrong = home / "state.db"
    before = bytes_of(home)
    ran = hermes("doctor", "--restore", str(wrong), "--yes")
    assert ran.code != 0
    assert ran.err.count("\n") == 1
    assert bytes_of(home) == before


@pytest.mark.processes
@pytest.mark.contract("3.12")
def test_a_store_that_is_in_use_is_not_replaced(hermes: Hermes, home: Path) -> None:
    backup, _ = repaired(hermes, home)
    mended = old.dump(home / "state.db")
    holder = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\nprint('open', flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", holder, str(home / "state.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        hear(process)
        ran = hermes("doctor", "--restore", str(backup), "--yes")
        process.send_signal(signal.SIGKILL)
    assert ran.code != 0
    assert f"process {process.pid} has {home / 'state.db'} open; nothing was changed" in ran.err
    assert old.dump(home / "state.db") == mended


def test_restore_requires_confirmation_and_excludes_repair(hermes: Hermes, home: Path) -> None:
    backup, _ = repaired(hermes, home)
    before = bytes_of(home)
    assert hermes("doctor", "--restore", str(backup), "--repair", "--yes").code == 2
    assert hermes("doctor", "--restore", str(backup)).code == 2
    assert bytes_of(home) == before


@pytest.mark.contract("3.12")
def test_leftovers_of_a_killed_backup_are_removed(hermes: Hermes, home: Path) -> None:
    child_that_no_key_follows(Hand(old.current_file(home)))
    litter = home / "state.db.backup-20260101T000000Z.unfinished"
    shutil.copy(home / "state.db", litter)
    litter.with_name(f"{litter.name}-journal").write_bytes(b"half")
    assert hermes("doctor", "--repair", "--yes").code == 0
    assert list(home.glob("*.unfinished*")) == []


def test_unrepairable_fault_is_still_reported(hermes: Hermes, home: Path) -> None:
    old.current_file(home)
    (home / "config.yaml").write_text("memory: {provider: nobody}\n", encoding="utf-8")
    ran = hermes("doctor", "--repair", "--yes")
    assert ran.code == 1
    assert "--repair cannot fix any of this." in ran.out


READ_ONLY = """
import os, sys
from pathlib import Path
from tempfile import TemporaryDirectory
from hermes.audit.backup import back_up
from hermes.errors import StoreReadOnlyError
path = Path(sys.argv[1])
path.chmod(0o444)
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    back_up(path, now=1.0, lock_timeout=1.0)
except StoreReadOnlyError as error:
    print(error.message)
"""


@pytest.mark.processes
@pytest.mark.contract("3.12")
def test_read_only_file_gets_no_backup() -> None:
    with TemporaryDirectory() as folder:  # one that everyone can reach
        Path(folder).chmod(0o777)
        file = old.current_file(Path(folder) / "home")
        file.home.chmod(0o777)
        command = [sys.executable, "-c", READ_ONLY, str(file.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "cannot be written; nothing was changed" in done.stdout, done.stderr
        assert backups(file.home) == []
