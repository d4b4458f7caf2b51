"""What a Honcho server holds in which certain words stand, and deleting it: conclusions, lines of cards, and on our own
server the messages they came from.

Our own server is read from the first row to the last, as an export reads it. At any other one messages can only be
searched for, and lists are read as far as the bounds below; what was not looked at is said.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct, field

from hermes.honcho.names import card_path, in_path, session_path
from hermes.honcho.recall_reader import PAGE, Card, ListPage, RecallReader
from hermes.memory.provider import Holding, Remembered, Wording

CONCLUSION, MESSAGE, CARD = "conclusion", "message", "card"
MOST_PARTS = 100_000
"""Parts of a section of our own server that are read; a part has up to a hundred rows."""
MOST_FOUND = 10_000
"""How many things one look finds; the next look finds the others."""
MOST_PAGES = 100
"""Pages of a list of another server that are read, the newest first."""
MOST_CARDS = 300
"""Cards of another server that are looked at: each peer's own, then what the agent holds, then all others."""

HeldRow = dict[str, Any]


class ExportedPart(Struct, frozen=True):
    """Rows of a section of our own server, and after which the next come; None where these were the last."""

    items: list[HeldRow] = field(default_factory=list)
    after: int | None = None


class RememberedWords:
    """Looks in one workspace. Raises ProviderError, in words."""

    def __init__(self, server: RecallReader, ai: str, shown: str) -> None:
        self._server = server
        self._ai = ai
        self._shown = shown

    async def find(self, wording: Wording) -> Holding:
        """What fits, as far as it can be deleted there, and in words what cannot and what was not looked at. Whoever
        deletes looks again, until nothing is found."""
        link = await self._server.link()
        if link.deletes_messages and link.exports:
            return await self._find_in_all(wording)
        return await self._find_in_some(wording)

    async def forget(self, items: Sequence[Remembered]) -> None:
        """Delete these. With a message goes what was learnt from it alone."""
        for one in items:
            if one.kind == CARD:
                await self._take_line_out(*json.loads(one.id))
            elif one.kind == MESSAGE:
                session, message = json.loads(one.id)
                await self._server.delete(f"ext/{session_path(session, f'messages/{in_path(message)}')}")
            else:
                await self._server.delete(f"conclusions/{in_path(one.id)}")

    async def _find_in_all(self, wording: Wording) -> Holding:
        found: list[Remembered] = []
        stays: list[str] = []
        for section, things_in in SECTIONS.items():
            part = ExportedPart(after=0)
            for _ in range(MOST_PARTS):
                read = await self._server.get(ExportedPart, f"ext/export/{section}", after=part.after)
                part = read or ExportedPart()  # there is no workspace
                found += [one for row in part.items for one in things_in(row, wording)]
                if part.after is None or len(found) >= MOST_FOUND:
                    break
            if len(found) >= MOST_FOUND:
                break
            if part.after is not None:
                stays.append(f"not all {section} were looked at: they have more than {MOST_PARTS:,} parts")
        return Holding(tuple(found), tuple(stays))

    async def _find_in_some(self, wording: Wording) -> Holding:
        found: list[Remembered] = []
        stays: list[str] = []
        concluded = [row async for row in self._listed("conclusions")]
        for row in concluded:
            found += _concluded(row, wording)
        if len(concluded) >= MOST_PAGES * PAGE:
            stays.append(f"only the newest {len(concluded):,} conclusions were looked at; there may be more")
        peers = [str(row["id"]) async for row in self._listed("peers")]
        pairs = list(islice(self._pairs(peers), MOST_CARDS + 1))
        for observer, observed in pairs[:MOST_CARDS]:
            row = {"observer_id": observer, "observed_id": observed, "lines": await self._card(observer, observed)}
            found += _carded(row, wording)
        if len(pairs) > MOST_CARDS:
            stays.append(f"only {MOST_CARDS} cards were looked at; there may be more")
        return Holding(tuple(found), (*await self._messages_that_stay(wording), *stays))

    async def _messages_that_stay(self, wording: Wording) -> list[str]:
        body = {"query": " ".join(wording.words), "limit": PAGE}
        hits = await self._server.post(list[HeldRow], "search", body) or []
        count = sum(wording.is_in(str(one.get("content"))) for one in hits)
        noun = "message stays" if count == 1 else "messages stay"
        told = [f"{count} {noun}: {self._shown} cannot delete messages, nor summaries that hold them"] if count else []
        looked_at = f"of a search at {self._shown} only the {PAGE} best hits were looked at"
        return [*told, f"there may be more messages: {looked_at}"]

    def _pairs(self, peers: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Who may hold a card about whom, each pair once."""
        yield from ((peer, peer) for peer in peers)
        for observer in sorted(peers, key=lambda peer: peer != self._ai):
            yield from ((observer, peer) for peer in peers if peer != observer)

    def _listed(self, what: str) -> AsyncIterator[HeldRow]:
        return self._server.listed(ListPage[HeldRow], f"{what}/list", None, MOST_PAGES)

    async def _card(self, observer: str, observed: str) -> list[str]:
        found = await self._server.get(Card, card_path(observer, observed))
        return (found and found.peer_card) or []

    async def _take_line_out(self, observer: str, observed: str, line: str) -> None:
        lines = await self._card(observer, observed)
        if line in lines:
            kept = {"peer_card": [one for one in lines if one != line]}
            await self._server.write("PUT", card_path(observer, observed), kept)


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
