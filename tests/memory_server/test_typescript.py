"""The official TypeScript SDK works against our server: every method."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.memory_server.serving import Served
from tests.parts import fetch_once, need_commands

HERE = Path(__file__).parent
VERSION = "2.5.0"


@pytest.fixture(scope="session")
def package(processes: None, request: pytest.FixtureRequest) -> Path:
    """Return a folder with the package, downloaded once."""
    need_commands(("node", "npm"), ("nodejs", "npm"))
    install = ["npm", "install", "--no-audit", "--no-fund", f"@honcho-ai/sdk@{VERSION}"]
    return fetch_once(request.config.cache, f"honcho-ts-{VERSION}", install, "--prefix")


@pytest.mark.contract("9.1")
def test_every_method_of_the_typescript_sdk_works(package: Path, server: Served, workspace: str) -> None:
    script = package / "contract.mjs"
    shutil.copyfile(HERE / "typescript_contract.mjs", script)
    ran = subprocess.run(
        ["node", str(script), server.url, workspace], check=False, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "all methods work" in ran.stdout


def test_no_public_method_of_the_typescript_sdk_is_left_out(package: Path) -> None:
    script = (HERE / "typescript_contract.mjs").read_text(encoding="utf-8")
    dist = package / "node_modules" / "@honcho-ai" / "sdk" / "dist"
    for name in ("client", "peer", "session", "conclusions", "scope"):
        declared = re.findall(r"^    ([a-z]\w*)\(", (dist / f"{name}.d.ts").read_text(encoding="utf-8"), re.MULTILINE)
        for method in set(declared) - {"constructor", "toString"}:
            assert f".{method}(" in script, f"{name}.{method} is not called"
