"""Every client finds the one memory server of the home, or starts it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from hermes import __version__
from hermes.embedded.connect import ServerConnection, connect, find_running, stop
from hermes.embedded.process import look
from hermes.embedded.rendezvous import Place, Rendezvous, find_place, is_taken, publish, read_rendezvous
from hermes.errors import MemoryServerError
from hermes.home import Home
from tests.embedded.clients import client_of, place_of, read_all, wait_until, write
from tests.embedded.conftest import servers
from tests.memory_server.serving import ROOT
from tests.plain_http import PLAIN

pytestmark = pytest.mark.processes
AT_ONCE = 10


def rendezvous_of(place: Place) -> Rendezvous:
    found = read_rendezvous(place.rendezvous)
    assert found is not None
    return found


@pytest.mark.contract("9.2")
def test_copy_of_a_home_has_a_server_of_its_own_though_the_first_one_runs(
    place: Place, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    copied = place_of(tmp_path / "copy")
    request.addfinalizer(lambda: stop(copied))
    with client_of(connect(place)) as first:
        write(first, "said before")
        shutil.copytree(place.home, copied.home)
        assert find_running(copied) is None
        with client_of(connect(copied)) as second:
            write(second, "said in the copy")
            assert read_all(second) == ["said before", "said in the copy"]
        assert read_all(first) == ["said before"]
    assert rendezvous_of(copied).pid != rendezvous_of(place).pid
    assert find_running(place) == rendezvous_of(place)


@pytest.mark.contract("9.2")
def test_server_is_found_in_its_folder_also_by_another_name(place: Place, tmp_path: Path) -> None:
    running = connect(place)
    (tmp_path / "alias").symlink_to(place.home)
    assert connect(place_of(tmp_path / "alias")) == running
    place.home.rename(tmp_path / "moved")
    moved = place_of(tmp_path / "moved")
    assert connect(moved) == running
    assert find_running(moved) == rendezvous_of(moved)


@pytest.mark.contract("9.2")
def test_ten_processes_that_start_at_once_share_one_server(place: Place) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.embedded.clients", str(place.home), str(number)],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for number in range(AT_ONCE)
    ]  # fmt: skip
    told = [json.loads(process.communicate()[0]) for process in running]
    assert len({one["url"] for one in told}) == 1
    assert place.log.read_text().count("starts on") == 1, "no second process ever had the seat"
    for number, one in enumerate(told):
        assert f"I am number {number}." in one["texts"]
    with client_of(connect(place)) as client:
        assert sorted(read_all(client)) == sorted(f"I am number {number}." for number in range(AT_ONCE))


@pytest.mark.contract("9.2")
def test_rendezvous_is_private_to_its_owner_and_names_the_server(place: Place) -> None:
    connection = connect(place)
    found = rendezvous_of(place)
    assert stat.S_IMODE(place.rendezvous.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700
    assert ServerConnection(found.url, found.api_key) == connection
    assert found.url.startswith("http://127.0.0.1:")
    assert [found.pid] == servers(place)
    for log in (place.log, place.access_log, place.start_log):
        assert found.api_key not in log.read_text()
        assert found.start_id not in log.read_text()
        assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.contract("9.2")
def test_without_the_key_nothing_but_health_is_answered(place: Place) -> None:
    connection = connect(place)
    paths = ["/v3/workspaces", "/metrics", "/openapi.json", "/docs", "/stop", "/nothing", "/health/", "//health"]
    wrong = ["", "Bearer", f"Bearer {connection.api_key}x", connection.api_key, "Bearer \xe9"]
    with httpx.Client(base_url=connection.base_url, verify=PLAIN) as stranger:
        for path, given in itertools.product(paths, wrong):
            headers = {b"Authorization": given.encode("latin-1")} if given else {}
            assert stranger.post(path, headers=headers, json={"id": "w"}).status_code == 401, (path, given)
        assert stranger.get("/health").status_code == 200
    assert find_running(place) is not None
    with client_of(connection) as client:
        assert client.post("/v3/workspaces", json={"id": "w"}).status_code == 201


@pytest.mark.contract("9.2")
def test_killed_server_is_replaced_and_no_acknowledged_message_is_lost(place: Place) -> None:
    first = connect(place)
    with client_of(first) as client:
        write(client, "I like tea.")
    old = rendezvous_of(place)
    os.kill(old.pid, signal.SIGKILL)
    said: list[str] = []
    second = connect(place, say=said.append)
    assert said == [f"the memory server of {place.folder} (process {old.pid}) has ended; starting another"]
    assert second.api_key != first.api_key
    with client_of(second) as client:
        assert read_all(client) == ["I like tea."]


@pytest.mark.contract("9.2")
def test_server_older_than_the_installed_files_is_replaced_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with client_of(connect(place)) as client:
        write(client, "I like tea.")
    old = rendezvous_of(place)
    monkeypatch.setattr("hermes.embedded.connect.installed_at", lambda: old.started_at + 0.001)
    said: list[str] = []
    with client_of(connect(place, say=said.append)) as client:
        assert read_all(client) == ["I like tea."]
    new = rendezvous_of(place)
    assert new.pid != old.pid
    assert said == [
        f"stopping the memory server of version {__version__} of an earlier installation; "
        f"version {__version__} replaces it"
    ]
    connect(place)
    assert rendezvous_of(place).pid == new.pid
    monkeypatch.setattr("hermes.embedded.connect.installed_at", lambda: time.time() + 3600)
    connect(place)
    assert rendezvous_of(place).pid == new.pid, "a clock that was wrong at the installation replaces no server"


@pytest.mark.contract("9.2")
def test_key_of_an_earlier_start_is_refused_and_connecting_again_gives_the_new_one(place: Place) -> None:
    first = connect(place)
    stop(place)
    second = connect(place)
    with client_of(replace(second, api_key=first.api_key)) as client:
        assert client.get("/metrics").status_code == 401
    assert connect(place) == second


def test_program_at_the_address_of_a_dead_server_gets_no_key_and_is_not_used(place: Place) -> None:
    connection = connect(place)
    dead = rendezvous_of(place)
    stop(place)
    with answering_listener() as (url, requests):
        publish(place.rendezvous, replace(dead, url=url))
        assert look(replace(dead, url=url))[0] == "stranger"
        again = connect(place)
    assert again.base_url != url
    assert requests
    assert all(connection.api_key.encode() not in request for request in requests)
    assert all(dead.start_id.encode() not in request for request in requests)


def test_server_that_does_not_answer_is_not_replaced_while_it_lives(place: Place) -> None:
    connect(place)
    found = rendezvous_of(place)
    os.kill(found.pid, signal.SIGSTOP)
    try:
        with pytest.raises(MemoryServerError, match="runs but does not respond") as raised:
            connect(place, timeout=0.5)
    finally:
        os.kill(found.pid, signal.SIGCONT)
    assert str(found.pid) in raised.value.line()
    assert connect(place).api_key == found.api_key


def test_threads_of_one_process_share_the_server_too(place: Place) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = {one.base_url for one in pool.map(lambda _: connect(place), range(8))}
    assert len(found) == 1


@pytest.mark.contract("9.2")
def test_earlier_version_is_asked_to_end_and_replaced_and_a_newer_one_is_used(place: Place) -> None:
    connect(place)
    found = rendezvous_of(place)
    publish(place.rendezvous, replace(found, version="0.0.9"))
    said: list[str] = []
    replaced = connect(place, say=said.append)
    assert replaced.api_key != found.api_key
    assert "stopping the memory server of version 0.0.9" in said[0]
    wait_until(lambda: found.pid not in servers(place))  # it leaves its folder first, then goes
    newer = rendezvous_of(place)
    publish(place.rendezvous, replace(newer, version="999.0"))
    assert connect(place) == replaced


@pytest.mark.contract("9.2")
def test_stop_lets_the_server_finish_and_leaves_nothing_behind(place: Place) -> None:
    connect(place)
    found = rendezvous_of(place)
    assert stop(place) == found
    assert not place.rendezvous.exists()
    assert not is_taken(place)
    assert stop(place) is None


def test_all_profiles_lead_to_the_folder_of_the_default_home(tmp_path: Path) -> None:
    for env in ({"HERMES_HOME": str(tmp_path)}, {"HERMES_HOME": str(tmp_path / "profiles" / "work")}):
        assert find_place(Home.find(env), env) == Place(tmp_path / "memory", tmp_path)
        assert find_place(Home.find(env, "other"), env) == Place(tmp_path / "memory", tmp_path)
    elsewhere = {"HERMES_MEMORY_DATA": str(tmp_path / "else")}
    assert find_place(Home(tmp_path), elsewhere).folder == tmp_path / "else"
    assert place_of(tmp_path) == Place(tmp_path / "memory", tmp_path)


@contextmanager
def answering_listener() -> Iterator[tuple[str, list[bytes]]]:
    """A program that answers every request with 200: its address, and the requests it received."""
    requests: list[bytes] = []

    def answer() -> None:
        with suppress(OSError):  # closed below
            while True:
                connection, _ = listener.accept()
                with connection:
                    requests.append(connection.recv(65536))
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nHermes-Proof: x\r\n\r\n{}")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
