"""From a file to a server, chunk by chunk, with a note of how far it came."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from hermes.errors import TransferError
from hermes.transfer.lines import Checked, Chunk, read_chunks
from hermes.transfer.sections import Report, TellProgress

REFUSALS = 100
"""How many refusals are told one by one."""


@dataclass(slots=True)
class TransferState:
    """What was done. Lines up to `line` are, and `parts` of the items after it."""

    sha256: str
    to: str
    workspace: str
    line: int = 0
    parts: int = 0
    alone_until: int = 0
    """Up to there items are brought one by one, since the server refused some of them."""
    tried: dict[str, Any] | None = None
    """What there was before a part was sent of which it is not known whether it arrived."""
    carried: Counter[str] = field(default_factory=Counter)
    present: Counter[str] = field(default_factory=Counter)
    lacking: Counter[str] = field(default_factory=Counter)
    refused: list[dict[str, Any]] = field(default_factory=list)
    refusals: int = 0

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def refuse(self, line: int, reason: str) -> None:
        """An item that the server does not take."""
        self.refusals += 1
        if len(self.refused) < REFUSALS:
            self.refused.append({"line": line, "reason": reason})


class Progress:
    """The state, written down after each step."""

    def __init__(self, path: Path, state: TransferState) -> None:
        self._path = path
        self.state = state

    @classmethod
    def take_up(cls, path: Path, sha256: str, to: str, workspace: str) -> Progress:
        """What an earlier run of the same import left, or a new beginning."""
        fresh = TransferState(sha256, to, workspace)
        try:
            said = json.loads(path.read_bytes())
        except FileNotFoundError:
            return cls(path, fresh)
        except (OSError, ValueError) as error:
            raise TransferError(f"{path} cannot be read: {error}", hint="Delete it to begin anew") from error
        if not isinstance(said, dict) or {*said} != {*fresh.plain()}:
            raise TransferError(f"{path} is not what an import leaves behind", hint="Delete it to begin anew")
        if (said["sha256"], said["to"], said["workspace"]) != (sha256, to, workspace):
            raise TransferError(
                f"{path} is of an import of another file or to another server",
                hint="Finish that one first, or delete it",
            )
        counts: dict[str, Counter[str]] = {name: Counter(said[name]) for name in ("carried", "present", "lacking")}
        return cls(path, TransferState(**{**said, **counts}))

    def save(self) -> None:
        """Write it down: whoever is killed now goes on here."""
        new = self._path.with_name(self._path.name + ".new")
        try:
            new.write_text(json.dumps(self.state.plain()), encoding="utf-8")
            new.replace(self._path)
        except OSError as error:
            raise TransferError(f"{self._path} cannot be written: {error.strerror}") from error

    def end(self) -> None:
        """All is done."""
        self._path.unlink(missing_ok=True)


class ImportTarget(Protocol):
    """A server that is written to."""

    kind: str

    def take(self, chunk: Chunk, progress: Progress) -> None:
        """Bring items to the server, each once, and count what became of them."""


def import_file(target: ImportTarget, checked: Checked, path: Path, progress: Progress, told: TellProgress) -> Report:
    """Bring all items of a checked file that are not yet there. What was carried, and what could not be."""
    state = progress.state
    for chunk in read_chunks(path):
        if chunk.last <= state.line:
            continue
        target.take(chunk, progress)
        state.line, state.parts, state.alone_until, state.tried = chunk.last, 0, 0, None
        progress.save()
        told(chunk.section, state.carried[chunk.section] + state.present[chunk.section])
    progress.end()
    return report(target, checked, state)


def report(target: ImportTarget, checked: Checked, state: TransferState) -> Report:
    """What became of a file."""
    return {
        "workspace": state.workspace,
        "to": state.to,
        "target": target.kind,
        "in_file": checked.counts,
        "carried": dict(state.carried),
        "present": dict(state.present),
        "not_in_file": checked.lacking,
        "not_carried": dict(state.lacking),
        "refused": state.refusals,
        "refusals": state.refused,
    }
