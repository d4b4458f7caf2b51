"""Our own server, read through its extension: with ids, times, histories and sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hermes.errors import TransferError
from hermes.transfer.remote import RefusedError, Remote
from hermes.transfer.sections import Lacking, SectionPage, TransferItem

WAITING = "background work that waited: what it would have learnt is not in the file"


class OwnSource:
    """Reads everything that the server keeps of a workspace."""

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
        """There is nothing to remember."""

    def lacking(self) -> Lacking:
        return Lacking({WAITING: self._waiting}) if self._waiting else Lacking()

    def _part(self, section: str, after: int) -> Any:
        try:
            return self._remote.ask("GET", f"ext/export/{section}", query={"after": after})
        except RefusedError as error:
            raise TransferError(f"{self._remote.url}: {error.reason}") from error
