"""Many processes with one expired sign-in: one exchange, after which all work, even if one dies during it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.honcho.configuring import Machine
from tests.honcho.issuer import Issuer
from tests.honcho.renewer import mark
from tests.honcho.signing_in import sign_in, stored
from tests.memory_server.serving import ROOT
from tests.scale import scale

pytestmark = [pytest.mark.processes, pytest.mark.contract("8.2")]
PROCESSES, THREADS, ROUNDS = scale(3, 8), 4, scale(1, 10)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as made:
        yield made


def begin(machine: Machine, stack: ExitStack, *how: str) -> subprocess.Popen[str]:
    """Start a process whose threads are about to renew."""
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "tests.honcho.renewer", str(THREADS), *how],
            cwd=ROOT,
            env={"HOME": str(machine.folder), "PYTHONPATH": f"{ROOT}/src:{ROOT}", "PATH": "/usr/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.timeout(120 * ROUNDS)
def test_processes_and_threads_make_one_exchange(machine: Machine, issuer: Issuer) -> None:
    for number in range(1, ROUNDS + 1):
        sign_in(machine, issuer)
        with ExitStack() as stack:
            all_of_them = [begin(machine, stack) for _ in range(PROCESSES)]
            for process in all_of_them:
                go(process)
            told = [process.communicate()[0].split() for process in all_of_them]
        assert {one for lines in told for one in lines} == {mark(stored(machine)["apiKey"])}
        assert [len(lines) for lines in told] == [THREADS] * PROCESSES
        assert (issuer.counts["exchanges"], issuer.counts["refresh_token"]) == (number, number)


@pytest.mark.timeout(120 * ROUNDS)
def test_holder_that_dies_before_it_stores_costs_nobody_the_grant(machine: Machine, issuer: Issuer) -> None:
    for number in range(1, ROUNDS + 1):
        spent = sign_in(machine, issuer)
        with ExitStack() as stack:
            killed, *others = (
                begin(machine, stack, "killed"),
                *(begin(machine, stack) for _ in range(PROCESSES - 1)),
            )
            go(killed)
            assert killed.wait() == -signal.SIGKILL
            assert stored(machine)["apiKey"] == spent, "nothing was stored"
            for process in others:
                go(process)
            told = {one for process in others for one in process.communicate()[0].split()}
        assert told == {mark(stored(machine)["apiKey"])}
        assert (issuer.counts["exchanges"], issuer.counts["replays"], issuer.counts["revoked"]) == (number, number, 0)
