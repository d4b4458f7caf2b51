"""The Dockerfile, step by step without a container engine: each RUN in a folder that stands for `/`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the steps are a Linux shell's")

ROOT = Path(__file__).parent.parent
START_SECONDS = 60.0
ON_PATHS = re.compile(r"(?<![\w/.])/(?=(?:src|data)\b)")


def read_steps() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line.partition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in lines]


def command_of(name: str) -> list[str]:
    rest = next(rest for step, rest in read_steps() if step == name)
    command: list[str] = json.loads(rest[rest.index("[") :])
    return command


def compose() -> dict[str, Any]:
    services: dict[str, Any] = YAML(typ="safe").load(ROOT / "compose.yaml")["services"]
    return services["hermes"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def image(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root folder in which every COPY and RUN was done. What the lock pins is that of the developers' environment."""
    root = tmp_path_factory.mktemp("image")
    _make_environment(root)
    for name, rest in read_steps():
        if name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                _copy(ROOT / source, root / target.lstrip("/"))
        elif name == "RUN":
            _run(root, rest)
    return root


def _make_environment(root: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "usr"], check=True)
    (packages,) = root.glob("usr/lib/python*/site-packages")
    (packages / "developers.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    _add_program(root, "pip", f'exec "{root}/usr/bin/python" -m pip "$@"')
    _add_program(root, "useradd", f'echo "$*" > "{root}/useradd"')  # who is not root makes no users
    _add_program(
        root, "install", f'shift 3; exec {shutil.which("install")} -d "$@"'
    )  # -d -o 10001: nor gives them away


def _add_program(root: Path, name: str, line: str) -> None:
    program = root / "usr" / "bin" / name
    program.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    program.chmod(0o755)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def _environment(root: Path) -> dict[str, str]:
    # Nothing is fetched: what is not in the lock is an error.
    return {"PATH": f"{root}/usr/bin:{os.environ['PATH']}", "PIP_NO_INDEX": "1", "EXTRAS": "", "HOME": str(root)}


def _run(root: Path, line: str) -> None:
    done = subprocess.run(
        ["sh", "-ec", ON_PATHS.sub(f"{root}/", line)],
        check=False,
        env=_environment(root),
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"RUN {line}\n{done.stdout}{done.stderr}"


@contextmanager
def gateway(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the process that CMD starts, with the settings of compose.yaml and a key."""
    env = {**_environment(root), **in_container(root), **compose()["environment"]}
    env |= {
        "API_SERVER_KEY": "a key of 32 letters for the tests",
        "API_SERVER_PORT": "0",
        "API_SERVER_HOST": "127.0.0.1",
    }
    process = subprocess.Popen(command_of("CMD"), env=env, cwd=root, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def in_container(root: Path) -> dict[str, str]:
    """The variables of ENV."""
    settings = [shlex.split(rest)[0].partition("=") for name, rest in read_steps() if name == "ENV"]
    return {name: ON_PATHS.sub(f"{root}/", value) for name, _, value in settings}


def is_healthy(root: Path) -> bool:
    env = {**_environment(root), **in_container(root)}
    return (
        subprocess.run(command_of("HEALTHCHECK"), check=False, env=env, cwd=root, capture_output=True).returncode == 0
    )


def test_the_image_holds_the_program_alone(image: Path) -> None:
    (packages,) = image.glob("usr/lib/python*/site-packages")
    assert (packages / "hermes" / "cli" / "command_tree.json").exists()
    assert not (image / "src" / "tests").exists()


def test_the_program_runs_as_a_user_of_its_own_who_owns_the_home_alone(image: Path) -> None:
    steps = dict(read_steps())
    made = shlex.split((image / "useradd").read_text(encoding="utf-8"))
    assert steps["USER"] == made[made.index("--uid") + 1] == "10001"
    assert f"install -d -o {steps['USER']} -m 700 {steps['VOLUME']}" in steps["RUN"]
    assert (image / "data").stat().st_mode & 0o777 == 0o700
    assert steps["ENV"] == f"HERMES_HOME={steps['VOLUME']}"


def test_the_health_check_tells_a_gateway_that_runs_from_one_that_does_not(image: Path) -> None:
    assert not is_healthy(image)
    with gateway(image) as process:
        until = time.monotonic() + START_SECONDS
        while not is_healthy(image) and time.monotonic() < until:
            assert process.poll() is None, process.communicate()
        assert is_healthy(image)
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_SECONDS) == 0
    assert not is_healthy(image)


def test_the_compose_file_keeps_the_home_and_opens_one_port_of_this_machine() -> None:
    steps, service = dict(read_steps()), compose()
    assert service["volumes"] == [f"home:{steps['VOLUME']}"]
    assert service["ports"] == [f"127.0.0.1:{steps['EXPOSE']}:{steps['EXPOSE']}"]
    assert service["read_only"] is True
    assert "API_SERVER_KEY" not in service["environment"], "it stands in hermes.env, which is in no repository"
