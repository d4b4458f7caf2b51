"""Traces which functions of a package run, and which of its parts call each other."""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

INSIDE = re.compile(r"(\.<locals>)?\.?<(lambda|listcomp|setcomp|dictcomp|genexpr)>$")
"""Marks code objects nested in a function, which count as a part of it."""
DIVIDED = "memory_server"
"""The part whose folders count as separate parts."""


@dataclass(frozen=True, order=True)
class Function:
    """A function of the package: its file below the package, and its name there."""

    file: str
    name: str


@dataclass(frozen=True)
class Walk:
    """The functions that ran on a way."""

    functions: frozenset[Function]
    crossings: frozenset[tuple[str, str]]
    """Calls between parts, as pairs of calling and called file."""

    @property
    def files(self) -> frozenset[str]:
        return frozenset(function.file for function in self.functions)


def part_of(file: str) -> str:
    """Return the part of a file: a folder or a module at the top of the package, or a folder of the memory server."""
    parts = file.split("/")
    return "/".join(parts[: 2 if parts[0] == DIVIDED else 1]).removesuffix(".py")


@dataclass
class Tracer:
    """Records every call of a function of `package`, in the threads that begin after its start."""

    package: Path
    _calls: set[tuple[CodeType | None, CodeType]] | None = None
    _known: dict[CodeType, Function | None] = field(default_factory=dict)

    def start(self) -> None:
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def begin(self) -> None:
        """Start recording."""
        self._calls = set()

    def end(self) -> Walk:
        """Stop recording; return the calls since `begin`."""
        calls, self._calls = self._calls or set(), None
        pairs = {(caller and self._function(caller), self._function(called)) for caller, called in calls}
        functions = frozenset(called for _, called in pairs if called)
        files = {(caller.file, called.file) for caller, called in pairs if caller and called}
        return Walk(functions, frozenset(pair for pair in files if part_of(pair[0]) != part_of(pair[1])))

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (calls := self._calls) is not None:
            calls.add((frame.f_back and frame.f_back.f_code, frame.f_code))

    def _function(self, code: CodeType) -> Function | None:
        if code not in self._known:
            self._known[code] = self._name(code)
        return self._known[code]

    def _name(self, code: CodeType) -> Function | None:
        path = Path(code.co_filename)
        if not code.co_flags & CO_OPTIMIZED or not path.is_relative_to(self.package):  # a module or class being made
            return None
        name = code.co_qualname
        while (outer := INSIDE.sub("", name)) != name and outer:
            name = outer
        return Function(path.relative_to(self.package).as_posix(), name)
