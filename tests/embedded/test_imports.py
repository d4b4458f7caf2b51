"""Who needs an address and a key loads nothing of the server."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes
OF_THE_SERVER = {"fastapi", "sqlalchemy", "numpy", "uvicorn", "wordllama", "alembic", "hermes.memory_server"}
PRINT = "import sys; print('\\n'.join(sys.modules))"


def loaded(program: str, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{PRINT}", *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines())


@pytest.mark.contract("9.2")
@pytest.mark.parametrize("module", ["hermes.embedded.connect", "hermes.cli.chat", "hermes.cli.memory"])
def test_nothing_of_the_server_is_imported_by(module: str) -> None:
    assert not OF_THE_SERVER & loaded(f"import {module}")


@pytest.mark.contract("9.2")
def test_nothing_of_the_server_is_imported_by_a_chat_that_answers(tmp_path: object) -> None:
    program = (
        "import os, sys; os.environ['HERMES_HOME'] = sys.argv[1]\n"
        "from hermes.cli.main import run; run(['chat', '-q', 'hello'])"
    )
    assert not OF_THE_SERVER & loaded(program, str(tmp_path))
