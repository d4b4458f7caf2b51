"""Repairs that are killed, lack room, are refused, or are not alone."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.store.store import Store
from hermes.types import Draft
from tests.audit.looking import backups, bytes_of, check_sound, findings
from tests.audit.wounds import CHILD, KEY, PARENT, ROTATED_AT, SUMMARY, Hand, child_that_no_key_follows
from tests.conftest import Ran
from tests.db.processes import await_end, finish, hear, say, start
from tests.scale import scale
from tests.store import old_files as old
from tests.store.old_files import OldFile

Hermes = Callable[..., Ran]
CONVERSATIONS = 12


def badly_wounded(home: Path) -> OldFile:
    """Many conversations whose key stayed behind, each with its summary twice."""
    file = old.current_file(home)
    hand = Hand(file)
    for number in range(CONVERSATIONS):
        key, parent, child = f"agent:main:telegram:dm:{number}", f"parent-{number}", f"child-{number}"
        known = hand.keyed(key)
        hand.session(parent, ROTATED_AT - 9, ended_at=ROTATED_AT, end_reason="compression", **known)
        hand.say(parent, ROTATED_AT - 8, f"question {number}")
        hand.session(child, ROTATED_AT, parent_session_id=parent, **known)
        hand.say(child, ROTATED_AT, SUMMARY)
        hand.say(child, ROTATED_AT, SUMMARY)
        hand.route(key, parent)
    return file


@pytest.mark.processes
@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.contract("3.12")
def test_killed_repair_leaves_a_sound_file_and_the_next_finishes(tmp_path: Path) -> None:
    chance, kills = random.Random(7), scale(6, 200)
    badly_wounded(tmp_path / "template")
    messages = old.dump(tmp_path / "template" / "state.db", ["messages"])
    reached: Counter[str] = Counter()
    number = 0
    while number < kills or interrupted(reached) < kills // 6:
        home = shutil.copytree(tmp_path / "template", tmp_path / str(number))
        process = start("tests.audit.mender", home)
        hear(process)
        say(process, "go")
        with suppress(subprocess.TimeoutExpired):
            # Not to wait for anything: the moment of the kill is drawn, on a slow machine from more and more time.
            process.wait(0.003 * 100 ** chance.random() * (1 + number // kills))
        process.send_signal(signal.SIGKILL)
        await_end(process)
        reached[how_far(home)] += 1
        check_sound(home / "state.db")
        assert finish_repairs(home).endswith(" mended, 0 left\n0 mended, 0 left\n")
        assert old.dump(home / "state.db", ["messages"]) == messages
        assert routes(home / "state.db") == {f"agent:main:telegram:dm:{n}": f"child-{n}" for n in range(CONVERSATIONS)}
        number += 1
    print(f"{interrupted(reached)} of {number} kills interrupted a repair: {dict(reached)}")  # noqa: T201 - for a person


def interrupted(reached: Counter[str]) -> int:
    """Return the number of kills that hit a running repair."""
    return reached.total() - reached["not begun"] - reached["all mended"]


def how_far(home: Path) -> str:
    """Return how far a killed repair came, from its files."""
    if list(home.glob("state.db.backup-*.unfinished")):
        return "backing up"
    if not backups(home):
        return "not begun"
    with closing(sqlite3.connect(home / "state.db")) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'hermes_routes'").fetchone():
            return "backed up"
        hidden = db.execute("SELECT count(*) FROM hermes_hidden").fetchone()[0]
        bound = db.execute("SELECT count(*) FROM hermes_routes").fetchone()[0]
    return (
        "all mended"
        if (hidden, bound) == (CONVERSATIONS, CONVERSATIONS)
        else "half mended"
        if hidden or bound
        else "looking"
    )


def finish_repairs(home: Path) -> str:
    process = start("tests.audit.mender", home)
    hear(process)
    say(process, "go")
    return finish(process)


def routes(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT session_key, session_id FROM hermes_routes"))


@pytest.mark.contract("3.12")
def test_many_damages_are_repaired_in_one_run(hermes: Hermes, home: Path) -> None:
    file = badly_wounded(home)
    assert len(findings(hermes("doctor", "--json"))) == 2 * CONVERSATIONS
    ran = hermes("doctor", "--repair", "--yes")
    assert ran.code == 0
    assert ran.out.count("mended  [") == 2 * CONVERSATIONS
    assert len(routes(file.path)) == CONVERSATIONS
    assert len(backups(home)) == 1


@pytest.mark.processes
@pytest.mark.contract("3.12", "10.6")
def test_without_room_for_the_backup_nothing_is_changed(home: Path) -> None:
    file = old.current_file(home)
    child_that_no_key_follows(Hand(file))
    before = bytes_of(home)
    size = file.path.stat().st_size // 2
    code = (
        "import resource, signal, sys, hermes.cli.main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "sys.exit(hermes.cli.main.run(['doctor', '--repair', '--yes']))"
    )
    env = {**os.environ, "HERMES_HOME": str(home)}
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot write the copy" in done.stderr
    assert "nothing was changed" in done.stderr
    assert bytes_of(home) == before, "and no half of a backup is left"


@pytest.mark.contract("3.12")
def test_unconfirmed_repair_changes_nothing(hermes: Hermes, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child_that_no_key_follows(Hand(old.current_file(home)))
    before = bytes_of(home)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    ran = hermes("doctor", "--repair")
    assert ran.code == 2
    assert "repairing needs a confirmation. Add --yes" in ran.err
    assert bytes_of(home) == before


@pytest.mark.parametrize(("answer", "code", "copies"), [("n\n", 1, 0), ("\n", 1, 0), ("y\n", 0, 1)])
def test_repair_asks_for_confirmation(
    hermes: Hermes, home: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, copies: int
) -> None:
    child_that_no_key_follows(Hand(old.current_file(home)))
    monkeypatch.setattr("hermes.cli.dialog.can_ask", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    ran = hermes("doctor", "--repair")
    assert ran.code == code
    assert ("Nothing was changed." in ran.err) == (code == 1)
    assert len(backups(home)) == copies


@pytest.mark.contract("3.12")
def test_file_with_damaged_pages_is_not_repaired(hermes: Hermes, home: Path) -> None:
    file = old.current_file(home)
    child_that_no_key_follows(Hand(file))
    ((page,),) = file.rows("SELECT rootpage FROM sqlite_master WHERE name = 'idx_sessions_title'")
    data = bytearray(file.path.read_bytes())
    data[4096 * (int(str(page)) - 1) : 4096 * int(str(page))] = b"\xa5" * 4096
    file.path.write_bytes(data)
    before = bytes_of(home)
    ran = hermes("doctor", "--repair", "--yes")
    assert ran.code == 1
    assert bytes_of(home) == before


@pytest.mark.processes
@pytest.mark.contract("3.12", "1.6")
async def test_messages_that_arrive_during_a_repair_are_kept(home: Path) -> None:
    file = badly_wounded(home)
    async with await Store.open(file.path, clock=SystemClock(), lock_timeout=30) as store:
        session = await store.create_session("cli")
        process = start("tests.audit.mender", home)
        await asyncio.to_thread(hear, process)
        say(process, "go")
        ended = asyncio.create_task(asyncio.to_thread(finish, process))
        count = 0
        while not ended.done():
            await store.append(session.id, Draft("user", str(count)))
            count += 1
            await asyncio.sleep(0)
        assert (await ended).endswith("0 left\n")
        view = await store.view(session.id)
        assert [message.content for message in view.messages] == [str(number) for number in range(count)]
        assert count > 0


@pytest.mark.processes
@pytest.mark.contract("3.12")
def test_running_process_causes_a_warning(hermes: Hermes, home: Path) -> None:
    child_that_no_key_follows(Hand(old.current_file(home)))
    holder = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1]); db.execute('SELECT count(*) FROM sessions').fetchone()\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(home / "state.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        hear(process)
        ran = hermes("doctor", "--repair", "--yes", "--json")
        assert process.stdin is not None
        process.stdin.close()
    assert ran.code == 0
    assert f"process {process.pid} has {home / 'state.db'} open" in ran.err
    assert json.loads(ran.out)["repair"]["left"] == 0


def test_two_backups_in_one_second_have_different_names(hermes: Hermes, home: Path) -> None:
    file = old.current_file(home)
    child_that_no_key_follows(Hand(file))
    ((entry,),) = file.rows("SELECT entry_json FROM gateway_routing WHERE session_key = ?", (KEY,))
    assert hermes("doctor", "--repair", "--yes").code == 0
    file.run(
        f"DELETE FROM hermes_routes WHERE session_key = '{KEY}'",
        f"UPDATE gateway_routing SET entry_json = '{entry}' WHERE session_key = '{KEY}'",
    )
    assert hermes("doctor", "--repair", "--yes").code == 0
    first, second = backups(home)
    assert first != second
    assert {PARENT, CHILD} <= {str(row[0]) for row in OldFile(second, 22).rows("SELECT id FROM sessions")}
