"""What a Honcho server holds in which certain words stand, and deleting it: conclusions, lines of cards, and on our own
server the messages they came from. Commands use it; it blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from hermes.errors import ProviderError
from hermes.honcho.extensions import Extensions
from hermes.honcho.links import DELETES
from hermes.memory.provider import Holding, Remembered, Wording
from hermes.types import Json

CONCLUSION, MESSAGE, CARD = "conclusion", "message", "card"
PAGE = 100
MOST_PAGES = 100
"""Pages of conclusions that are looked through, the newest first."""
MOST_PEERS = 100
"""Peers whose cards are looked at."""


class RememberedWords:
    """Looks in one workspace. Raises ProviderError, in words."""

    def __init__(self, server: Extensions, ai: str, shown: str) -> None:
        self._server = server
        self._ai = ai
        self._shown = shown

    def find(self, wording: Wording) -> Holding:
        """Everything that fits, as far as it can be deleted there, and what cannot."""
        concluded = [one for one in self._conclusions() if wording.is_in(one["content"])]
        found = [
            Remembered(CONCLUSION, str(one["id"]), one["content"], str(one.get("observed_id") or ""))
            for one in concluded
        ]
        cards = list(self._card_lines(wording))
        said = self._messages(wording)
        if said and not self._server.has(DELETES):
            count = f"{len(said)} or more" if len(said) == PAGE else str(len(said))
            stays = f"{count} messages stay: {self._shown} cannot delete messages, nor summaries that hold them"
            return Holding((*found, *cards), (stays,))
        return Holding((*found, *cards, *said))

    def forget(self, items: Sequence[Remembered]) -> None:
        """Delete these. With a message goes what was learnt from it alone."""
        for one in items:
            if one.kind == CARD:
                self._take_line_out(*json.loads(one.id))
            elif one.kind == MESSAGE:
                session, message = json.loads(one.id)
                path = f"{self._server.workspace}/ext/sessions/{_name(session)}/messages/{_name(message)}"
                self._server.ask("DELETE", path, missing={})
            else:
                self._server.ask("DELETE", f"{self._server.workspace}/conclusions/{_name(one.id)}", missing={})

    def _conclusions(self) -> Iterator[dict[str, Any]]:
        for page in range(1, MOST_PAGES + 1):
            found = self._page("conclusions/list", page)
            yield from found
            if len(found) < PAGE:
                return

    def _messages(self, wording: Wording) -> list[Remembered]:
        body = {"query": " ".join(wording.words), "limit": PAGE}
        found = self._server.ask("POST", f"{self._server.workspace}/search", missing=[], json=body)
        return [
            Remembered(MESSAGE, json.dumps([one["session_id"], one["id"]]), one["content"], str(one["peer_id"]))
            for one in _dicts(found)
            if wording.is_in(str(one.get("content")))
        ]

    def _card_lines(self, wording: Wording) -> Iterator[Remembered]:
        peers = [str(one["id"]) for one in self._page("peers/list", 1)][:MOST_PEERS]
        pairs = [(peer, None) for peer in peers] + [(self._ai, peer) for peer in peers if peer != self._ai]
        for observer, target in pairs:
            for line in self._card(observer, target):
                if wording.is_in(line):
                    yield Remembered(CARD, json.dumps([observer, target, line]), line, target or observer)

    def _card(self, observer: str, target: str | None) -> list[str]:
        query = {} if target is None else {"target": target}
        found = self._server.ask("GET", self._card_path(observer), missing={}, params=query)
        lines = found.get("peer_card") if isinstance(found, dict) else None
        return [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []

    def _take_line_out(self, observer: str, target: str | None, line: str) -> None:
        lines = self._card(observer, target)
        if line in lines:
            query = {} if target is None else {"target": target}
            kept = {"peer_card": [one for one in lines if one != line]}
            self._server.ask("PUT", self._card_path(observer), params=query, json=kept)

    def _card_path(self, peer: str) -> str:
        return f"{self._server.workspace}/peers/{_name(peer)}/card"

    def _page(self, what: str, page: int) -> list[dict[str, Any]]:
        """Items of a list; none in a workspace that is not there."""
        path = f"{self._server.workspace}/{what}?page={page}&size={PAGE}"
        found = self._server.ask("POST", path, missing={"items": []}, json={})
        if not isinstance(found, dict) or not isinstance(found.get("items"), list):
            raise ProviderError("the server's answer is none that Honcho gives", hint="")
        return _dicts(found["items"])


def _dicts(found: Json) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _name(text: str) -> str:
    return quote(text, safe="")
