"""Export files: a damaged, incomplete or foreign file is refused, with the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes.errors import TransferError
from hermes.transfer import lines
from hermes.transfer.importing import Progress, export_workspace
from hermes.transfer.lines import Lacking, SectionPage, TransferItem, check_file, read_chunks
from tests.transfer.carrying import write_file

pytestmark = pytest.mark.contract("9.12")
PEERS = [("peers", {"id": f"p{n}", "metadata": {"text": "ü\u2028\n"}}) for n in range(5)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A complete file."""
    made = tmp_path / "e.jsonl"
    write_file(made, "w", PEERS)
    return made


def test_whole_file_is_read_as_it_was_written(path: Path) -> None:
    checked = check_file(path)
    assert (checked.workspace, checked.counts) == ("w", {"peers": 5})
    [chunk] = read_chunks(path)
    assert chunk.section == "peers"
    assert chunk.items == [(number, item) for number, (_, item) in enumerate(PEERS, start=2)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "line 1 is missing"),
        (b"name,age\nann,7\n", "line 1 is not JSON"),
        (b"[1]\n", "line 1 is not the first line of a memory export"),
        (b'{"messages": []}\n', "line 1 is not the first line of a memory export"),
        (b'{"hermes_memory_export": 2, "workspace": "w"}\n', "line 1 has format 2"),
        (b'{"hermes_memory_export": 1, "workspace": "w"}\n{"jobs": {}}\n', "line 2 .* invalid item: 'jobs'"),
        (b'{"hermes_memory_export": 1, "workspace": "w"}\n{"peers": {}, "x": 1}\n', "line 2 is not one item"),
        (b'{"hermes_memory_export": 1, "workspace": "w"}\n{"peers": 7}\n', "line 2 .* invalid item: 'peers'"),
        (b'{"hermes_memory_export": 1, "workspace": "w"}\n\xff\xfe\n', "line 2 is not JSON"),
        (b'{"hermes_memory_export": 1, "workspace": "w"}\n', "is incomplete: it ends at line 1"),
        (b"[" * 100_000 + b"\n", "line 1 is not JSON"),
    ],
)
def test_file_that_is_no_export_is_refused_with_the_line(tmp_path: Path, text: bytes, problem: str) -> None:
    foreign = tmp_path / "x"
    foreign.write_bytes(text)
    with pytest.raises(TransferError, match=problem):
        check_file(foreign)


def test_changed_letter_is_noticed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"p3"', b'"q3"'))
    with pytest.raises(TransferError, match="line 7 has a wrong checksum"):
        check_file(path)


def test_file_that_was_cut_is_refused_wherever_it_was_cut(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(0, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(TransferError):
            check_file(path)


def test_lines_after_the_end_are_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'{"peers":{"id":"more"}}\n')
    with pytest.raises(TransferError, match="line 9 comes after the end"):
        check_file(path)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="cannot be read: No such file"):
        check_file(tmp_path / "nowhere")


def test_line_length_and_items_between_marks_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_ITEMS_PER_MARK", 4)
    with pytest.raises(TransferError, match="line 5 comes after 4 others without a checksum"):
        check_file(path)
    monkeypatch.undo()
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 70)
    with pytest.raises(TransferError, match="line 7 is longer than 70 bytes"):
        check_file(path)


class OnePage:
    """A source without items."""

    kind = "hermes"

    def check(self) -> None:
        """Accept; the source always exists."""

    def pages(self, section: str, after: Any) -> Iterator[SectionPage]:
        yield SectionPage([], None)

    def saw(self, section: str, item: TransferItem) -> None:
        """Ignore the item."""

    def lacking(self) -> Lacking:
        return Lacking()


def export(path: Path, workspace: str = "w") -> None:
    export_workspace(OnePage(), workspace, path, lambda _section, _count: None)


def test_export_overwrites_no_file_and_resumes_no_other_export(path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(TransferError, match="already exists"):
        export(path)
    assert path.read_bytes() == before
    path.rename(tmp_path / "f.jsonl.part")
    with pytest.raises(TransferError, match="belongs to another export"):
        export(tmp_path / "f.jsonl", "another")
    assert (tmp_path / "f.jsonl.part").read_bytes() == before
    with pytest.raises(TransferError, match="cannot be written"):
        export(tmp_path / "no" / "folder.jsonl")


def test_export_of_nothing_is_whole(tmp_path: Path) -> None:
    export(tmp_path / "f.jsonl")
    assert check_file(tmp_path / "f.jsonl").counts == {}


def test_progress_of_another_import_is_not_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "p"
    progress = Progress.take_up(path, "sha", "http://one", "w")
    progress.carried["peers"] = 3
    progress.save()
    assert Progress.take_up(path, "sha", "http://one", "w").carried == {"peers": 3}
    for other in (("other", "http://one", "w"), ("sha", "http://two", "w"), ("sha", "http://one", "v")):
        with pytest.raises(TransferError, match="another file or to another server"):
            Progress.take_up(path, *other)
    for text in ("", "[]", '{"line": 1}'):
        path.write_text(text)
        with pytest.raises(TransferError, match=r"cannot be read|is not the progress file"):
            Progress.take_up(path, "sha", "http://one", "w")
