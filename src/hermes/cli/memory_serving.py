"""Serving a memory folder: the server, its rendezvous file and its logs. Imported only by processes that serve.

The memory server's access log: one line per request, written by a background thread so that requests never wait for
the disk.

    time client method path status milliseconds

No query, no header and no body: what people say and the keys they hold are not in it.
"""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hermes.cli.memory_background import end_loading
from hermes.cli.output import note
from hermes.cli.start import TO_END, on_signals
from hermes.clock import SystemClock
from hermes.config_file import load_env
from hermes.configuration import configure, read_configuration
from hermes.embedded.rendezvous import Place, ServerMode, new_rendezvous, new_secret, publish, withdraw
from hermes.errors import HermesError, MemoryServerError
from hermes.home import Home
from hermes.http_server import GuestServer, listen
from hermes.logs import LogFile, start_log
from hermes.memory_server import limits, times
from hermes.memory_server.api.app import create_app
from hermes.memory_server.api.auth import ADMIN, make_key
from hermes.memory_server.api.connection import LimitedConnection
from hermes.memory_server.api.life import Life
from hermes.memory_server.api.metrics import Visit, process_lines, write_lines
from hermes.memory_server.api.server import Options
from hermes.memory_server.db.database import Database
from hermes.memory_server.db.schema import open_database, open_for_work, open_postgres
from hermes.memory_server.embedder import Embedder, EmbeddingEndpoint
from hermes.memory_server.engine.word_vectors import WordVectors
from hermes.memory_server.engine.worker import JobWorker
from hermes.memory_server.minilm import MiniLm
from hermes.memory_server.model.settings import ModelSettings, SettingsFile
from hermes.settings import (
    EMBEDDINGS_KEY,
    EMBEDDINGS_MODEL,
    EMBEDDINGS_URL,
    FINER_EMBEDDER,
    MEMORY_DREAMS,
    MEMORY_IDLE,
    Settings,
)
from hermes.settings.setting import Table

if TYPE_CHECKING:
    from hermes.memory_server.db.address import DatabaseAddress

log = logging.getLogger("hermes.memory_server")
DRAIN_SECONDS = 4
"""Time for open requests to finish when the server ends."""
NO_KEY = "no-key-needed"
"""Placeholder key for SDKs that require one, if the server has no keys."""
LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to reach what listens everywhere
"""Loopback address of a server that listens on all addresses."""


class ServingOptions(Struct, frozen=True):
    """Options for serving a memory folder. With `publishes`, other processes on this machine find this server. `greet`
    is called when the folder is open."""

    place: Place
    listener: socket.socket
    options: Options
    kind: ServerMode
    api_key: str
    works: bool = True
    publishes: bool = True
    idle: Callable[[], float] | None = None
    greet: Callable[[], None] = lambda: None
    model_from_env: bool = False
    """True if the environment names the model when the folder names none."""
    database: DatabaseAddress | None = None
    """The PostgreSQL database that holds the memory, instead of the folder."""

    def open(self) -> Database:
        """Open the memory for requests."""
        if self.database is not None:
            return open_postgres(self.database, read_seconds=limits.READ_SECONDS)
        return open_database(self.place.folder, read_seconds=limits.READ_SECONDS)

    def open_for_work(self) -> Database:
        """Open the memory for background work."""
        return open_worked(self.place.folder, self.database)


class _Server(GuestServer):
    """An HTTP server that publishes its address once it answers and withdraws it before it ends."""

    def __init__(self, serving_options: ServingOptions, access: AccessLog) -> None:
        self._serving = serving_options
        self.problem: HermesError | None = None
        start_id = new_secret()
        folder = serving_options.place.folder
        self._rendezvous = new_rendezvous(
            _url(serving_options.listener), serving_options.api_key, start_id, serving_options.kind, folder
        )
        database = serving_options.open()
        app = create_app(
            lambda: database,
            clock=SystemClock(),
            options=replace(serving_options.options, start_id=start_id, dreams=has_dreams(serving_options.place.home)),
            embedder=WordVectors(),
            open_for_work=serving_options.open_for_work if serving_options.works else None,
            life=Life(self.end if serving_options.idle else None, serving_options.idle, [access.add], self._lose),
            finer=choose_finer(serving_options.place.home),
            model_file=find_model(serving_options.place, from_env=serving_options.model_from_env),
        )
        super().__init__(app, http=LimitedConnection, lifespan="on", drain=DRAIN_SECONDS)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit as error:  # uvicorn's signal that the application did not start; the reason is logged
            raise MemoryServerError(
                f"the memory server of {self._serving.place.folder} could not start", hint="See its log for the reason"
            ) from error
        try:
            if self._serving.publishes:
                publish(self._serving.place.rendezvous, self._rendezvous)
        except HermesError as error:
            self.problem = error
            self.end()

    def _lose(self) -> None:
        folder = self._serving.place.folder
        self.problem = MemoryServerError(f"{folder} was removed or replaced while it was served", hint="")
        self.end()

    def end(self) -> None:
        """Withdraw the address, finish open requests, and end."""
        super().end()
        if self._serving.publishes:
            withdraw(self._serving.place.rendezvous, self._rendezvous)


@asynccontextmanager
async def showing_metrics(worker: JobWorker, port: int | None) -> AsyncIterator[None]:
    """Serve a worker's counters at `/metrics` on a loopback port while the block runs."""
    if port is None:
        yield
        return

    async def show(_request: Request) -> Response:
        return write_lines(process_lines(worker, {}))

    with listen("127.0.0.1", port, "choose another --metrics-port") as listener:
        server = GuestServer(Starlette(routes=[Route("/metrics", show)]), drain=1)
        answering = asyncio.create_task(server.serve_on(listener))
        note(f"metrics on http://127.0.0.1:{listener.getsockname()[1]}/metrics")
        try:
            yield
        finally:
            server.end()
            await answering


def open_worked(folder: Path, address: DatabaseAddress | None) -> Database:
    """Open a memory for background work: a PostgreSQL database if one is given, else the folder."""
    return open_for_work(folder) if address is None else open_postgres(address)


def serve_in_background(place: Place) -> None:
    """Serve a folder on a free port until nobody needs the server."""
    env = load_env(Home(place.home))
    key = new_secret()
    # Honcho-style keys are for `hermes memory serve`; here one random key per start opens everything.
    options = Options(webhook_secret=Options.from_env(env).webhook_secret, start_key=key)
    start_log(place.log, secrets=[key])
    log.info("memory server: starts on %s", place.folder)
    listener = listen("127.0.0.1", 0, "free a port of this machine")

    def idle() -> float:
        return _read_settings(place.home, [MEMORY_IDLE]).get(MEMORY_IDLE)

    serving_options = ServingOptions(place, listener, options, "background", key, idle=idle)
    with redirect_stderr(_LogStream()):  # nobody reads stderr from here on, and the log is bounded
        run(serving_options)
    log.info("memory server: ended")


def key_for_programs(options: Options) -> str:
    """Return the key for the owner's own programs: an admin key, or a placeholder if the server has no keys."""
    return make_key(ADMIN, options.jwt_secret, times.now(SystemClock()), None) if options.use_auth else NO_KEY


def run(serving_options: ServingOptions) -> None:
    """Serve until asked to end. Raises HermesError if the folder cannot be opened."""
    with serving_options.listener, AccessLog(serving_options.place.access_log) as access:
        server = _Server(serving_options, access)
        end_loading()
        serving_options.greet()
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(_serve(server, serving_options.listener))
    if server.problem is not None:
        raise server.problem


async def _serve(server: _Server, listener: socket.socket) -> None:
    with on_signals(TO_END, lambda _: server.end()):
        await server.serve_on(listener)


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = LOOPBACK_OF.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _read_settings(path: Path, wanted: Table) -> Settings:
    """Read settings of the default home. Wrong values are logged and do not prevent serving."""
    try:
        found = read_configuration(Home(path), wanted)
    except HermesError as error:
        log.warning("memory server: %s", error.line())
        return configure((), {}, wanted).settings
    for problem in found.problems:
        log.warning("memory server: %s", problem.line())
    return found.settings


class _LogStream(io.TextIOBase):
    """A stream that writes its lines to the log."""

    def write(self, text: str) -> int:
        if line := text.strip():
            log.error("%s", line)
        return len(text)


def find_model(place: Place, *, from_env: bool = False) -> SettingsFile:
    """Return the model settings of a folder; the key may come from the environment or the default home's `.env`."""
    default = ModelSettings(source="env") if from_env else ModelSettings()
    return SettingsFile(place.folder, lambda: load_env(Home(place.home)), default)


def has_dreams(home: Path) -> bool:
    """Return True if dreams run by themselves."""
    return _read_settings(home, [MEMORY_DREAMS]).get(MEMORY_DREAMS)


def choose_finer(home: Path) -> Embedder | None:
    """Return the second-stage embedder, or None. `/health` reports one that is not installed or unreachable."""
    settings = _read_settings(home, [FINER_EMBEDDER, EMBEDDINGS_URL, EMBEDDINGS_MODEL, EMBEDDINGS_KEY])
    kind, url = settings.get(FINER_EMBEDDER), settings.get(EMBEDDINGS_URL)
    if kind == "endpoint" and not url:
        log.warning("memory server: memory.finer_embedder is an endpoint, and memory.embeddings_url is empty")
        return None
    if kind == "endpoint":
        return EmbeddingEndpoint(url, settings.get(EMBEDDINGS_MODEL), settings.get(EMBEDDINGS_KEY))
    return MiniLm() if kind == "minilm" else None


MAX_FILE_BYTES = 5 * 1024 * 1024
MAX_OLD_FILES = 3
MAX_QUEUED_LINES = 10_000
"""Queue limit. When the disk is slower than the traffic, further lines are dropped and counted."""
GATHER_SECONDS = 0.5
"""Lines are collected for this long and written together."""
MAX_PATH_CHARS = 500


class AccessLog:
    """A context manager that writes queued lines until it closes. Closing writes the rest."""

    def __init__(self, path: Path) -> None:
        """Open the log file. If that fails, log one warning and discard all lines."""
        self._file: LogFile | None = None
        try:
            self._file = LogFile(path, largest=MAX_FILE_BYTES, kept=MAX_OLD_FILES)
        except OSError as error:
            log.warning("cannot write the access log %s: %s", path, error.strerror)
        self._lines: deque[tuple[float, Visit]] = deque()
        self._lost = 0
        self._news, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-access-log", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the queued lines and close the file. Idempotent."""
        self._over.set()
        self._news.set()
        self._thread.join()
        if self._file is not None:
            self._file.close()

    def add(self, visit: Visit) -> None:
        """Queue a line for `visit`. Does not block."""
        if self._file is None:
            return
        if len(self._lines) >= MAX_QUEUED_LINES:
            self._lost += 1
            return
        self._lines.append((time.time(), visit))
        self._news.set()

    def _run(self) -> None:
        while not self._over.is_set():
            self._news.wait()
            self._over.wait(GATHER_SECONDS)
            self._news.clear()
            self._write()

    def _write(self) -> None:
        lines = [_line(*self._lines.popleft()) for _ in range(len(self._lines))]
        if (lost := self._lost) and lines:
            self._lost -= lost
            lines.append(f"{_time(time.time())} {lost} requests are missing here: the disk was too slow to log them")
        if lines and self._file is not None:
            self._file.emit(logging.makeLogRecord({"msg": "\n".join(lines)}))


def _line(at: float, visit: Visit) -> str:
    # Escape control characters and spaces: every request stays one line.
    path = visit.path[:MAX_PATH_CHARS].encode("unicode_escape").decode("ascii").replace(" ", "%20")
    return f"{_time(at)} {visit.client} {visit.method} {path} {visit.status} {visit.seconds * 1000:.1f}"


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
