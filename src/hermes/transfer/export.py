"""Export from a server to a file, page by page. An interrupted export resumes from the part that was written."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from hermes.errors import TransferError
from hermes.transfer.lines import END, FORMAT_VERSION, HEAD, MARK, LineProgress, read_lines, write_line
from hermes.transfer.sections import SECTIONS, Report, Source, TellProgress


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
