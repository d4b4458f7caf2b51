"""Runs inside the environment of a stock Hermes: its command line, and an end at one of its own durable steps.

`STOCK_KILL` is `STEP:WHEN:COUNT`: the process ends with SIGKILL right before or after the COUNT-th call of that step
since a compression took its lock.
"""

import os
import signal
import sys
from functools import wraps

import hermes_state
from hermes_cli.main import main

LOCK = "try_acquire_compression_lock"


def arm(step, when, count):
    """Wrap the step, and the lock from which its calls are counted."""
    seen = {"locked": False, "calls": 0}

    def wrap(name):
        original = getattr(hermes_state.SessionDB, name)

        @wraps(original)
        def counted(*args, **kwargs):
            seen["locked"] = seen["locked"] or name == LOCK
            due = name == step and seen["locked"]
            seen["calls"] += due
            hit = due and seen["calls"] == count
            if hit and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args, **kwargs)
            if hit:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(hermes_state.SessionDB, name, counted)

    for name in {LOCK, step}:
        wrap(name)


if order := os.environ.get("STOCK_KILL"):
    wanted_step, wanted_when, wanted_count = order.split(":")
    arm(wanted_step, wanted_when, int(wanted_count))
sys.exit(main())
