"""From a file to a server, chunk by chunk."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from hermes.transfer.lines import Checked, Chunk, read_chunks
from hermes.transfer.progress import Progress, TransferState
from hermes.transfer.sections import Report, TellProgress


class ImportTarget(Protocol):
    """A server that is written to."""

    kind: str

    def take(self, chunk: Chunk, progress: Progress) -> None:
        """Bring items to the server, each once, and count what became of them."""
        ...


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
