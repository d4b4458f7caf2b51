"""Problems with the files and folders of the memory server: each is reported in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import asdict

from hermes.embedded.connect import connect
from hermes.embedded.rendezvous import NO_RENDEZVOUS, Place, Rendezvous, publish
from hermes.errors import HermesError, MemoryServerError
from tests.embedded.conftest import servers
from tests.memory_server.serving import ROOT
from tests.small_disk import fill, small_disk

pytestmark = pytest.mark.processes
GONE = Rendezvous("http://127.0.0.1:9", "key", "id", 4_000_000, "0.1.0", "background", 0.0)
"""A rendezvous whose port nobody listens on."""
FOREIGN = {
    "text": b"some notes of mine\n",
    "nothing": b"",
    "other JSON": b'{"name": "package", "version": "1.0"}',
    "a list": b"[]",
    "wrong types": json.dumps({**asdict(GONE), "pid": "one"}).encode(),
    "an address elsewhere": json.dumps({**asdict(GONE), "url": "ftp://example.org"}).encode(),
    "bytes": bytes(range(256)),
}


def line_of(place: Place) -> str:
    """Return the one-line error of connecting."""
    with pytest.raises(HermesError) as raised:
        connect(place)
    line = raised.value.line()
    assert "\n" not in line
    return line


@pytest.mark.contract("9.2")
def test_rendezvous_of_an_ended_server_is_reported_and_replaced(place: Place) -> None:
    publish(place.rendezvous, GONE)
    said: list[str] = []
    assert connect(place, say=said.append).base_url != GONE.url
    assert said == [f"the memory server of {place.folder} (process 4000000) has ended; starting another"]


@pytest.mark.contract("9.2")
@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN.keys())
def test_foreign_file_in_place_of_the_rendezvous_is_reported_and_untouched(place: Place, content: bytes) -> None:
    place.folder.mkdir(parents=True)
    place.rendezvous.write_bytes(content)
    assert line_of(place) == (
        f"{place.rendezvous} was not written by a memory server: {NO_RENDEZVOUS}. Move it away and try again"
    )
    assert place.rendezvous.read_bytes() == content
    assert servers(place) == []


@pytest.mark.contract("9.2")
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_folder_or_pipe_in_place_of_the_rendezvous_is_reported_at_once(place: Place, kind: str) -> None:
    place.folder.mkdir(parents=True)
    place.rendezvous.mkdir() if kind == "folder" else os.mkfifo(place.rendezvous)
    line = line_of(place)
    assert line.startswith(f"{place.rendezvous} was not written by a memory server: it is a {kind}, not a file.")


@pytest.mark.contract("9.2")
def test_rendezvous_of_another_user_is_reported_and_not_used(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    publish(place.rendezvous, GONE)
    os.chown(place.rendezvous, 65534, 65534)
    line = line_of(place)
    assert line.startswith(f"{place.rendezvous} belongs to another user.")
    assert "HERMES_MEMORY_DATA" in line


@pytest.mark.contract("9.2")
def test_full_disk_is_reported_before_a_server_is_started(place: Place, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk"):
        full = Place(tmp_path / "disk" / "memory", place.home)
        full.folder.mkdir()
        fill(tmp_path / "disk" / "ballast")
        line = line_of(full)
        assert line.startswith(f"the memory server cannot write in {full.folder}: No space left on device.")


@pytest.fixture
def foreign_folder() -> Iterator[Path]:
    """A folder that everyone can read and nobody can write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o555)
        yield Path(name)
        Path(name).chmod(0o755)


@pytest.mark.contract("9.2")
def test_read_only_folder_is_reported(place: Place, foreign_folder: Path) -> None:
    program = (
        "import filelock, os, sys; from pathlib import Path; from hermes.embedded.connect import connect\n"
        "from hermes.embedded.rendezvous import Place; from hermes.errors import HermesError\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "folder = Path(sys.argv[1])\n"
        "for place in (Place(folder, Path(sys.argv[2])), Place(folder / 'memory', folder)):\n"
        "    try: connect(place)\n"
        "    except HermesError as error: print(error.line())\n"
    )
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-c", program, str(foreign_folder), home],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
    data, home_line = done.stdout.splitlines()
    assert data.startswith(f"cannot write {foreign_folder / 'server.json'}: Permission denied.")
    assert home_line.startswith(f"no read/write permission for the home folder {foreign_folder}.")


@pytest.mark.contract("9.2")
def test_failed_start_is_reported_with_the_last_line_of_output(place: Place) -> None:
    place.folder.mkdir(parents=True)
    (place.folder / "memory.db").write_bytes(b"no database at all, but longer than nothing" * 40)
    line = line_of(place)
    assert line.startswith(f"the memory server did not start: {place.folder / 'memory.db'} is not a database.")
    (place.folder / "memory.db").unlink()
    connect(place)


def test_crash_at_start_is_reported_with_the_last_line_of_output(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.embedded.process.SERVER_MODULE", "hermes.no_such_module")
    assert line_of(place).endswith("No module named hermes.no_such_module")


def test_server_that_never_answers_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start_sleeper(_place: Place) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return started[0]

    monkeypatch.setattr("hermes.embedded.connect.start_process", start_sleeper)
    with pytest.raises(MemoryServerError, match=r"did not answer within 0\.5 s"):
        connect(place, timeout=0.5)
    started[0].kill()
