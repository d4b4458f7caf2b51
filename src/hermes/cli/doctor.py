"""`hermes doctor`: check a home, and with `--repair` fix damage that older versions left.

The memory server's part of `hermes doctor`: a running server is asked for its health.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from hermes.assembly import OPENAI, has_model
from hermes.audit.repair import Repair, other_users, repair, restore
from hermes.cli.dialog import agree
from hermes.cli.output import note, print_json, printable, say
from hermes.cli.own_name import advise
from hermes.cli.start import AsJson, find_home
from hermes.clock import Clock, SystemClock
from hermes.configuration import read_configuration
from hermes.doctor import LOCK_TIMEOUT_SECONDS, Finding, examine
from hermes.errors import HomeError, ModelError, SettingsError, StoreDamagedError, UsageError
from hermes.home import Home
from hermes.llm.discover import chat_models, list_models
from hermes.owner.status import read_server
from hermes.settings import API_KEY, BASE_URL, MODEL

CHECK = "server"
MORE = "`hermes memory status` shows details"


def check_server(home: Home) -> Iterator[Finding]:
    """Report the health of a running memory server. Yields nothing if none runs: it starts on demand."""
    try:
        server = read_server(home)
    except (HomeError, SettingsError):
        return  # the home's files are unreadable: other checks report that
    if server["problem"]:
        yield Finding(CHECK, "fail", server["problem"])
    elif server["running"]:
        state = server["health"].get("status", "silent")
        where = f"the memory server at {server['url']}"
        is_well = state == "ok"
        yield Finding(CHECK, "ok" if is_well else "fail", f"{where}: {state}", "" if is_well else MORE)


SIGNS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


def doctor(
    ctx: typer.Context,
    mend: Annotated[bool, typer.Option("--repair", help="Repair damaged conversations, after a backup.")] = False,
    backup: Annotated[
        Path | None, typer.Option("--restore", metavar="BACKUP", help="Replace the store with a backup.")
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="With --repair or --restore: do not ask.")] = False,
    json: AsJson = False,
) -> int:
    """Check store, conversations, log, settings, memory, model and versions. Exits with 1 if a problem remains."""
    home, clock = find_home(ctx), SystemClock()
    if backup is not None:
        _go_back(home, clock, backup, mend=mend, yes=yes, quiet=json)
    if sys.stderr.isatty() and not json:
        note("checking; a large store takes a moment …")
    findings = _examine(home, clock, quiet=json)
    done = None
    if mend and any(finding.remedy for finding in findings):
        _ask(home, findings, yes)
        done = asyncio.run(repair(home, clock=clock, lock_timeout=LOCK_TIMEOUT_SECONDS))
        if not json:
            _print_repair(done)
        findings = list(examine(home, clock))
    elif mend and not json:
        failing = any(finding.level == "fail" for finding in findings)
        say("--repair cannot fix any of this." if failing else "Nothing to repair.")
    failed = any(finding.level == "fail" for finding in findings)
    if json:
        print_json(_report(home, findings, failed, done))
    return 1 if failed else 0


def _examine(home: Home, clock: Clock, *, quiet: bool) -> list[Finding]:
    findings = []
    for finding in chain(examine(home, clock), check_server(home), check_model(home)):
        findings.append(finding)
        if not quiet:
            say(_line(finding))
    return findings


def _ask(home: Home, findings: list[Finding], yes: bool) -> None:
    """Ask for confirmation. Raises StoreDamagedError if the database file itself is damaged."""
    if any(finding.check == "store" and finding.level == "fail" for finding in findings):
        raise StoreDamagedError(f"{home.state_file} is damaged, so its conversations cannot be repaired")
    if users := other_users(home.state_file):
        ids = ", ".join(map(str, users))
        note(f"hermes: process {ids} has {home.state_file} open and may keep using old data: stop it first")
    agree("Make a backup and repair this?", "repairing", "changed", yes)


def _go_back(home: Home, clock: Clock, backup: Path, *, mend: bool, yes: bool, quiet: bool) -> None:
    """Restore a backup after confirmation."""
    if mend:
        raise UsageError("--restore and --repair do not go together", hint="Restore first")
    agree(f"Put {backup} in the place of {home.state_file}?", "restoring", "changed", yes)
    done = restore(home.state_file, backup, now=clock.now(), lock_timeout=LOCK_TIMEOUT_SECONDS)
    if not quiet:
        kept = f"; the previous store is kept as {done.kept}" if done.kept else ""
        say(f"Restored from {done.backup}{kept}\n")


def _print_repair(done: Repair) -> None:
    say(f"\nBackup: {done.backup}")
    for damage in done.mended:
        say(f"mended  [{damage.code}] {printable(damage.remedy)}")
    for damage in done.left:
        say(f"LEFT    [{damage.code}] {printable(damage.detail)} → in use by another process; run the command again")


def _report(home: Home, findings: list[Finding], failed: bool, done: Repair | None) -> dict[str, object]:
    report: dict[str, object] = {
        "ok": not failed,
        "home": str(home.path),
        "findings": [to_builtins(f) for f in findings],
    }
    if done is not None:
        mended = [
            {"code": damage.code, "sessions": damage.sessions, "detail": damage.detail, "remedy": damage.remedy}
            for damage in done.mended
        ]
        report["repair"] = {"backup": str(done.backup), "mended": mended, "left": len(done.left)}
    return report


def _line(finding: Finding) -> str:
    code = f"[{finding.code}] " if finding.code else ""
    remedy = f" ({printable(finding.remedy)})" if finding.remedy else ""
    fix = f" → {advise(finding.fix)}" if finding.fix else ""
    return f"{SIGNS[finding.level]}  {finding.check:<9} {code}{printable(finding.detail)}{fix}{remedy}"


LIST_TIMEOUT_SECONDS = 5.0
"""Time limit for the endpoint's answer."""
ENDPOINT = "model"


def check_model(home: Home) -> Iterator[Finding]:
    """Check that the configured model is available. Problems are warnings: an endpoint may return at any time."""
    try:
        settings = read_configuration(home).settings
    except SettingsError:
        return  # reported by the settings check
    if not has_model(settings):
        yield Finding(ENDPOINT, "ok", "none is configured: answers come from memory alone", "`hermes model` finds one")
        return
    url, name = settings.get(BASE_URL) or OPENAI, settings.get(MODEL)
    where = f"{name or 'its first model'} at {BASE_URL.shown(url)}"
    try:
        listed = asyncio.run(list_models(url, settings.get(API_KEY) or None, timeout=LIST_TIMEOUT_SECONDS))
    except ModelError as error:
        yield Finding(
            ENDPOINT, "warn", f"{where}: {error.message}", "`hermes model` sends it a request and shows details"
        )
        return
    names = [model.name for model in listed]
    if not name and (several := chat_models(names)):
        where = f"{several[0]}, the first of {len(several)} at {BASE_URL.shown(url)},"
    if name and name not in names:
        known = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        yield Finding(
            ENDPOINT, "warn", f"{where} is not among its models: {known}", "`hermes config set model.default NAME`"
        )
        return
    yield Finding(ENDPOINT, "ok", f"{where} is there")
