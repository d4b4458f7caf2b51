"""A process that logs numbered lines: `python -m tests.log_writer FILE NAME LINES LARGEST KEPT`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from hermes.logs import LogFile


def main(path: str, name: str, lines: str, largest: str, kept: str) -> None:
    handler = LogFile(Path(path), largest=int(largest), kept=int(kept))
    logger = logging.getLogger("writer")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel("INFO")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for number in range(int(lines)):
        # Some lines are longer than any buffer on the way.
        logger.info("%s %d %s.", name, number, "x" * (20_000 if number % 100 == 99 else 60))
        if number % 100 == 0:
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
    handler.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
