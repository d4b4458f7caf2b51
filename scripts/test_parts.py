"""Install the Debian packages that tests need: `python -m scripts.test_parts [PART …]`, all of them by default.

As root, or in CI with `sudo`. Elsewhere the command to run by hand is printed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

PARTS = {
    "chromium": (("chromium",), ("chromium",)),
    "node": (("node", "npm"), ("nodejs", "npm")),
    "shells": (("zsh", "fish"), ("zsh", "fish")),
}
"""The commands of each part, and Debian's packages that bring them."""
APT_SECONDS = 300.0


def find_missing(commands: Sequence[str]) -> list[str]:
    """Return the commands that this machine lacks."""
    return [command for command in commands if shutil.which(command) is None]


def install(commands: Sequence[str], packages: Sequence[str]) -> str:
    """Install the packages unless the commands exist. Return "", or why a command is still missing."""
    if not (missing := find_missing(commands)):
        return ""
    by_hand = f"apt-get install {' '.join(packages)}"
    if (prefix := _find_prefix()) is None:
        return f"{', '.join(missing)}: `{by_hand}` as root installs what is needed"
    with FileLock(Path(tempfile.gettempdir()) / "hermes-tests-apt.lock"):
        if find_missing(commands):
            for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
                subprocess.run([*prefix, "apt-get", *step], check=False, capture_output=True, timeout=APT_SECONDS)
    missing = find_missing(commands)
    return f"{', '.join(missing)}: `{by_hand}` did not install it" if missing else ""


def _find_prefix() -> list[str] | None:
    """Return the prefix that runs `apt-get` as root; None without apt-get or a way to be root."""
    if shutil.which("apt-get") is None:
        return None
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return []
    return ["sudo", "-n"] if os.environ.get("CI") and shutil.which("sudo") else None


def main(names: Sequence[str]) -> int:
    """Install the named parts; 1 if one is unknown or cannot be installed."""
    if unknown := [name for name in names if name not in PARTS]:
        sys.stderr.write(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}\n")
        return 1
    problems = [problem for name in names or PARTS if (problem := install(*PARTS[name]))]
    sys.stderr.writelines(f"missing: {problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
