"""Any Honcho server, read through its public API. Data that the API does not return is counted.

A list that a server returns in numbered pages, read completely while others delete from it.

A deletion before a page moves the rest of the list up. So with each page the reader checks whether the item before it
is still in its place; if not, it searches for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hermes.errors import TransferError
from hermes.transfer.lines import Lacking, SectionPage, TransferItem
from hermes.transfer.remote import PAGE_ITEMS, RefusedError, Remote, segment

AskForPart = Callable[[int, int], Mapping[str, Any]]
"""A function that returns a page of the list by number and size."""
MAX_KNOWN_ITEMS = 20
"""Number of last items that are remembered: one of them must still exist."""
MAX_PAGE_DISTANCE = 10
"""Maximum distance, in pages, at which they are searched."""


@dataclass(frozen=True, slots=True)
class ListPart:
    """A page of a list. `begin` is its position and `after` that of the next page, as JSON values; `before` counts the
    items on earlier pages."""

    items: list[Mapping[str, Any]]
    begin: Any
    after: Any
    before: int


def read_list(ask: AskForPart, begin: Any, what: str) -> Iterator[ListPart]:
    """Yield the items of a list from a position on (None: the start), each once and in order, in at least one part.
    Raises TransferError if the list changed so much that the position is lost."""
    # Files of earlier versions contain only the number of the page.
    number, known, before = begin if isinstance(begin, list) else (begin or 1, [], ((begin or 1) - 1) * PAGE_ITEMS)
    while True:
        start = [number, known, before]
        told = ask(number, PAGE_ITEMS)
        items = list(told["items"])
        if known and told["total"] and not _is_in_place(ask, (number - 1) * PAGE_ITEMS, known[-1]):
            number, told, items = _find(ask, number, known, what)
        before += len(items)
        known = [item["id"] for item in items][-MAX_KNOWN_ITEMS:] or known
        number += 1
        more = number <= told["pages"]
        yield ListPart(items, start, [number, known, before] if more else None, before - len(items))
        if not more:
            return


def _is_in_place(ask: AskForPart, position: int, known: str) -> bool:
    """Return True if this item is at `position`, counted from 1."""
    return [item["id"] for item in ask(position, 1)["items"]] == [known]


def _find(ask: AskForPart, number: int, known: list[str], what: str) -> tuple[int, Mapping[str, Any], list[Any]]:
    """Return the nearest page that contains the latest of the known items, and the items after it on that page."""
    for page in sorted(
        range(max(1, number - MAX_PAGE_DISTANCE), number + MAX_PAGE_DISTANCE + 1),
        key=lambda page: abs(page - number),
    ):
        told = ask(page, PAGE_ITEMS)
        ids = [item["id"] for item in told["items"]]
        if found := [one for one in reversed(known) if one in ids]:
            return page, told, list(told["items"])[ids.index(found[0]) + 1 :]
    hint = "Delete the file that ends in .part and export again"
    raise TransferError(f"the list of {what} changed too much while it was read", hint=hint)


Show = Callable[[Mapping[str, Any]], dict[str, Any]]
CARDS_PER_MARK = 50
"""Number of cards that are requested between two marks."""
NO_SOURCES = "conclusions: which messages they came from, and what they said before"
NO_STAYS = "members: when they joined, and stays that ended"
NO_AUTHORS = "cards: who wrote them, and when; there may be more, between peers that nothing else connects"


class PublicSource:
    """Reads everything that the API returns of a workspace."""

    kind = "honcho"

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._lacking = Lacking()
        self._pairs: set[tuple[str, str]] = set()
        self._members: set[tuple[str, str]] = set()
        self._authors: set[tuple[str, str]] = set()
        self._observers: set[tuple[str, str]] = set()
        self._workspace: dict[str, Any] = {}

    def check(self) -> None:
        """Raise TransferError if the workspace does not exist. A key that may not list workspaces opens its own."""
        name = self._remote.workspace
        try:
            told = self._remote.ask("POST", "/v3/workspaces/list", {"filters": {"id": name}})
            found = [item for item in told["items"] if item["id"] == name]
        except RefusedError as error:
            if error.status not in (401, 403):
                raise TransferError(f"{self._remote.url}: {error.reason}") from error
            found = [self._open()]
        if not found:
            raise TransferError(f"{self._remote.url} has no workspace {name}")
        self._workspace = found[0]

    def _open(self) -> Any:
        """Return the workspace. The request would create a missing one, so it must contain something."""
        try:
            if not self._remote.total("peers/list") and not self._remote.total("sessions/list"):
                raise TransferError(f"{self._remote.url} has nothing in workspace {self._remote.workspace}")
            return self._remote.ask("POST", "/v3/workspaces", {"id": self._remote.workspace})
        except RefusedError as error:
            hint = "Set HONCHO_API_KEY to a key of the workspace"
            raise TransferError(f"{self._remote.url}: {error.reason}", hint=hint) from error

    def pages(self, section: str, after: Any) -> Iterator[SectionPage]:
        readers: dict[str, Callable[[Any], Iterator[SectionPage]]] = {
            "workspace": self._workspace_pages,
            "peers": self._peers_pages,
            "sessions": partial(self._listed, "sessions/list", _named),
            "scopes": self._scopes_pages,
            "memberships": partial(self._by_session, self._members_of),
            "messages": partial(self._by_session, self._messages_of),
            "departures": self._departures_pages,
            "conclusions": partial(self._listed, "conclusions/list", _conclusion, reverse=True),
            "cards": self._cards_pages,
            "summaries": partial(self._by_session, self._summaries_of),
            "webhooks": self._webhooks_pages,
        }
        try:
            yield from readers[section](after)
        except RefusedError as error:
            raise TransferError(f"{self._remote.url}: {error.reason}") from error

    def saw(self, section: str, item: TransferItem) -> None:
        if section == "peers" and item["kind"] == "peer":
            self._pairs.add((item["id"], item["id"]))
        elif section == "memberships":
            self._members.add((item["session_id"], item["peer_id"]))
            if item["observe_others"]:
                self._observers.add((item["session_id"], item["peer_id"]))
            self._lacking[NO_STAYS] += 1
        elif section == "messages":
            self._authors.add((item["session_id"], item["peer_id"]))
        elif section == "conclusions":
            self._pairs.add((item["observer_id"], item["observed_id"]))
            self._lacking[NO_SOURCES] += 1
        elif section == "cards":
            self._lacking[NO_AUTHORS] += 1

    def lacking(self) -> Lacking:
        return self._lacking

    def _workspace_pages(self, _after: Any) -> Iterator[SectionPage]:
        yield SectionPage([_named(self._workspace)], None)

    def _peers_pages(self, after: Any) -> Iterator[SectionPage]:
        """Yield peers, then scopes, if the server has any."""
        if after is None or after[0] == "peers":
            begin = None if after is None else after[1]
            for page in self._listed("peers/list", lambda item: {**_named(item), "kind": "peer"}, begin):
                yield SectionPage(page.items, ["peers", page.after] if page.after is not None else ["scopes", 1])
        begin = after[1] if after and after[0] == "scopes" else None
        for page in _while_there(self._listed("scopes/list", _scope, begin)):
            yield SectionPage(page.items, None if page.after is None else ["scopes", page.after])

    def _departures_pages(self, after: Any) -> Iterator[SectionPage]:
        """Yield former members who wrote messages."""
        left = sorted(self._authors - self._members)
        for start in range(after or 0, len(left), PAGE_ITEMS):
            yield SectionPage(
                [{"session_id": s, "peer_id": p} for s, p in left[start : start + PAGE_ITEMS]], start + PAGE_ITEMS
            )
        yield SectionPage([], None)

    def _scopes_pages(self, after: Any) -> Iterator[SectionPage]:
        """Yield the sessions of each scope."""
        found = _while_there(self._listed("scopes/list", _scope, None))
        scopes = [item["id"] for page in found for item in page.items]
        for number, scope in enumerate(scopes):
            if after is None or number >= after:
                path = f"scopes/{segment(scope)}/sessions/list"
                inside = [item for page in self._listed(path, _named, None) for item in page.items]
                yield SectionPage([{"session_id": item["id"], "scopes": [scope]} for item in inside], number + 1)
        yield SectionPage([], None)

    def _cards_pages(self, after: Any) -> Iterator[SectionPage]:
        pairs = sorted(self._pairs | self._observing())
        for start in range(after or 0, len(pairs), CARDS_PER_MARK):
            cards = [self._card(*pair) for pair in pairs[start : start + CARDS_PER_MARK]]
            yield SectionPage([card for card in cards if card is not None], start + CARDS_PER_MARK)
        yield SectionPage([], None)

    def _observing(self) -> set[tuple[str, str]]:
        """Return the pairs of peers that may have a card, since the first observes others in a session."""
        inside: dict[str, set[str]] = {}
        for session, peer in self._members | self._authors:
            inside.setdefault(session, set()).add(peer)
        return {(observer, peer) for session, observer in self._observers for peer in inside[session]}

    def _webhooks_pages(self, _after: Any) -> Iterator[SectionPage]:
        told = self._remote.ask("GET", "webhooks", query={"page": 1, "size": PAGE_ITEMS})
        yield SectionPage([{"url": item["url"], "created_at": item["created_at"]} for item in told["items"]], None)

    def _listed(self, path: str, show: Show, after: Any, *, reverse: bool = False) -> Iterator[SectionPage]:
        for part in self._parts("POST", path, after, reverse=reverse):
            yield SectionPage([show(item) for item in part.items], part.after)

    def _parts(self, method: str, path: str, after: Any, *, reverse: bool = False) -> Iterator[ListPart]:
        turned = {"reverse": "true"} if reverse else {}
        body: dict[str, Any] | None = {} if method == "POST" else None

        def ask(number: int, size: int) -> Mapping[str, Any]:
            told: Mapping[str, Any] = self._remote.ask(method, path, body, {"page": number, "size": size, **turned})
            return told

        return read_list(ask, after, path)

    def _by_session(
        self, read: Callable[[Mapping[str, Any], Any], Iterator[SectionPage]], after: Any
    ) -> Iterator[SectionPage]:
        """Yield the pages of one session after another. A position is the start of a page of sessions, one of them, and
        a page in it. A session that was deleted meanwhile yields no more."""
        begin, done, inner = after or (None, None, None)
        for part in self._parts("POST", "sessions/list", begin):
            for session in part.items:
                if done is not None and session["id"] != done:
                    continue
                if done is None or inner is not None:
                    for page in _while_there(read(session, inner)):
                        yield SectionPage(page.items, [part.begin, session["id"], page.after])
                done = inner = None
        if done is not None:
            hint = "Delete the file that ends in .part and export again"
            raise TransferError(f"session {done} was deleted since the export was begun", hint=hint)
        yield SectionPage([], None)

    def _members_of(self, session: Mapping[str, Any], after: Any) -> Iterator[SectionPage]:
        for part in self._parts("GET", f"sessions/{segment(session['id'])}/peers", after):
            yield SectionPage([self._member(session, peer["id"]) for peer in part.items], part.after)

    def _member(self, session: Mapping[str, Any], peer: str) -> dict[str, Any]:
        path = f"sessions/{segment(session['id'])}/peers/{segment(peer)}/config"
        config = self._remote.ask("GET", path)
        told = {name: config.get(name) for name in ("observe_me", "observe_others")}
        times = {"joined_seq": 0, "left_seq": None, "joined_at": session["created_at"]}
        return {"session_id": session["id"], "peer_id": peer, **told, **times}

    def _messages_of(self, session: Mapping[str, Any], after: Any) -> Iterator[SectionPage]:
        for part in self._parts("POST", f"sessions/{segment(session['id'])}/messages/list", after):
            shown = [{**_message(item), "seq": part.before + place} for place, item in enumerate(part.items, start=1)]
            yield SectionPage(shown, part.after)

    def _card(self, observer: str, observed: str) -> dict[str, Any] | None:
        target = {} if observer == observed else {"target": observed}
        told = self._remote.ask("GET", f"peers/{segment(observer)}/card", query=target)
        if not told["peer_card"]:
            return None
        known = {"written_by": "person", "updated_at": self._workspace["created_at"]}
        return {"observer_id": observer, "observed_id": observed, "lines": told["peer_card"], **known}

    def _summaries_of(self, session: Mapping[str, Any], _after: Any) -> Iterator[SectionPage]:
        told = self._remote.ask("GET", f"sessions/{segment(session['id'])}/summaries")
        names = ("content", "message_id", "created_at")
        found = [
            {"kind": kind, **{name: summary[name] for name in names}}
            for kind in ("long", "short")
            if (summary := told[f"{kind}_summary"]) is not None
        ]
        yield SectionPage([{"session_id": session["id"], "summaries": found}] if found else [], None)


def _while_there(pages: Iterator[SectionPage]) -> Iterator[SectionPage]:
    """Yield pages that the server may lack, or may delete at any moment; stop at a 404."""
    try:
        yield from pages
    except RefusedError as error:
        if error.status != 404:
            raise
        yield SectionPage([], None)


def _named(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in ("id", "metadata", "configuration", "created_at")}


def _scope(item: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: item[name] for name in ("id", "metadata", "created_at")}
    return {**told, "configuration": {}, "kind": "scope"}


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    names = ("id", "session_id", "peer_id", "content", "metadata", "created_at")
    return {**{name: item[name] for name in names}, "file": None}


def _conclusion(item: Mapping[str, Any]) -> dict[str, Any]:
    names = ("id", "observer_id", "observed_id", "session_id", "level", "content", "created_at")
    told = {"times_derived": item.get("times_derived") or 1, "source_ids": item.get("source_ids")}
    return {**{name: item[name] for name in names}, **told, "metadata": {}, "message_ids": [], "versions": []}
