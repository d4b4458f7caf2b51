"""Draws in ARCHITECTURE.md which package imports which. `make docs` runs it; a test compares.

A package is a row of the page's table of packages. An arrow that others already imply is left out: when `cli` imports
`agent` and `agent` imports `store`, there is no arrow from `cli` to `store`, whether `cli` imports it too or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeAlias

import grimp

TARGET = Path(__file__).parent.parent / "ARCHITECTURE.md"
BEGIN, END = "<!-- the drawing of the packages, by `make docs` -->", "<!-- end of the drawing -->"
ENTRY = "__main__"
"""One line that calls the command line; no package."""
MAX_COLUMNS = 36
"""Characters of one line in a box."""

Arrows: TypeAlias = dict[str, set[str]]
"""Each package with those that it imports."""


def packages_of(page: str) -> dict[str, str]:
    """Which package each top-level module is in, by the page's table. A package is named after its first module."""
    found: dict[str, str] = {}
    for row in re.findall(r"^\| (`[a-z_]+(?:\.py|/)`[^|]*) \|", page, re.MULTILINE):
        modules = [name.removesuffix(".py").rstrip("/") for name in re.findall(r"`([^`]+)`", row)]
        found |= dict.fromkeys(modules, modules[0])
    return found


def read_arrows(packages: Mapping[str, str]) -> Arrows:
    """Which package imports which, by the source. Raises ValueError for a module that is in none."""
    graph = grimp.build_graph("hermes", cache_dir=None)
    arrows: Arrows = {package: set() for package in packages.values()}
    inside = graph.modules - {"hermes", f"hermes.{ENTRY}"}
    for module in inside:
        here = _package_of(module, packages)
        imported = graph.find_modules_directly_imported_by(module) & inside
        arrows[here] |= {_package_of(name, packages) for name in imported} - {here}
    return arrows


def _package_of(module: str, packages: Mapping[str, str]) -> str:
    top = module.split(".")[1]
    if top not in packages:
        raise ValueError(f"{top} has no row in the table of packages in ARCHITECTURE.md")
    return packages[top]


def reduce_arrows(arrows: Arrows) -> Arrows:
    """The fewest arrows that still lead from each package to all that it reaches. Raises CycleError for a circle."""
    reached: Arrows = {}
    for package in TopologicalSorter(arrows).static_order():
        reached[package] = set().union(*({below} | reached[below] for below in arrows[package]))
    return {package: below - set().union(*(reached[one] for one in below)) for package, below in arrows.items()}


def draw(page: str) -> str:
    """The drawing for a page, as a Mermaid block."""
    packages = packages_of(page)
    arrows = reduce_arrows(read_arrows(packages))
    lines = ["```mermaid", "graph TD"]
    for package in arrows:
        lines.append(f'    {package}["{_label([name for name, inside in packages.items() if inside == package])}"]')
    for package, below in arrows.items():
        lines += [f"    {package} --> {one}" for one in sorted(below)]
    return "\n".join([*lines, "```"])


def _label(names: list[str]) -> str:
    lines = [names[0]]
    for name in names[1:]:
        fits = len(lines[-1]) + len(name) + 2 <= MAX_COLUMNS
        lines[-1:] = [f"{lines[-1]}, {name}"] if fits else [f"{lines[-1]},", name]
    return "<br/>".join(lines)


def with_drawing(page: str) -> str:
    """The page with its drawing made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{draw(page)}\n\n{END}{after}"


if __name__ == "__main__":
    TARGET.write_text(with_drawing(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
