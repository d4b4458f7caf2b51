"""Search and deletion of everything on a Honcho server that contains certain words: conclusions, card lines, and on
our own server the source messages. Used by commands; blocks.

Our own server is read completely, by its export. On any other server messages can only be searched, and lists are read
up to the limits below; the result names what was not read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from hermes.errors import ProviderError
from hermes.honcho.extensions import Extensions
from hermes.honcho.links import DELETES
from hermes.honcho.names import card_path, in_path
from hermes.memory.provider import Holding, Remembered, Wording
from hermes.types import Json

CONCLUSION, MESSAGE, CARD = "conclusion", "message", "card"
EXPORT = "export"
MAX_PARTS = 100_000
"""Pages of an export section that are read, of up to a hundred rows each."""
MAX_ITEMS = 10_000
"""Items that one search returns; the next search finds further ones."""
PAGE_ROWS = 100
MAX_SEARCH_PAGES = 100
"""Pages of another server's list that are read, with the newest rows."""
MAX_CARDS = 300
"""Cards of another server that are read: each peer's own, then the agent's, then all others."""

HeldRow = dict[str, Any]


class RememberedWords:
    """Searches one workspace. Raises ProviderError with a readable message."""

    def __init__(self, server: Extensions, ai: str, shown: str) -> None:
        self._server = server
        self._ai = ai
        self._shown = shown

    def find(self, wording: Wording) -> Holding:
        """Return matching items that can be deleted, and sentences on those that cannot or were not read. After a
        deletion, search again until nothing is found."""
        with self._server.connected():
            if self._server.has(DELETES, EXPORT):
                return self._find_in_all(wording)
            return self._find_in_some(wording)

    def forget(self, items: Sequence[Remembered]) -> None:
        """Delete these items. A message takes along the conclusions from it alone."""
        with self._server.connected():
            for one in items:
                self._delete(one)

    def _find_in_all(self, wording: Wording) -> Holding:
        found: list[Remembered] = []
        stays: list[str] = []
        for section, things_in in SECTIONS.items():
            after: int | None = 0
            for _ in range(MAX_PARTS):
                rows, after = self._part(section, after)
                found += [one for row in rows for one in things_in(row, wording)]
                if after is None or len(found) >= MAX_ITEMS:
                    break
            if len(found) >= MAX_ITEMS:
                break
            if after is not None:
                stays.append(f"not all {section} were looked at: they have more than {MAX_PARTS:,} parts")
        return Holding(tuple(found), tuple(stays))

    def _part(self, section: str, after: int | None) -> tuple[list[HeldRow], int | None]:
        """Return rows of an export section and the cursor of the next ones; empty if the workspace does not exist."""
        path = f"{self._server.workspace}/ext/export/{section}"
        found = self._server.ask("GET", path, missing={"items": []}, params={"after": after})
        return _rows(found), found.get("after")

    def _find_in_some(self, wording: Wording) -> Holding:
        found: list[Remembered] = []
        stays: list[str] = []
        concluded = 0
        for row in self._listed("conclusions"):
            concluded += 1
            found += _concluded(row, wording)
        if concluded >= MAX_SEARCH_PAGES * PAGE_ROWS:
            stays.append(f"only the newest {concluded:,} conclusions were looked at; there may be more")
        pairs = list(islice(self._pairs(), MAX_CARDS + 1))
        for observer, observed in pairs[:MAX_CARDS]:
            row = {"observer_id": observer, "observed_id": observed, "lines": self._card(observer, observed)}
            found += _carded(row, wording)
        if len(pairs) > MAX_CARDS:
            stays.append(f"only {MAX_CARDS} cards were looked at; there may be more")
        return Holding(tuple(found), (*self._messages_that_stay(wording), *stays))

    def _messages_that_stay(self, wording: Wording) -> Iterator[str]:
        body = {"query": " ".join(wording.words), "limit": PAGE_ROWS}
        hits = self._server.ask("POST", f"{self._server.workspace}/search", missing=[], json=body)
        count = sum(wording.is_in(str(one.get("content"))) for one in _dicts(hits))
        if count:
            noun = "message stays" if count == 1 else "messages stay"
            yield f"{count} {noun}: {self._shown} cannot delete messages, nor summaries that hold them"
        yield f"there may be more messages: of a search at {self._shown} only the {PAGE_ROWS} best hits were looked at"

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs of observer and observed that may have a card, each once."""
        peers = [str(one["id"]) for one in self._listed("peers")]
        yield from ((peer, peer) for peer in peers)
        for observer in sorted(peers, key=lambda peer: peer != self._ai):
            yield from ((observer, peer) for peer in peers if peer != observer)

    def _listed(self, what: str) -> Iterator[HeldRow]:
        """Yield the items of a list of any Honcho server; none if the workspace does not exist."""
        for page in range(1, MAX_SEARCH_PAGES + 1):
            path = f"{self._server.workspace}/{what}/list?page={page}&size={PAGE_ROWS}"
            found = _rows(self._server.ask("POST", path, missing={"items": []}, json={}))
            yield from found
            if len(found) < PAGE_ROWS:
                return

    def _delete(self, one: Remembered) -> None:
        if one.kind == CARD:
            self._take_line_out(*json.loads(one.id))
        elif one.kind == MESSAGE:
            session, message = json.loads(one.id)
            path = f"{self._server.workspace}/ext/sessions/{in_path(session)}/messages/{in_path(message)}"
            self._server.ask("DELETE", path, missing={})
        else:
            self._server.ask("DELETE", f"{self._server.workspace}/conclusions/{in_path(one.id)}", missing={})

    def _card(self, observer: str, observed: str) -> list[str]:
        found = self._server.ask("GET", f"{self._server.workspace}/{card_path(observer, observed)}", missing={})
        lines = found.get("peer_card") if isinstance(found, dict) else None
        return [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []

    def _take_line_out(self, observer: str, observed: str, line: str) -> None:
        lines = self._card(observer, observed)
        if line in lines:
            kept = {"peer_card": [one for one in lines if one != line]}
            self._server.ask("PUT", f"{self._server.workspace}/{card_path(observer, observed)}", json=kept)


def _concluded(row: HeldRow, wording: Wording) -> Iterator[Remembered]:
    """Yield the conclusion if its text, an earlier version, or one of its premises matches; our own server exports
    these."""
    before = [str(one["content"]) for one in row.get("versions") or ()]
    premises = (row.get("metadata") or {}).get("premises")
    said = [str(row["content"]), *before, *map(str, premises if isinstance(premises, list) else ())]
    fitting = [text for text in said if wording.is_in(text)]
    if fitting:
        yield Remembered(CONCLUSION, str(row["id"]), fitting[0], _about(row))


def _carded(row: HeldRow, wording: Wording) -> Iterator[Remembered]:
    for line in row["lines"]:
        if wording.is_in(line):
            place = json.dumps([row["observer_id"], row["observed_id"], line])
            yield Remembered(CARD, place, line, _about(row))


def _said(row: HeldRow, wording: Wording) -> Iterator[Remembered]:
    if wording.is_in(str(row["content"])):
        place = json.dumps([row["session_id"], row["id"]])
        yield Remembered(MESSAGE, place, str(row["content"]), str(row["peer_id"]))


SECTIONS: dict[str, Callable[[HeldRow, Wording], Iterator[Remembered]]] = {
    "conclusions": _concluded,
    "cards": _carded,
    "messages": _said,
}
"""The export sections that may hold the words, each with a function that yields the matches in a row."""


def _about(row: HeldRow) -> str:
    """Describe the subject of an item, and whose view it is."""
    observer, observed = str(row.get("observer_id") or ""), str(row.get("observed_id") or "")
    return observed if observer in ("", observed) else f"{observed}, as {observer} knows"


def _rows(found: Json) -> list[HeldRow]:
    if not isinstance(found, dict) or not isinstance(found.get("items"), list):
        raise ProviderError("the server's response is not one of Honcho", hint="")
    return _dicts(found["items"])


def _dicts(found: Json) -> list[HeldRow]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
