"""Threads of one process that need a token at once: `python -m tests.honcho.renewer THREADS [killed]`. HOME names
the user's folder. After a line on stdin, each thread renews and prints the hash of its token; with `killed` the
process dies between response and store."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from hermes.honcho import renewal
from tests.honcho.configuring import Machine

TIMINGS = renewal.RenewalTimings(lock=60.0)


def renew(threads: int) -> None:
    machine = Machine(Path(os.environ["HOME"]))
    spent = machine.read()["hosts"]["hermes"]["apiKey"]
    each = [renewal.Renewal(machine.places(), machine.load, time.time, TIMINGS) for _ in range(threads)]
    say("ready")
    sys.stdin.readline()
    with ThreadPoolExecutor(threads) as pool:
        for found in pool.map(lambda one: one.renew(spent), each):
            say(mark(found.access_token))


def mark(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[2:] == ["killed"]:
        vars(renewal)["edit_locked_document"] = die
    renew(int(sys.argv[1]))
