"""Generated requests, valid or not, cause neither a 5xx nor a response that violates the schema."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.memory_server.serving import ROOT, start, stop
from tests.scale import scale

pytestmark = pytest.mark.processes

CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance"


@pytest.mark.stress
@pytest.mark.contract("9.8")
@pytest.mark.timeout(scale(300, 3600))
def test_no_request_breaks_the_server_or_its_own_schema(tmp_path: Path) -> None:
    """Test every operation with generated requests; a failure prints a command that reproduces it."""
    examples = str(scale(3, 150))
    server = start(tmp_path / "data")
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--checks", CHECKS]
    ran = subprocess.run(
        [*command, "--max-examples", examples, "--phases", "examples,coverage,fuzzing", "--seed", "7", "--no-color"],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    complaints = stop(server)
    assert "Error" not in complaints, complaints
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
