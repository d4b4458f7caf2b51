"""`hermes memory export` and `import` as a person uses them, also when they are killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.errors import TransferError
from hermes.transfer.importing import Progress
from tests.conftest import Ran
from tests.memory_server.serving import ROOT, SECRET, Served, inside, running
from tests.memory_server.talking import say, settle
from tests.scale import scale
from tests.transfer.carrying import items

pytestmark = [pytest.mark.contract("9.12"), pytest.mark.processes]


def test_commands_transfer_a_workspace_and_report_it(
    hermes: Callable[..., Ran], old: Served, new: Served, other: Served, filled: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "e.jsonl")
    told = hermes("memory", "export", filled, file, "--from", old.url)
    assert told.code == 0, told.err
    assert told.out.startswith(f"{filled}: 1 workspace, 4 peers, 8 sessions")
    brought = hermes("memory", "import", file, "--to", new.url, "--json")
    assert brought.code == 0, brought.err
    report = json.loads(brought.out)
    assert (report["target"], report["carried"]["messages"], report["refused"]) == ("hermes", 278, 0)
    again = hermes("memory", "import", file, "--to", new.url)
    assert f"{filled}: nothing imported into {new.url}\nalready there: 1 workspace" in again.out
    abroad = hermes("memory", "import", file, "--to", other.url)
    assert "could not be imported: messages: their ids (278)" in abroad.out
    back = hermes("memory", "export", filled, str(tmp_path / "back.jsonl"), "--from", other.url)
    assert "not provided by the server: conclusions: which messages they came from" in back.out


def test_errors_are_one_line(
    hermes: Callable[..., Ran], old: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.transfer.remote.FIRST_RETRY_DELAY_SECONDS", 0.001)
    for arguments, problem in (
        (("export", "w", str(tmp_path / "e"), "--from", "http://127.0.0.1:9"), "does not respond"),
        (("export", "nowhere", str(tmp_path / "e"), "--from", old.url), "nowhere not found"),
        (("export", "w", str(tmp_path / "e"), "--from", "nonsense"), "does not respond"),
        (("import", str(tmp_path / "no"), "--to", old.url), "cannot be read"),
    ):
        told = hermes("memory", *arguments)
        assert (told.code, told.out, told.err.count("\n")) == (1, "", 1), told
        assert problem in told.err


def test_key_is_taken_from_the_environment(
    hermes: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "guarded", AUTH_USE_AUTH="true", AUTH_JWT_SECRET=SECRET) as served:
        refused = hermes("memory", "export", "w", str(tmp_path / "e"), "--from", served.url)
        assert "401 No access token provided" in refused.err
        import jwt

        monkeypatch.setenv("HONCHO_API_KEY", jwt.encode({"t": "", "w": "w"}, SECRET, algorithm="HS256"))
        monkeypatch.setenv("HONCHO_URL", served.url)
        with served.client(os.environ["HONCHO_API_KEY"]) as http:
            http.post("/v3/workspaces", json={"id": "w"}).raise_for_status()
        assert hermes("memory", "export", "w", str(tmp_path / "e")).code == 0
        assert hermes("memory", "import", str(tmp_path / "e")).code == 0


def test_default_server_is_that_of_this_home_even_on_another_port(
    hermes: Callable[..., Ran], new: Served, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Progress.save

    def save_and_stop(progress: Progress) -> None:
        save(progress)
        raise TransferError("it was cut off")

    with inside(new, workspace) as http:
        say(http, "talk", "I like tea.")
        settle(http)
    file = str(tmp_path / "e.jsonl")
    assert hermes("memory", "export", workspace, file, "--from", new.url).code == 0
    try:
        with monkeypatch.context() as cut_off:
            cut_off.setattr(Progress, "save", save_and_stop)
            assert "it was cut off" in hermes("memory", "import", file).err
        assert hermes("memory", "stop").code == 0, "the next one is found on another port"
        brought = hermes("memory", "import", file)
        assert brought.code == 0, brought.err
        told = hermes("memory", "export", workspace, str(tmp_path / "again.jsonl"))
        assert told.code == 0, told.err
        assert items(Path(file)) == items(tmp_path / "again.jsonl")
    finally:
        hermes("memory", "stop")


@pytest.mark.stress
def test_killed_commands_resume(old: Served, new: Served, workspace: str, tmp_path: Path) -> None:
    with inside(old, workspace) as http:
        for number in range(30):
            say(http, f"s{number}", *(f"word {number} {n}" for n in range(100)))
        settle(http)
    chance = random.Random(3)
    file, again = str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")
    for arguments in (("export", workspace, file, "--from", old.url), ("import", file, "--to", new.url)):
        for _ in range(scale(3, 10)):
            kill_after(arguments, chance.uniform(0.3, 0.9), tmp_path)
        if not (arguments[0] == "export" and Path(file).exists()):
            assert run(arguments, tmp_path).wait() == 0
    assert run(("export", workspace, again, "--from", new.url), tmp_path).wait() == 0
    assert items(Path(file)) == items(Path(again))
    assert len(items(Path(file))["messages"]) == 3000


def run(arguments: tuple[str, ...], home: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "HERMES_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-m", "hermes", "memory", *arguments]
    return subprocess.Popen(command, env=env, cwd=ROOT, stdout=quiet, stderr=quiet)


def kill_after(arguments: tuple[str, ...], seconds: float, home: Path) -> None:
    process = run(arguments, home)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
