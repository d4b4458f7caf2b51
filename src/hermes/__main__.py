"""`python -m hermes` and the `hermes` command."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; the exit code is the result."""
    if sys.argv[1:] == ["--version"]:
        from hermes import __version__

        sys.stdout.write(f"hermes {__version__}\n")
        return 0
    from hermes.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
