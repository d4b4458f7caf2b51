"""What a Honcho server holds in which certain words stand, and deleting it: conclusions, lines of cards, and on our own
server the messages they came from. Commands use it; it blocks.

Our own server is read from the first row to the last, as an export reads it. At any other one messages can only be
searched for, and lists are read as far as the bounds below; what was not looked at is said.
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
MOST_PARTS = 100_000
"""Parts of a section of our own server that are read; a part has up to a hundred rows."""
MOST_FOUND = 10_000
"""How many things one look finds; the next look finds the others."""
PAGE = 100
MOST_PAGES = 100
"""Pages of a list of another server that are read, the newest first."""
MOST_CARDS = 300
"""Cards of another server that are looked at: each peer's own, then what the agent holds, then all others."""

HeldRow = dict[str, Any]


class RememberedWords:
    """Looks in one workspace. Raises ProviderError, in words."""

    def __init__(self, server: Extensions, ai: str, shown: str) -> None:
        self._server = server
        self._ai = ai
        self._shown = shown

    def find(self, wording: Wording) -> Holding:
        """What fits, as far as it can be deleted there, and in words what cannot and what was not looked at. Whoever
        deletes looks again, until nothing is found."""
        with self._server.connected():
            if self._server.has(DELETES, EXPORT):
                return self._find_in_all(wording)
            return self._find_in_some(wording)

    def forget(self, items: Sequence[Remembered]) -> None:
        """Delete these. With a message goes what was learnt from it alone."""
        with self._server.connected():
            for one in items:
                self._delete(one)

    def _find_in_all(self, wording: Wording) -> Holding:
        found: list[Remembered] = []
        stays: list[str] = []
        for section, things_in in SECTIONS.items():
            after: int | None = 0
            for _ in range(MOST_PARTS):
                rows, after = self._part(section, after)
                found += [one for row in rows for one in things_in(row, wording)]
                if after is None or len(found) >= MOST_FOUND:
                    break
            if len(found) >= MOST_FOUND:
                break
            if after is not None:
                stays.append(f"not all {section} were looked at: they have more than {MOST_PARTS:,} parts")
        return Holding(tuple(found), tuple(stays))

    def _part(self, section: str, after: int | None) -> tuple[list[HeldRow], int | None]:
        """Rows of a section of our own server, and after which the next come; none where there is no workspace."""
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
        if concluded >= MOST_PAGES * PAGE:
            stays.append(f"only the newest {concluded:,} conclusions were looked at; there may be more")
        pairs = list(islice(self._pairs(), MOST_CARDS + 1))
        for observer, observed in pairs[:MOST_CARDS]:
            row = {"observer_id": observer, "observed_id": observed, "lines": self._card(observer, observed)}
            found += _carded(row, wording)
        if len(pairs) > MOST_CARDS:
            stays.append(f"only {MOST_CARDS} cards were looked at; there may be more")
        return Holding(tuple(found), (*self._messages_that_stay(wording), *stays))

    def _messages_that_stay(self, wording: Wording) -> Iterator[str]:
        body = {"query": " ".join(wording.words), "limit": PAGE}
        hits = self._server.ask("POST", f"{self._server.workspace}/search", missing=[], json=body)
        count = sum(wording.is_in(str(one.get("content"))) for one in _dicts(hits))
        if count:
            noun = "message stays" if count == 1 else "messages stay"
            yield f"{count} {noun}: {self._shown} cannot delete messages, nor summaries that hold them"
        yield f"there may be more messages: of a search at {self._shown} only the {PAGE} best hits were looked at"

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Who may hold a card about whom, each pair once."""
        peers = [str(one["id"]) for one in self._listed("peers")]
        yield from ((peer, peer) for peer in peers)
        for observer in sorted(peers, key=lambda peer: peer != self._ai):
            yield from ((observer, peer) for peer in peers if peer != observer)

    def _listed(self, what: str) -> Iterator[HeldRow]:
        """Items of a list of any Honcho server; none in a workspace that is not there."""
        for page in range(1, MOST_PAGES + 1):
            path = f"{self._server.workspace}/{what}/list?page={page}&size={PAGE}"
            found = _rows(self._server.ask("POST", path, missing={"items": []}, json={}))
            yield from found
            if len(found) < PAGE:
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
    """A conclusion, also one that once said it in other words, or that was drawn from it: our own server keeps those,
    and shows what one was drawn from."""
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
"""What our own server exports that may hold the words, and how they are found in a row of it."""


def _about(row: HeldRow) -> str:
    """Whom something is about, and whose view it is."""
    observer, observed = str(row.get("observer_id") or ""), str(row.get("observed_id") or "")
    return observed if observer in ("", observed) else f"{observed}, as {observer} knows"


def _rows(found: Json) -> list[HeldRow]:
    if not isinstance(found, dict) or not isinstance(found.get("items"), list):
        raise ProviderError("the server's answer is none that Honcho gives", hint="")
    return _dicts(found["items"])


def _dicts(found: Json) -> list[HeldRow]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
