"""`hermes memory`: the memory server and its background work."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from hermes.app import load_shared_env
from hermes.cli import memory_setup, memory_status, outbox
from hermes.cli.output import note
from hermes.cli.start import find_home
from hermes.clock import SystemClock
from hermes.errors import UsageError
from hermes.loopback import is_loopback

SWITCH_SECONDS = 0.001
"""How long a thread computes before another has its turn: requests are answered between turns of what takes long."""
M_ARENA_MAX = -8
"""The name that glibc's mallopt has for the number of heaps."""
app = typer.Typer(
    help="The memory provider, what it has not been told yet, and the memory server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(outbox.app, name="outbox")
app.command()(memory_status.status)
app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)(memory_setup.setup)
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the memory (default: HERMES_MEMORY_DATA, or memory/ of the default home)."),
]


@app.command()
def serve(
    ctx: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    data: Data = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Leave background work to `hermes memory worker`.")
    ] = False,
) -> None:
    """Serve the Honcho v3 API. AUTH_USE_AUTH and AUTH_JWT_SECRET switch keys on."""
    # A vector is multiplied faster than threads can be woken for it, and each would take memory of its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _share_one_heap()
    sys.setswitchinterval(SWITCH_SECONDS)
    import uvicorn

    from hermes.memory_server import limits
    from hermes.memory_server.api.app import create_app
    from hermes.memory_server.api.connection import PatientConnection
    from hermes.memory_server.api.server import Options
    from hermes.memory_server.db.schema import open_database, open_for_work
    from hermes.memory_server.engine.word_vectors import WordVectors

    env = load_shared_env(find_home(ctx))
    options = Options.from_env(env)
    if options.use_auth and not options.jwt_secret:
        raise UsageError("AUTH_USE_AUTH is on but AUTH_JWT_SECRET is empty", hint="Set it to a long random text")
    if not options.use_auth and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines, and no key is asked for",
            hint="Set AUTH_USE_AUTH=true and AUTH_JWT_SECRET, or listen on 127.0.0.1",
        )
    folder = _folder(ctx, data, env)
    # Bound before anything is loaded: who connects from now on waits for the first answer and is not refused.
    listener = _listen(host, port)
    database = open_database(
        folder, read_seconds=limits.READ_SECONDS
    )  # here, so that a folder that cannot be opened is told in one line
    built = create_app(
        lambda: database,
        clock=SystemClock(),
        options=options,
        embedder=WordVectors(),
        open_for_work=None if no_worker else lambda: open_for_work(folder),
    )
    note(f"memory server on http://{host}:{listener.getsockname()[1]}, data in {folder}")
    config = uvicorn.Config(
        built, http=PatientConnection, log_level="warning", access_log=False, timeout_graceful_shutdown=4
    )
    uvicorn.Server(config).run(sockets=[listener])


@app.command()
def worker(ctx: typer.Context, data: Data = None) -> None:
    """Do the background work of a memory folder until stopped; several may run."""
    from hermes.memory_server.api.server import Options
    from hermes.memory_server.db.schema import open_for_work
    from hermes.memory_server.engine.delivery import Delivery
    from hermes.memory_server.engine.word_vectors import WordVectors
    from hermes.memory_server.engine.worker import Worker

    env = load_shared_env(find_home(ctx))
    folder = _folder(ctx, data, env)
    secret = Options.from_env(env).webhook_secret

    async def run() -> None:
        database = open_for_work(folder)
        working = Worker(database, SystemClock(), WordVectors(), delivery=Delivery(secret))
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(name, working.stop)
            except NotImplementedError:  # Windows: Ctrl-C ends the loop by itself
                break
        note(f"memory worker on {folder}")
        try:
            await working.run()
        finally:
            await database.close()

    asyncio.run(run())


def _share_one_heap() -> None:
    """glibc gives each thread a heap that keeps what was freed; ours take turns and need one. Elsewhere: nothing."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512
        )
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error}", hint="Choose another --port") from error


def _folder(ctx: typer.Context, data: Path | None, env: Mapping[str, str]) -> Path:
    if data is not None:
        return data.expanduser().absolute()
    from hermes.memory_server.db.schema import FILE

    home = find_home(ctx)
    given = env.get("HERMES_MEMORY_DATA")
    folder = Path(given).expanduser().absolute() if given else home.memory
    _tell_of_unused([old for old in home.old_memories(FILE) if old != folder])
    return folder


def _tell_of_unused(folders: Sequence[Path]) -> None:
    """Early versions gave each profile a memory of its own; what is there is not read any more."""
    if folders:
        more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
        note(f"memory of an earlier version in {folders[0]}{more} is not used here; `--data {folders[0]}` serves it")
