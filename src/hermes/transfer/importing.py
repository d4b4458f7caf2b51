"""Import from a file to a server, chunk by chunk, with a file of the progress.

Export from a server to a file, page by page. An interrupted export resumes from the part that was written.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from hermes.errors import TransferError
from hermes.transfer.lines import (
    END,
    FORMAT_VERSION,
    HEAD,
    MARK,
    SECTIONS,
    Checked,
    Chunk,
    LineProgress,
    Report,
    Source,
    TellProgress,
    read_chunks,
    read_lines,
    write_line,
)

MAX_LISTED_REFUSALS = 100
"""Maximum number of refused items that the report lists."""


@dataclass(slots=True)
class Progress:
    """Progress of an import, saved after each step: all lines up to `line`, and `parts` items after it, are done."""

    path: Path
    sha256: str
    to: str
    workspace: str
    line: int = 0
    parts: int = 0
    alone_until: int = 0
    """Items up to this index are sent one by one, since the server refused some of them."""
    tried: dict[str, Any] | None = None
    """State of the server before a part was sent whose arrival is unknown."""
    carried: Counter[str] = field(default_factory=Counter)
    present: Counter[str] = field(default_factory=Counter)
    lacking: Counter[str] = field(default_factory=Counter)
    refused: list[dict[str, Any]] = field(default_factory=list)
    refusals: int = 0

    @classmethod
    def take_up(cls, path: Path, sha256: str, to: str, workspace: str) -> Progress:
        """Return the progress of an earlier run of the same import, or a new one."""
        fresh = cls(path, sha256, to, workspace)
        try:
            said = json.loads(path.read_bytes())
        except FileNotFoundError:
            return fresh
        except (OSError, ValueError) as error:
            raise TransferError(f"{path} cannot be read: {error}", hint="Delete it to start over") from error
        if not isinstance(said, dict) or {*said} != {*fresh._plain()}:
            raise TransferError(f"{path} is not the progress file of an import", hint="Delete it to start over")
        if (said["sha256"], said["to"], said["workspace"]) != (sha256, to, workspace):
            raise TransferError(
                f"{path} belongs to an import of another file or to another server",
                hint="Finish that one first, or delete it",
            )
        counts: dict[str, Counter[str]] = {name: Counter(said[name]) for name in ("carried", "present", "lacking")}
        return cls(path, **{**said, **counts})

    def refuse(self, line: int, reason: str) -> None:
        self.refusals += 1
        if len(self.refused) < MAX_LISTED_REFUSALS:
            self.refused.append({"line": line, "reason": reason})

    def save(self) -> None:
        """Save a checkpoint; an interrupted import resumes from it."""
        new = self.path.with_name(self.path.name + ".new")
        try:
            new.write_text(json.dumps(self._plain()), encoding="utf-8")
            new.replace(self.path)
        except OSError as error:
            raise TransferError(f"{self.path} cannot be written: {error.strerror}") from error

    def _plain(self) -> dict[str, Any]:
        """Return the fields as they are saved."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "path"}


class ImportTarget(Protocol):
    """A server that is written to."""

    kind: str

    def take(self, chunk: Chunk, progress: Progress) -> None:
        """Send items to the server, each once, and count the results."""


def import_file(target: ImportTarget, checked: Checked, path: Path, progress: Progress, told: TellProgress) -> Report:
    """Send all items of a checked file that the server lacks. Return a report of what was transferred and what not."""
    for chunk in read_chunks(path):
        if chunk.last <= progress.line:
            continue
        target.take(chunk, progress)
        progress.line, progress.parts, progress.alone_until, progress.tried = chunk.last, 0, 0, None
        progress.save()
        told(chunk.section, progress.carried[chunk.section] + progress.present[chunk.section])
    progress.path.unlink(missing_ok=True)
    return {
        "workspace": progress.workspace,
        "to": progress.to,
        "target": target.kind,
        "in_file": checked.counts,
        "carried": dict(progress.carried),
        "present": dict(progress.present),
        "not_in_file": checked.lacking,
        "not_carried": dict(progress.lacking),
        "refused": progress.refusals,
        "refusals": progress.refused,
    }


def export_workspace(source: Source, workspace: str, path: Path, progress: TellProgress) -> Report:
    """Write the workspace to a file, which appears once it is complete. Return a report of what it contains and
    lacks."""
    if path.exists():
        raise TransferError(f"{path} already exists", hint="Choose another name, or delete it")
    source.check()
    part = path.with_name(path.name + ".part")
    try:
        so_far, section, after = _take_up(source, workspace, part)
        with part.open("ab") as file:
            if section is None:
                write_line(file, so_far, {HEAD: FORMAT_VERSION, "workspace": workspace, "source": source.kind})
            _write_sections(file, so_far, source, section, after, progress)
            report: Mapping[str, Any] = {"counts": dict(so_far.counts), "lacking": dict(source.lacking())}
            write_line(file, so_far, {END: {**report, "sha256": so_far.sha256()}})
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise TransferError(f"{path} cannot be written: {error.strerror}") from error
    return {"workspace": workspace, "source": source.kind, "file": str(path), **report}


def _write_sections(
    file: BinaryIO, so_far: LineProgress, source: Source, section: str | None, after: Any, progress: TellProgress
) -> None:
    """Write all sections, from the position of an earlier run on."""
    begin = 0 if section is None else SECTIONS.index(section) + (1 if after is None else 0)
    resume = after
    for name in SECTIONS[begin:]:
        for page in source.pages(name, resume):
            for item in page.items:
                write_line(file, so_far, {name: item})
                so_far.counts[name] += 1
                source.saw(name, item)
            if page.items or page.after is None:
                write_line(file, so_far, {MARK: {"section": name, "after": page.after, "sha256": so_far.sha256()}})
                file.flush()
                progress(name, so_far.counts[name])
        resume = None


def _take_up(source: Source, workspace: str, part: Path) -> tuple[LineProgress, str | None, Any]:
    """Return progress and position of an earlier run up to its last mark; empty ones without such a run."""
    if not part.exists():
        return LineProgress(), None, None
    so_far, marked = LineProgress(), LineProgress()
    mark: dict[str, Any] = {}
    place = 0
    unsure: list[tuple[str, dict[str, Any]]] = []
    for line in read_lines(part, so_far):
        if line.number == 1 and (line.said["workspace"], line.said.get("source")) != (workspace, source.kind):
            raise TransferError(f"{part} belongs to another export", hint="Delete it, or choose another name")
        if line.kind == MARK:
            mark, place = line.said, line.end
            # `read_lines` adds a line to the digest before it yields the line.
            marked = LineProgress(so_far.digest.copy(), Counter(so_far.counts))
            for section, item in unsure:
                source.saw(section, item)
            unsure = []
        elif line.kind in SECTIONS:
            unsure.append((line.kind, line.said))
    os.truncate(part, place)
    return marked, mark.get("section"), mark.get("after")
