"""Reading the address and key imports nothing of the server."""

from __future__ import annotations

import pytest

from tests.embedded.loading import OF_THE_SERVER, loaded

pytestmark = pytest.mark.processes


@pytest.mark.contract("9.2")
@pytest.mark.parametrize("program", ["import hermes.embedded.connect", "import hermes.cli.chat"])
def test_nothing_of_the_server_is_loaded_by(program: str) -> None:
    assert not OF_THE_SERVER & loaded(program)


@pytest.mark.contract("9.2")
def test_the_commands_of_memory_load_the_settings_of_its_model_alone() -> None:
    found = loaded("from hermes.cli.memory import build; build(None)")
    assert OF_THE_SERVER & found <= {"hermes.memory_server"}
    assert not {"hermes.memory_server.api", "hermes.memory_server.engine", "hermes.memory_server.db"} & found


@pytest.mark.contract("9.2")
def test_nothing_of_the_server_is_imported_by_a_chat_that_answers(tmp_path: object) -> None:
    program = (
        "import os, sys; os.environ['HERMES_HOME'] = sys.argv[1]\n"
        "from hermes.cli.main import run; run(['chat', '-q', 'hello'])"
    )
    assert not OF_THE_SERVER & loaded(program, str(tmp_path))
