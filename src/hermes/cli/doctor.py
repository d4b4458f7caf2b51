"""`hermes doctor`: check a home, and with `--repair` fix damage that older versions left."""

from __future__ import annotations

import asyncio
import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from hermes.audit.backup import other_users
from hermes.audit.repair import Repair, repair, restore
from hermes.cli.dialog import agree
from hermes.cli.model_check import check_model
from hermes.cli.output import note, print_json, printable, say
from hermes.cli.own_name import advise
from hermes.cli.server_check import check_server
from hermes.cli.start import AsJson, find_home
from hermes.clock import Clock, SystemClock
from hermes.doctor import LOCK_TIMEOUT_SECONDS, Finding, examine
from hermes.errors import StoreDamagedError, UsageError
from hermes.home import Home

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
