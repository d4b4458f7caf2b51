"""The script that counts the modules on the path of data."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.tracer import Function, part_of
from scripts.walk import HERE, describe, trace
from scripts.ways import WAYS

BY_NAME = {way.name: way for way in WAYS}
PACKAGE = {
    "__init__.py": "",
    "__main__.py": "from hermes.house.door import open_door\n\nopen_door()\n",
    "house/door.py": """
from threading import Thread
from hermes.house.key import Key
from hermes.garden import plant

def open_door():
    late = Thread(target=lambda: [plant(name) for name in ("rose",)])
    late.start()
    late.join()
    Key().turn()

def never():
    plant("weed")
""",
    "house/key.py": "class Key:\n    def turn(self):\n        return 1\n",
    "garden.py": "def plant(name):\n    return name\n",
}


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("types.py", "types"),
        ("agent/turn.py", "agent"),
        ("gateway/platforms/telegram.py", "gateway"),
        ("memory_server/api/app.py", "memory_server/api"),
    ],
)
def test_a_part_is_at_the_top_of_the_package_or_a_part_of_the_memory_server(file: str, part: str) -> None:
    assert part_of(file) == part


@pytest.mark.processes
def test_only_executed_code_is_counted_in_every_thread(tmp_path: Path) -> None:
    for name, text in PACKAGE.items():
        path = tmp_path / "hermes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    walk = trace(BY_NAME["chat -q"], tmp_path)
    assert walk.functions == {
        Function("house/door.py", "open_door"),
        Function("house/key.py", "Key.turn"),
        Function("garden.py", "plant"),
    }
    assert walk.crossings == {("house/door.py", "garden.py")}
    assert describe({"chat -q": walk}).splitlines()[-1] == "| chat -q | 3 | 3 | 1 |"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("way", "passed", "avoided"),
    [
        ("warm turn", Function("agent/turn.py", "run_turn"), Function("app.py", "App.open_store")),
        (
            "warm turn with memory",
            Function("honcho/recall.py", "Recaller.recall"),
            Function("app.py", "App.open_store"),
        ),
        ("search", Function("memory_server/api/recall.py", "search_workspace"), Function("agent/turn.py", "run_turn")),
    ],
)
def test_a_way_is_traced_without_what_came_before_it(way: str, passed: Function, avoided: Function) -> None:
    walk = trace(BY_NAME[way], HERE)
    assert passed in walk.functions
    assert avoided not in walk.functions
    assert {part_of(file) for file in walk.files} > {"sqlite"}
    assert all(part_of(one) != part_of(other) for one, other in walk.crossings)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("way", "most"),
    [("warm turn", 32), ("HTTP message", 44), ("warm turn with memory", 80), ("HTTP message with memory", 94)],
)
def test_a_turn_goes_through_few_doors(way: str, most: int) -> None:
    walks = (trace(BY_NAME[way], HERE).crossings for _ in range(3))  # a timer may fire in one of them
    found = next((crossings for crossings in walks if len(crossings) <= most), None)
    assert found, (
        f"more than {most} pairs of files of two parts call each other: `python -m scripts.walk --list '{way}'`"
    )
