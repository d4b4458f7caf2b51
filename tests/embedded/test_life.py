"""The lifetime of the background server, and its successor."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest

from hermes.embedded.asking import look
from hermes.embedded.connect import ServerConnection, connect, find_running, keeping, stop
from hermes.embedded.place import Place, is_taken
from hermes.embedded.rendezvous import read_rendezvous
from hermes.errors import MemoryServerError
from tests.embedded.clients import client_of, read_all, wait_until, write
from tests.embedded.conftest import servers
from tests.memory_server.serving import SECRET, running
from tests.plain_http import PLAIN

pytestmark = pytest.mark.processes


def serves(place: Place) -> bool:
    """Return True if the server responds in time."""
    try:
        return find_running(place) is not None
    except MemoryServerError:  # not now
        return False


@pytest.mark.contract("9.2")
def test_unused_server_ends_by_itself_despite_health_checks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_MEMORY_SERVER_IDLE", "5")
    with client_of(connect(place)) as client:
        found = read_rendezvous(place.rendezvous)
        assert found is not None
        write(client, "I like tea.")

    def ended() -> bool:
        look(found)
        return not is_taken(place)

    wait_until(ended)
    assert not place.rendezvous.exists()
    assert "unused for 5 s and nothing is due: shutting down" in place.log.read_text()
    with client_of(connect(place)) as client:
        assert read_all(client) == ["I like tea."]


@pytest.mark.contract("9.2")
def test_server_in_use_does_not_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_MEMORY_SERVER_IDLE", "5")
    connection = connect(place)
    with client_of(connection) as client:
        for _ in range(32):  # longer than it takes to end, with pauses that are far shorter
            client.get("/metrics").raise_for_status()
            time.sleep(0.25)
    assert connect(place) == connection


@pytest.mark.contract("9.2")
def test_running_gateway_keeps_the_server_that_is_there_and_starts_none(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_MEMORY_SERVER_IDLE", "5")
    monkeypatch.setattr("hermes.embedded.connect.KEEP_ALIVE_SECONDS", 0.1)
    with keeping(place):
        connection = connect(place)
        time.sleep(8)  # longer than it takes to end
        assert connect(place) == connection
    wait_until(lambda: not is_taken(place))
    with keeping(place):
        time.sleep(0.5)
        assert not is_taken(place)


@pytest.mark.contract("9.2")
@pytest.mark.parametrize(
    "trouble", [OSError("no such device"), ValueError("nonsense"), MemoryServerError("it is silent")]
)
def test_connection_errors_do_not_end_the_keep_alive(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: Exception
) -> None:
    asked: list[Place] = []
    recovered = threading.Event()

    def find(where: Place) -> None:
        asked.append(where)
        if len(asked) <= 3:
            raise trouble
        recovered.set()

    monkeypatch.setattr("hermes.embedded.connect.KEEP_ALIVE_SECONDS", 0.01)
    monkeypatch.setattr("hermes.embedded.connect.find_running", find)
    with keeping(place):
        assert recovered.wait(20)
    said = [record.getMessage() for record in caplog.records if record.name == "hermes.embedded.connect"]
    assert [str(trouble) in line for line in said] == [True], "once, however often it comes"


def test_wrong_setting_is_logged_and_memory_is_served(place: Place) -> None:
    place.home.mkdir()
    (place.home / "config.yaml").write_text("memory: {server_idle: soon}\n")
    connect(place)
    wait_until(lambda: "memory.server_idle" in place.log.read_text())


@pytest.mark.contract("9.2")
def test_serve_takes_the_place_of_the_background_server_and_asks_for_no_key(place: Place) -> None:
    with client_of(connect(place)) as client:
        write(client, "I like tea.")
    with running(place.folder, HERMES_HOME=str(place.home)) as served:
        wait_until(lambda: serves(place))
        connection = connect(place)
        assert connection == ServerConnection(served.url, "no-key-needed")
        with client_of(connection) as client:
            assert read_all(client) == ["I like tea."]
        with pytest.raises(MemoryServerError, match="was started with `hermes memory serve`"):
            stop(place)
    assert not place.rendezvous.exists()
    assert connect(place) != connection


@pytest.mark.contract("9.2")
def test_serve_with_keys_gives_programs_of_its_owner_a_full_key(place: Place) -> None:
    with running(place.folder, HERMES_HOME=str(place.home), AUTH_USE_AUTH="true", AUTH_JWT_SECRET=SECRET) as served:
        wait_until(lambda: serves(place))
        connection = connect(place)
        assert connection.base_url == served.url
        with client_of(connection) as client:
            write(client, "I like tea.")
            assert client.post("/v3/keys", params={"workspace_id": "w"}).status_code == 200
        with served.client() as stranger:
            assert stranger.post("/v3/workspaces", json={"id": "w"}).status_code == 401


def test_second_serve_on_a_folder_leaves_programs_with_the_first(place: Place) -> None:
    with running(place.folder, HERMES_HOME=str(place.home)) as first:
        wait_until(lambda: serves(place))
        with running(place.folder, HERMES_HOME=str(place.home)) as second:
            with httpx.Client(base_url=second.url, verify=PLAIN) as client:
                client.get("/health").raise_for_status()
            assert connect(place).base_url == first.url
        assert connect(place).base_url == first.url


@pytest.mark.contract("9.8")
def test_stopped_server_has_logged_every_request(place: Place) -> None:
    with running(place.folder, HERMES_HOME=str(place.home)) as served, served.client() as client:
        client.get("/metrics").raise_for_status()
        client.get("/nothing")
    assert served.process.returncode == 0
    lines = place.access_log.read_text().splitlines()
    assert [line.split()[2:5] for line in lines] == [["GET", "/metrics", "200"], ["GET", "/nothing", "404"]]


def command(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hermes", "memory", *arguments],
        env={**os.environ, "HERMES_HOME": str(home)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.contract("9.2")
def test_start_status_and_stop_report_in_one_line(place: Place) -> None:
    profile = place.home / "profiles" / "work"
    before = command(profile, "status")
    assert (
        f"server    not running on this machine; it starts if a provider needs it, data in {place.folder}"
        in before.stdout
    )
    started = command(profile, "start")
    found = read_rendezvous(place.rendezvous)
    assert found is not None
    assert started.stdout.startswith(f"memory server on {found.url}, data in {place.folder}")
    assert found.api_key not in started.stdout + started.stderr
    status = command(profile, "status")
    assert (status.returncode, status.stderr) == (0, "")
    assert f"server    {found.url}, ok, process {found.pid}, version" in status.stdout
    assert found.api_key not in status.stdout
    assert command(place.home, "stop").stdout == f"memory server of {place.folder} ended\n"
    assert command(place.home, "stop").stdout == f"no memory server runs on {place.folder}\n"


def test_status_reports_a_foreign_file_and_fails(place: Place) -> None:
    place.folder.mkdir(parents=True)
    place.rendezvous.write_text("mine")
    status = command(place.home, "status")
    assert status.returncode == 1
    assert f"server    {place.rendezvous} was not written by a memory server" in status.stdout


def test_memory_of_an_earlier_version_under_a_profile_is_reported_at_start(place: Place) -> None:
    old = place.home / "profiles" / "a" / "memory"
    old.mkdir(parents=True)
    (old / "memory.db").touch()
    assert f"memory of an earlier version in {old} is not used here" in command(place.home, "start").stderr


def restore_folder(place: Place, copy: Path) -> None:
    place.folder.rename(place.folder.with_name("old"))
    shutil.copytree(copy, place.folder)


def restore_database(place: Place, copy: Path) -> None:
    """Replace the file as rsync does: a new file takes the name, and the log of the old one stays."""
    shutil.copy(copy / "memory.db", place.folder / "new")
    (place.folder / "new").replace(place.folder / "memory.db")


def remove_log(place: Place, _copy: Path) -> None:
    (place.folder / "memory.db-wal").unlink()


@pytest.mark.contract("9.2")
@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (restore_folder, ["early"]),
        (restore_database, ["early"]),
        (remove_log, ["early", "late"]),
    ],
)
def test_server_whose_files_are_replaced_ends_and_the_next_serves_what_is_there(
    place: Place, tmp_path: Path, change: Callable[[Place, Path], None], kept: list[str]
) -> None:
    with client_of(connect(place)) as client:
        write(client, "early")
        (tmp_path / "copy").mkdir()
        with (
            closing(sqlite3.connect(place.folder / "memory.db")) as source,
            closing(sqlite3.connect(tmp_path / "copy" / "memory.db")) as copy,
        ):
            source.backup(copy)
        write(client, "late")
        change(place, tmp_path / "copy")
        with suppress(httpx.TransportError):  # it has ended
            while (answer := client.get("/health")).status_code == 200:
                pass
            assert answer.json()["status"] == "gone"
    with client_of(connect(place)) as client:
        assert read_all(client) == kept
        write(client, "new")
        wait_until(lambda: len(servers(place)) == 1)
        found = find_running(place)
        assert found is not None
        assert servers(place) == [found.pid]
        assert read_all(client) == [*kept, "new"]
    assert stop(place) == found
    wait_until(lambda: servers(place) == [])
