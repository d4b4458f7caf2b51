"""Every test gets its own home; the developer's is never used."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import is_hypothesis_test

from hermes.cli.main import run
from hermes.clock import SystemClock
from hermes.store.store import Store
from tests.left_behind import still_below
from tests.process_guard import ProcessGuard
from tests.scale import load_profile

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; programs inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all tests are collected, of which nothing is garbage
GUARD = ProcessGuard()
ALL_START_PROCESSES = re.compile(r"^pytestmark = .*\bprocesses\b", re.MULTILINE)
load_profile()  # before the modules with properties are read

# As in a server: a vector is multiplied faster than threads can be woken for it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A memory server that a test started in the background, and did not end, ends soon.
os.environ.setdefault("HERMES_MEMORY_SERVER_IDLE", "60")
# Memory is the default; a test that wants it says so in its config.yaml, or takes this away.
os.environ["HERMES_MEMORY_PROVIDER"] = "none"
# So are finer vectors, which take some ten milliseconds of each message.
os.environ["HERMES_FINER_EMBEDDER"] = "none"
# So are titles, which ask the model once more.
os.environ["HERMES_AUTO_TITLE"] = "false"
# So is the test whether a model can use tools, which asks it too.
os.environ["HERMES_MODEL_TOOLS"] = "on"
# So is the owner's name, which the first start asks for.
os.environ["HERMES_OWNER_NAME"] = ""
# Hundreds of tests start a process: without compiled code each would compile all of ours first.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Thousands of tests wait until what they wrote is on a disk: files in memory, where there is room, are there at once.
MEMORY, ROOM = Path("/dev/shm"), 4 * 2**30
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip importing files whose every test starts processes, if those are not selected."""
    if collection_path.suffix != ".py" or "not processes" not in config.getoption("markexpr"):
        return None
    return True if ALL_START_PROCESSES.search(collection_path.read_text(encoding="utf-8")) else None


FAILED_TESTS = os.environ.get("HERMES_FAILED_TESTS") or None
"""The file that lists the failed tests, with the contract facts that each proves."""
_failed: dict[str, list[str]] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the contract facts of a test to its report, also from a worker."""
    outcome = yield
    facts = [str(fact) for mark in item.iter_markers("contract") for fact in mark.args]
    outcome.get_result().user_properties.append(("facts", facts))  # type: ignore[attr-defined]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and FAILED_TESTS is not None:
        _failed[report.nodeid] = list(dict(report.user_properties).get("facts", []))  # type: ignore[call-overload]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if FAILED_TESTS is not None and not hasattr(session.config, "workerinput"):
        Path(FAILED_TESTS).write_text(json.dumps(_failed), encoding="utf-8")


def pytest_collection_finish() -> None:
    """Freeze what was imported for thousands of tests, so that the garbage collector skips it."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with process-starting fixtures as `processes`, and properties as `stress`, before `-m` selects."""
    for item in items:
        if isinstance(item, pytest.Function) and "processes" in item.fixturenames:
            item.add_marker("processes")
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker("stress")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Refuse processes to tests that are not marked `processes`."""
    if item.get_closest_marker("processes"):
        return (yield)
    with GUARD.refusing(item.nodeid):
        return (yield)


@pytest.fixture(scope="session")
def processes() -> None:
    """Requested by every fixture that starts a process: tests that use it are marked `processes`."""


@pytest.fixture(scope="session", autouse=True)
def _no_server_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kill memory servers that are left after the last test, and fail if there are any."""
    yield
    left = still_below(tmp_path_factory.getbasetemp())
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert left == {}, "these memory servers were left behind"


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Restore logging after each test, since commands in this process start a log."""
    loggers = [logging.getLogger(name) for name in ("hermes", "asyncio", "uvicorn")]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        for handler in logger.handlers if logger.handlers is not handlers else ():
            handler.close()
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@dataclass(frozen=True, slots=True)
class Ran:
    """Output and exit code of a command line."""

    code: int
    out: str
    err: str


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, named by HERMES_HOME."""
    path = tmp_path / "home"
    monkeypatch.setenv("HERMES_HOME", str(path))
    for name in ("HERMES_LOCK_TIMEOUT", "HERMES_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def hermes(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Ran]]:
    """Runs a command line in this process, without input: `hermes("sessions", "list")`."""

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    with Path(os.devnull).open(encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield call


@pytest_asyncio.fixture
async def store(home: Path) -> AsyncIterator[Store]:
    """An open, empty store in the home."""
    home.mkdir(parents=True)
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as opened:
        yield opened
