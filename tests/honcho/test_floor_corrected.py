"""Without a model, a question about a corrected fact is answered with the correction alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.chatting import chat
from tests.honcho.configuring import Machine
from tests.honcho.fresh import fresh_home

pytestmark = pytest.mark.contract("10.41")


@pytest.fixture
def folder(processes: None, machine: Machine, tmp_path: Path) -> Path:
    """A home's folder; the user's folder is another one."""
    return tmp_path


def test_the_answer_is_what_holds_alone(folder: Path) -> None:
    with fresh_home(folder) as fresh:
        fresh.hermes("config", "set", "memory.first_deadline", "60")  # a busy machine recalls slowly
        fresh.chat("-q", "My dog is called Rex.")
        fresh.deliver()
        edited = chat(fresh.env, said="/memory search dog\n/memory edit 1 My dog is called Max.\n")
        assert "Corrected. It said: My dog is called Rex." in edited.out + edited.err
        answer = fresh.chat("-q", "What is my dog called?").out
        assert answer.strip() == "From memory: “My dog is called Max.”"
