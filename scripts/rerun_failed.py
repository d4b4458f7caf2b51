"""Run the tests that failed in the last run once more, each alone. Those that pass are printed as flaky.

    python -m scripts.rerun_failed FILE

FILE is what the run wrote (`HERMES_FAILED_TESTS`). Tests of durability, safety and people are never run again: one that
fails now and then may have found a race. Nor is anything when many failed: that is no accident.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

MAX_RERUNS = 5
NEVER = re.compile(r"P[126]|1\.[5689]|2\.\d+|3\.\d+|4\.1[1-6]|5\.(?:[678]|10|13)|6\.\d+|7\.10|9\.(?:2|6)")
"""Contract facts about durability, safety and people."""
FOLDERS = ("tests/db/", "tests/sqlite/", "tests/compression/")
"""Folders in which nearly every test is about durability."""


def may_rerun(test: str, facts: list[str]) -> bool:
    """Return True unless a test is about durability, safety or people."""
    return not test.startswith(FOLDERS) and not any(NEVER.fullmatch(fact) for fact in facts)


def rerun(failed: dict[str, list[str]]) -> int:
    """Return 0 if every test that failed passes alone."""
    firm = [test for test, facts in failed.items() if not may_rerun(test, facts)]
    if not failed or firm or len(failed) > MAX_RERUNS:
        why = f"not run again: {', '.join(firm)}" if firm else f"{len(failed)} tests failed: none is run again"
        sys.stdout.write(f"{why}\n")
        return 1
    for test in failed:
        ran = subprocess.run([sys.executable, "-m", "pytest", "-n", "0", "-q", test], check=False)
        if ran.returncode != 0:
            return 1
    for test in failed:
        sys.stdout.write(f"flaky: {test} failed and then passed alone; mend it\n")
    return 0


if __name__ == "__main__":
    path = Path(sys.argv[1])
    sys.exit(rerun(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else 1)
