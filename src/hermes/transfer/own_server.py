"""Our own server, read and written through its extension: with ids, times, histories and sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hermes.errors import TransferError
from hermes.transfer.importing import Progress
from hermes.transfer.lines import Chunk, Lacking, Numbered, SectionPage, TransferItem, encode
from hermes.transfer.remote import RefusedError, Remote

WAITING = "background work that waited: what it would have learnt is not in the file"


class OwnSource:
    """Reads everything that the server stores of a workspace."""

    kind = "hermes"

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._waiting = 0

    def check(self) -> None:
        status = self._remote.ask("GET", "queue/status")
        self._waiting = int(status["pending_work_units"]) + int(status["in_progress_work_units"])
        self._part("workspace", 0)

    def pages(self, section: str, after: Any) -> Iterator[SectionPage]:
        next_: Any = after or 0
        while next_ is not None:
            told = self._part(section, next_)
            next_ = told["after"]
            yield SectionPage(told["items"], next_)

    def saw(self, section: str, item: TransferItem) -> None:
        """Do nothing; this source needs no state."""

    def lacking(self) -> Lacking:
        return Lacking({WAITING: self._waiting}) if self._waiting else Lacking()

    def _part(self, section: str, after: int) -> Any:
        try:
            return self._remote.ask("GET", f"ext/export/{section}", query={"after": after})
        except RefusedError as error:
            raise TransferError(f"{self._remote.url}: {error.reason}") from error


MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Maximum size of one request."""
MAX_REQUEST_ITEMS = 100


@dataclass(slots=True)
class OwnTarget:
    """Writes everything. Existing items stay unchanged, so an interrupted part is simply sent again."""

    remote: Remote
    kind: str = "hermes"

    def take(self, chunk: Chunk, progress: Progress) -> None:
        for part in _parts(chunk.items):
            try:
                told = self.remote.ask("POST", f"ext/import/{chunk.section}", {"items": [item for _, item in part]})
            except RefusedError as error:
                raise TransferError(f"{self.remote.url}: {error.reason}") from error
            progress.carried[chunk.section] += told["added"]
            progress.present[chunk.section] += told["present"]
            for refused in told["refused"]:
                progress.refuse(part[refused["item"]][0], refused["reason"])


def _parts(items: Numbered) -> Iterator[Numbered]:
    """Yield as many items as fit into one request."""
    part: list[tuple[int, dict[str, Any]]] = []
    size = 0
    for line, item in items:
        cost = len(encode(item))
        if part and (size + cost > MAX_REQUEST_BYTES or len(part) == MAX_REQUEST_ITEMS):
            yield part
            part, size = [], 0
        part.append((line, item))
        size += cost
    yield part
