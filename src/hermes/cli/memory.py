"""`hermes memory`: the memory server and its background work.

`hermes memory start` and `stop`, and the server's part of `hermes memory status`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes.cli.memory_background import set_up_process
from hermes.cli.output import note, say, show_time
from hermes.cli.start import TO_END, find_home, on_signals
from hermes.clock import SystemClock
from hermes.config_file import load_shared_env
from hermes.embedded.connect import connect, take_seat
from hermes.embedded.connect import stop as stop_server
from hermes.embedded.rendezvous import Place, find_place
from hermes.errors import UsageError
from hermes.home import Home
from hermes.loopback import is_loopback

if TYPE_CHECKING:
    from hermes.memory_server.db.address import DatabaseAddress

FILE = "memory.db"
"""The database in a memory folder; repeated here so that nothing of the server is imported."""


def start(ctx: typer.Context) -> None:
    """Start the memory server in the background, unless it runs. Programs that need memory do this themselves."""
    place = place_of(ctx)
    connection = connect(place, say=note)
    say(f"memory server on {connection.base_url}, data in {place.folder}; its key is in {place.rendezvous}")


def stop(ctx: typer.Context) -> None:
    """Stop the background memory server after it finishes its requests. Waiting work is done after the next start."""
    place = place_of(ctx)
    ended = stop_server(place)
    say(f"no memory server runs on {place.folder}" if ended is None else f"memory server of {place.folder} ended")


def server_lines(server: Mapping[str, Any]) -> list[str]:
    """Return the server's state as lines of text."""
    if server["problem"]:
        return [f"server    {server['problem']}"]
    if not server["running"]:
        gone = f"; process {server['gone']} ended unexpectedly" if server["gone"] else ""
        starts = "it starts if a provider needs it"
        return [f"server    not running on this machine{gone}; {starts}, data in {server['folder']}"]
    health, lag = server["health"], server["health"].get("lag", {})
    by = "in the background" if server["kind"] == "background" else "by `hermes memory serve`"
    reasons = lag.get("reasons", {})
    waiting, oldest = lag.get("waiting_jobs"), lag.get("oldest_job_seconds")
    jobs = f"{waiting} jobs wait, the oldest for {oldest} s" if waiting else "no jobs wait"
    retried = [f"{kind} tried {n} times ({reasons.get(kind, '?')})" for kind, n in lag.get("retried", {}).items()]
    return [
        f"server    {server['url']}, {health.get('status')}, process {server['pid']}, version {server['version']}, "
        f"{by} since {show_time(server['started_at'])}, data in {server['folder']}",
        f"          {jobs}; {health.get('disk_free_bytes', 0) / 1e9:.1f} GB free",
        *_rereading_lines(health.get("rereading") or {}),
        *server_model_lines(health.get("model")),
        *([f"          not done yet: {', '.join(retried)}"] if retried else []),
    ]


def _rereading_lines(counts: Mapping[str, int]) -> list[str]:
    """Describe the progress of reading old messages again."""
    if not any(counts.values()):
        return []
    left = f", {counts['left']:,} rows to go" if counts["left"] else "; `hermes memory reread --undo` undoes it"
    done = f"{counts['retired']:,} conclusions of earlier versions retired, {counts['added']:,} added"
    return [f"          read again: {done}{left}"]


def server_model_lines(model: Mapping[str, Any] | None) -> list[str]:
    """Describe the server's model and the work that waits for it."""
    if model is None:
        return ["          no model: it works from the text alone; `hermes memory model` names one"]
    today = (model.get("today") or {}).values()
    calls, tokens = (sum(one[field] for one in today) for field in ("calls", "tokens"))
    caps = f"caps {model.get('cap_calls', 0):,} and {model.get('cap_tokens', 0):,} per workspace"
    failed = model.get("last_failure")
    trouble = f", last failure {failed['kind']} at {failed['at']}" if failed else ""
    lines = [
        f"          model {model['name'] or '(first of its endpoint)'}, {model['state']}, class "
        f"{model.get('class') or 'not known yet'}: {calls:,} calls and {tokens:,} tokens today ({caps}){trouble}"
    ]
    if waiting := model.get("waiting"):
        listed = ", ".join(f"{number} {kind}" for kind, number in waiting.items())
        lines.append(f"          waiting for the model: {listed}")
    return lines


def _report_unused(home: Home, place: Place) -> None:
    """Print a note about memory folders of early versions, which kept one per profile. This version ignores them."""
    if folders := [old for old in home.old_memories(FILE) if old != place.folder]:
        more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
        note(
            f"memory of an earlier version in {folders[0]}{more} is not used here; `hermes memory serve --data "
            f"{folders[0]}` serves it, and `hermes memory export` and `import` take it along"
        )


def place_of(ctx: typer.Context, data: Path | None = None) -> Place:
    """Return the place of the memory: the given folder, or the home's own. Unused old folders are reported."""
    home = find_home(ctx)
    place = find_place(home, load_shared_env(home), data)
    if data is None:
        _report_unused(home, place)
    return place


COMMANDS = {
    "outbox": "outbox:app",
    "status": "memory_status:status",
    "list": "memory_book:list_",
    "search": "memory_book:search",
    "why": "memory_book:why",
    "edit": "memory_book:edit",
    "explain": "memory_book:explain",
    "backfill": "memory_learning:backfill",
    "reread": "memory_learning:reread",
    "forget": "memory_book:forget",
    "setup": "memory_status:setup",
    "model": "memory_model:model",
    "dreams": "memory_learning:dreams",
    "start": "memory:start",
    "stop": "memory:stop",
    "export": "transfer:export",
    "import": "transfer:import_",
    "migrate": "memory_migrate:migrate",
    "serve": "memory:serve",
    "worker": "memory:worker",
    "approve": "memory_clients:approve",
    "clients": "memory_clients:app",
}
"""Each command's module in this package and its attribute: a function or a command group."""
AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""For `setup`: options after a provider's name belong to the provider."""
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the memory (default: HERMES_MEMORY_DATA, or memory/ of the default home)."),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="PostgreSQL database that holds the memory instead of the folder (default: HERMES_MEMORY_DATABASE).",
    ),
]


def build(asked: str | None) -> typer.Typer:
    """Build the group with the requested command, or with all. A server then imports none of the others."""
    app = typer.Typer(
        help="The memory provider, messages it has not received yet, and the memory server.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for name in [asked] if asked in COMMANDS else COMMANDS:
        module, _, attribute = COMMANDS[name].partition(":")
        held = getattr(import_module(f"hermes.cli.{module}"), attribute)
        if isinstance(held, typer.Typer):
            app.add_typer(held, name=name)
        else:
            app.command(name, context_settings=AS_GIVEN if name == "setup" else None)(held)
    return app


def serve(
    ctx: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    data: Data = None,
    database: DatabaseUrl = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Leave background work to `hermes memory worker`.")
    ] = False,
    model_env: Annotated[
        bool,
        typer.Option("--model-env", help="Ask the model that HERMES_MEMORY_MODEL_* name, if the folder names none."),
    ] = False,
) -> None:
    """Serve the Honcho v3 API. AUTH_USE_AUTH and AUTH_JWT_SECRET turn keys on; `hermes memory model` names a model."""
    set_up_process()
    place = place_of(ctx, data)
    serving = import_module("hermes.cli.memory_serving")  # imported late: only this command needs a web server
    env = load_shared_env(find_home(ctx))
    options = replace(serving.Options.from_env(env), show_code=_choose_code_screen())
    address = find_database(database, data, env)
    if options.use_auth and not options.jwt_secret:
        raise UsageError("AUTH_USE_AUTH is on but AUTH_JWT_SECRET is empty", hint="Set it to a long random text")
    if not options.use_auth and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines, and keys are off",
            hint="Set AUTH_USE_AUTH=true and AUTH_JWT_SECRET, or listen on 127.0.0.1",
        )
    listener = serving.listen(host, port, "choose another --port")
    with take_seat(place) if address is None else nullcontext() as other:
        beside = "" if other is None else f"; programs on this machine use the one that process {other.pid} serves"
        where = f"data in {address or place.folder}"
        greeting = f"memory server on http://{host}:{listener.getsockname()[1]} · {where}{beside}"
        serving_options = serving.ServingOptions(
            place, listener, options, "serve", serving.key_for_programs(options),
            works=not no_worker, publishes=other is None and address is None, greet=lambda: note(greeting),
            model_from_env=model_env, database=address,
        )  # fmt: skip
        serving.run(serving_options)


def _choose_code_screen() -> Callable[[str], None] | None:
    """Return the function that shows one-time codes: at a terminal only, never in a log."""
    return note if sys.stderr.isatty() else None


def find_database(option: str | None, data: Path | None, env: Mapping[str, str]) -> DatabaseAddress | None:
    """Return the chosen PostgreSQL database; None for a folder (the default, or `--data`)."""
    if option is None and (data is not None or not env.get("HERMES_MEMORY_DATABASE")):
        return None
    from hermes.memory_server.db.address import find_address

    return find_address(option, env)


def worker(
    ctx: typer.Context,
    data: Data = None,
    database: DatabaseUrl = None,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", help="Port of 127.0.0.1 for Prometheus (default: none).")
    ] = None,
) -> None:
    """Do the background work of a memory folder or database until stopped; several may run."""
    from hermes.memory_server.api.server import Options
    from hermes.memory_server.engine.embedding import Refinement, refining
    from hermes.memory_server.engine.webhooks import WebhookDelivery
    from hermes.memory_server.engine.word_vectors import WordVectors
    from hermes.memory_server.engine.worker import JobWorker
    from hermes.memory_server.model.door import ModelDoor

    place = place_of(ctx, data)
    folder = place.folder
    serving = import_module("hermes.cli.memory_serving")  # imported late: only this command needs it
    finer, dreams = serving.choose_finer(place.home), serving.has_dreams(place.home)
    env = load_shared_env(find_home(ctx))
    secret, address = Options.from_env(env).webhook_secret, find_database(database, data, env)

    async def run() -> None:
        opened = serving.open_worked(folder, address)
        models = ModelDoor(opened, SystemClock(), serving.find_model(place))
        delivery = WebhookDelivery(secret)
        working = JobWorker(opened, SystemClock(), WordVectors(), delivery=delivery, models=models, dreams=dreams)
        models.wake = working.wake
        watching = asyncio.create_task(models.watch())
        note(f"memory worker on {address or folder}")
        try:
            with on_signals(TO_END, lambda _: working.stop()):
                refinement = None if finer is None else Refinement(finer)
                async with serving.showing_metrics(working, metrics_port), refining(opened, refinement):
                    await working.run()
        finally:
            watching.cancel()
            await models.close()
            await opened.close()

    asyncio.run(run())
