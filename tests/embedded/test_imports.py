"""Who needs an address and a key loads nothing of the server."""

from __future__ import annotations

import pytest

from tests.embedded.loading import OF_THE_SERVER, loaded

pytestmark = pytest.mark.processes


@pytest.mark.contract("9.2")
@pytest.mark.parametrize(
    "program",
    ["import hermes.embedded.connect", "import hermes.cli.chat", "from hermes.cli.memory import build; build(None)"],
)
def test_nothing_of_the_server_is_loaded_by(program: str) -> None:
    assert not OF_THE_SERVER & loaded(program)


@pytest.mark.contract("9.2")
def test_nothing_of_the_server_is_imported_by_a_chat_that_answers(tmp_path: object) -> None:
    program = (
        "import os, sys; os.environ['HERMES_HOME'] = sys.argv[1]\n"
        "from hermes.cli.main import run; run(['chat', '-q', 'hello'])"
    )
    assert not OF_THE_SERVER & loaded(program, str(tmp_path))
