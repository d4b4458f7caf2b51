"""`hermes memory start` and `stop`, and the server's part of `hermes memory status`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from hermes.cli.output import note, say, show_time
from hermes.cli.start import find_home
from hermes.config_file import load_shared_env
from hermes.embedded.connect import connect
from hermes.embedded.connect import stop as stop_server
from hermes.embedded.place import Place, find_place
from hermes.home import Home

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
