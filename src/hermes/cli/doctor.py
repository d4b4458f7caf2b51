"""`hermes doctor`: is everything as it should be?"""

from __future__ import annotations

import sys
from dataclasses import asdict

import typer

from hermes.cli.output import note, print_json, printable, say
from hermes.cli.start import AsJson, find_home
from hermes.clock import SystemClock
from hermes.doctor import Finding, examine

SIGNS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


def doctor(ctx: typer.Context, json: AsJson = False) -> int:
    """Check the store, the settings and the versions. Ends with 1 when something is wrong."""
    home = find_home(ctx)
    findings: list[Finding] = []
    if sys.stderr.isatty() and not json:
        note("checking; a large store takes a moment …")
    for finding in examine(home, SystemClock()):
        findings.append(finding)
        if not json:
            say(_line(finding))
    failed = any(finding.level == "fail" for finding in findings)
    if json:
        print_json({"ok": not failed, "home": str(home.path), "findings": [asdict(f) for f in findings]})
    return 1 if failed else 0


def _line(finding: Finding) -> str:
    fix = f" → {finding.fix}" if finding.fix else ""
    return f"{SIGNS[finding.level]}  {finding.check:<9} {printable(finding.detail)}{fix}"
