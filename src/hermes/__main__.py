"""`python -m hermes` and the `hermes` command."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line and return its exit code. Files that it writes are private to the user."""
    os.umask(0o077)
    if sys.argv[1:] == ["--version"]:
        from hermes import __version__

        sys.stdout.write(f"hermes {__version__}\n")
        return 0
    if sys.argv[1:2] == ["__complete"]:
        from hermes.cli.completing import main as complete

        return complete(sys.argv[2:])
    from hermes.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
