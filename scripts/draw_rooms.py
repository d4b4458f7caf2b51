"""Draws the imports between packages in ARCHITECTURE.md. `make docs` runs it; a test compares.

A room is a row of the page's table of rooms. An arrow that others already imply is left out: when `cli` imports `agent`
and `agent` imports `store`, there is no arrow from `cli` to `store`, whether `cli` imports it too or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeAlias

import grimp

TARGET = Path(__file__).parent.parent / "ARCHITECTURE.md"
BEGIN, END = "<!-- the drawing of the rooms, by `make docs` -->", "<!-- end of the drawing -->"
ENTRY = "__main__"
"""The entry module, which only calls the command line."""
MAX_LINE_CHARS = 36
"""Maximum length of a line in a box."""

Arrows: TypeAlias = dict[str, set[str]]
"""The imports of each package."""


def rooms_of(page: str) -> dict[str, str]:
    """Return the package of each top-level module, from the page's table. A package is named after its first module."""
    found: dict[str, str] = {}
    for row in re.findall(r"^\| (`[a-z_]+(?:\.py|/)`[^|]*) \|", page, re.MULTILINE):
        modules = [name.removesuffix(".py").rstrip("/") for name in re.findall(r"`([^`]+)`", row)]
        found |= dict.fromkeys(modules, modules[0])
    return found


def read_arrows(rooms: Mapping[str, str]) -> Arrows:
    """Return the imports between packages from the source. Raises ValueError for a module without a package."""
    graph = grimp.build_graph("hermes", cache_dir=None)
    arrows: Arrows = {room: set() for room in rooms.values()}
    inside = graph.modules - {"hermes", f"hermes.{ENTRY}"}
    for module in inside:
        here = _room_of(module, rooms)
        imported = graph.find_modules_directly_imported_by(module) & inside
        arrows[here] |= {_room_of(name, rooms) for name in imported} - {here}
    return arrows


def _room_of(module: str, rooms: Mapping[str, str]) -> str:
    top = module.split(".")[1]
    if top not in rooms:
        raise ValueError(f"{top} has no row in the table of rooms in ARCHITECTURE.md")
    return rooms[top]


def reduce_arrows(arrows: Arrows) -> Arrows:
    """Return the smallest set of arrows with the same reachability. Raises CycleError for a cycle."""
    reached: Arrows = {}
    for room in TopologicalSorter(arrows).static_order():
        reached[room] = set().union(*({below} | reached[below] for below in arrows[room]))
    return {room: below - set().union(*(reached[one] for one in below)) for room, below in arrows.items()}


def draw(page: str) -> str:
    """Return the drawing as a Mermaid block."""
    rooms = rooms_of(page)
    arrows = reduce_arrows(read_arrows(rooms))
    lines = ["```mermaid", "graph TD"]
    for room in arrows:
        lines.append(f'    {room}["{_label([name for name, inside in rooms.items() if inside == room])}"]')
    for room, below in arrows.items():
        lines += [f"    {room} --> {one}" for one in sorted(below)]
    return "\n".join([*lines, "```"])


def _label(names: list[str]) -> str:
    lines = [names[0]]
    for name in names[1:]:
        fits = len(lines[-1]) + len(name) + 2 <= MAX_LINE_CHARS
        lines[-1:] = [f"{lines[-1]}, {name}"] if fits else [f"{lines[-1]},", name]
    return "<br/>".join(lines)


def with_drawing(page: str) -> str:
    """Return the page with an updated drawing."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{draw(page)}\n\n{END}{after}"


if __name__ == "__main__":
    TARGET.write_text(with_drawing(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
