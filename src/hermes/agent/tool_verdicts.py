"""Verdicts on tool ability, stored in a file of the home by endpoint and model."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from hermes.errors import HermesError
from hermes.files import read_file, replace_file
from hermes.llm.tool_use import ToolVerdict

log = logging.getLogger("hermes.agent")

MAX_VERDICTS = 200
"""Older verdicts are dropped."""
MAX_FILE_BYTES = 1_000_000


class ToolVerdicts:
    """The file of verdicts. If it cannot be read, models are tested again; if it cannot be written, verdicts last for
    the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unwritten: dict[tuple[str, str], ToolVerdict] = {}

    def get(self, endpoint: str, name: str) -> ToolVerdict | None:
        return self._unwritten.get((endpoint, name)) or self._read().get(endpoint, {}).get(name)

    def last(self, endpoint: str) -> str:
        found = self._read().get(endpoint, {})
        return max(found, key=lambda name: found[name].tested_at, default="")

    def put(self, endpoint: str, name: str, verdict: ToolVerdict) -> None:
        found = [(at, called, one) for at, models in self._read().items() for called, one in models.items()]
        others = [entry for entry in found if entry[:2] != (endpoint, name)]
        newest = sorted(others, key=lambda entry: entry[2].tested_at)[1 - MAX_VERDICTS :]
        known: dict[str, dict[str, ToolVerdict]] = {}
        for at, called, one in [*newest, (endpoint, name, verdict)]:
            known.setdefault(at, {})[called] = one
        self._unwritten.pop((endpoint, name), None)
        try:
            replace_file(self._path, msgspec.json.format(msgspec.json.encode(known)).decode() + "\n")
        except HermesError as error:
            self._unwritten[endpoint, name] = verdict
            log.warning("what %s can do is not remembered: %s", name, error.line())

    def _read(self) -> dict[str, dict[str, ToolVerdict]]:
        """Read the file at each call: another process may have tested a model."""
        try:
            return msgspec.json.decode(read_file(self._path, MAX_FILE_BYTES), type=dict[str, dict[str, ToolVerdict]])
        except (OSError, msgspec.DecodeError):
            return {}
