"""Facts about one person on a Honcho server, as shown to that person: card lines, conclusions in the agent's view,
and conclusions that only the person's own view holds. Read-only.

Portraits of the owner and the agent: their cards and standing facts on a Honcho server.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import Struct, field

from hermes.errors import ProviderError
from hermes.honcho.failures import Unanswered
from hermes.honcho.messages import SESSION
from hermes.honcho.names import card_path, digest, in_path
from hermes.honcho.recall_reader import Card, ListPage, RecalledStanding, RecallReader
from hermes.honcho.wire import read_time
from hermes.memory.provider import Fact, FactChange, FactQuery, Facts, FactSource, Portrait
from hermes.types import Json

CONCLUSIONS_PER_PAGE, MAX_PAGES = 100, 50
"""Conclusions per page, and pages read for one query."""
MAX_SOURCES = 50
MAX_FILTER_WORDS = 20
"""Words of a search that are sent to the server; a filter takes a few hundred conditions."""
FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
"""Maps ASCII characters to their full-width forms in East Asian typesetting."""
NOT_ALL = "not all facts were looked at; `/memory more` goes on"
CARD = "card-"
IN_CONCLUSION = re.compile(r"\bconclusion ([\w-]+)")
IN_MESSAGE = re.compile(r"\bsession (\S+), message ([\w-]+)")
"""Match the id of the conclusion or message in the source of an injected line, as `evidence.py` writes it."""
MARKS = re.compile(r"^\s*(?:[-*]\s+)?(?:\[[^\]]{1,40}\]\s*)?")
POSITION = re.compile(r"[0-9]{1,9}\.[1-9][0-9]{0,8}\.[0-9]{1,9}")
NO_SOURCES = "this server does not say what was learnt from a message: look for its words among the facts"
STATED = "explicit"
LEVELS = {STATED: "stated"}
"""Names of conclusion levels; any other level is "derived"."""


class HeldConclusion(Struct, frozen=True):
    """A conclusion in a server's list."""

    id: str
    content: str
    observer_id: str
    created_at: str = ""
    session_id: str | None = None
    level: str = "explicit"
    valid_until: str | None = None


class HeldPair(Struct, frozen=True):
    """Two conclusions of which the newer one supersedes or contradicts the older one."""

    id: str
    kind: str
    older_id: str
    older_content: str
    newer_id: str
    newer_content: str
    newer_said_at: str = ""
    undone_at: str | None = None


class HeldHistory(Struct, frozen=True):
    """The history of a conclusion on our own server."""

    supersessions: tuple[HeldPair, ...] = ()


class SourceMessage(Struct, frozen=True):
    """A source message of a conclusion."""

    id: str
    content: str
    created_at: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


class Position(Struct, frozen=True):
    """The cursor of a listing: the view, the page, and the number of rows already seen on that page."""

    view: int = 0
    page: int = 1
    seen: int = 0

    @classmethod
    def read(cls, text: str) -> Position:
        """Parse a cursor. Raises ProviderError for invalid text."""
        if text and not POSITION.fullmatch(text):
            raise ProviderError("invalid position in the list", hint="Start at its first page")
        return cls(*map(int, text.split("."))) if text else cls()

    def __str__(self) -> str:
        return f"{self.view}.{self.page}.{self.seen}"


class FactReader:
    """Lists the facts about one peer in these `views`, the agent's first. Raises ProviderError with a readable
    message."""

    def __init__(self, reader: RecallReader, peer: str, views: Sequence[str]) -> None:
        self._reader = reader
        self._peer = peer
        self._views = views

    async def find(self, query: FactQuery) -> Facts:
        """Return the facts that match a query."""
        if query.id is not None:
            return Facts(tuple([one async for one in self._by_id(query.id)]))
        if query.injected is not None:
            return await self._said_by(*query.injected)
        found: list[Fact] = [] if query.after or query.kind == "derived" else await self._cards(query)
        position, pages, total = Position.read(query.after), 0, None
        while position.view < len(self._views) and len(found) < query.limit:
            if pages == MAX_PAGES:
                return Facts(tuple(found), str(position), NOT_ALL, total)
            held = {"observer_id": self._views[position.view], "observed_id": self._peer}
            listed = await self._list_page({**held, **make_filter(query)}, position.page)
            rows = () if listed is None else listed.items
            if listed is not None and position.view == 0 and query.words is None and query.kind is None:
                total = listed.total
            known = await self._known_elsewhere(position.view, rows)
            position = self._take(query, position, rows, known, found)
            pages += 1
        return Facts(tuple(found), str(position) if position.view < len(self._views) else None, total=total)

    async def sources(self, fact: Fact) -> Sequence[SourceMessage]:
        """Return the source messages of a fact, from every copy in any session and view; empty except on our own
        server."""
        if fact.id.startswith(CARD):
            return ()
        contents: Json = {"in": [fact.text, f"{self._peer}: {fact.text}"]}
        copies = await self._listed({"observed_id": self._peer, "content": contents}, 1)
        messages: dict[str, SourceMessage] = {}
        for conclusion in dict.fromkeys([fact.id, *(copy.id for copy in copies)]):
            path = f"ext/conclusions/{in_path(conclusion)}/messages"
            found = await self._reader.get(ListPage[SourceMessage], path, size=MAX_SOURCES)
            messages |= {} if found is None else {one.id: one for one in found.items}
        return list(messages.values())

    async def changes(self, fact: Fact, *, undo: bool) -> Sequence[FactChange]:
        """Return the facts that this one superseded or was superseded by, after undoing that if `undo`; empty except
        on our own server."""
        if fact.id.startswith(CARD):
            return ()
        found = await self._reader.get(HeldHistory, f"ext/conclusions/{in_path(fact.id)}/history")
        pairs = () if found is None else found.supersessions
        if undo:
            undone = [await self._reader.delete(HeldPair, f"ext/supersessions/{in_path(pair.id)}") for pair in pairs]
            pairs = tuple(pair for pair in undone if pair is not None)
        return [self._change(pair, fact.id) for pair in pairs]

    def _change(self, pair: HeldPair, own: str) -> FactChange:
        is_newer = pair.older_id == own
        text = strip_speaker(pair.newer_content if is_newer else pair.older_content, self._peer)
        is_contradiction = pair.kind == "contradiction"
        return FactChange(text, as_time(pair.newer_said_at), is_newer, is_contradiction, pair.undone_at is not None)

    def _take(
        self, query: FactQuery, at: Position, rows: Sequence[HeldConclusion], known: set[str], found: list[Fact]
    ) -> Position:
        """Append the matching rows of a page to `found`, and return the next cursor."""
        seen = {fact.text for fact in found}
        for number, row in enumerate(rows[at.seen :], start=at.seen + 1):
            fact = self._fact(row)
            if _fits(query, row, fact) and fact.text not in seen and row.content not in known:
                seen.add(fact.text)
                found.append(fact)
            if len(found) == query.limit and (number < len(rows) or len(rows) == CONCLUSIONS_PER_PAGE):
                return Position(at.view, at.page, number)
        return Position(at.view, at.page + 1) if len(rows) == CONCLUSIONS_PER_PAGE else Position(at.view + 1)

    async def _known_elsewhere(self, view: int, rows: Sequence[HeldConclusion]) -> set[str]:
        """Return the contents that an earlier view holds too, and listed before."""
        if view == 0 or not rows:
            return set()
        contents: Json = {"in": sorted({row.content for row in rows})}
        filters = {"observer_id": {"in": list(self._views[:view])}, "observed_id": self._peer, "content": contents}
        return {row.content for row in await self._listed(filters, 1)}

    async def _listed(self, filters: Json, page: int) -> Sequence[HeldConclusion]:
        found = await self._list_page(filters, page)
        return () if found is None else found.items

    async def _list_page(self, filters: Json, page: int) -> ListPage[HeldConclusion] | None:
        body = {"filters": filters}
        return await self._reader.post(
            ListPage[HeldConclusion], "conclusions/list", body, page=page, size=CONCLUSIONS_PER_PAGE
        )

    async def _said_by(self, line: str, why: str) -> Facts:
        """Return the facts behind a recalled line: its conclusion, the conclusions from the message that it quotes,
        or its card line."""
        if named := IN_CONCLUSION.search(why):
            return Facts(tuple([one async for one in self._by_id(named[1])]))
        if quoted := IN_MESSAGE.search(why):
            path = f"ext/sessions/{in_path(quoted[1])}/messages/{in_path(quoted[2])}/conclusions"
            found = await self._reader.get(ListPage[HeldConclusion], path, size=CONCLUSIONS_PER_PAGE)
            if found is None:
                return Facts(remark=NO_SOURCES)
            own = [self._fact(row) for row in found.items if row.observer_id in self._views]
            return Facts(tuple({one.text: one for one in reversed(own)}.values()))
        texts = {strip_speaker(text, self._peer) for text in (line, MARKS.sub("", line, count=1))}
        cards = [one for one in await self._cards(FactQuery()) if one.text in texts]
        held = {
            "observed_id": self._peer,
            "content": {"in": sorted({*texts, *(f"{self._peer}: {one}" for one in texts)})},
        }
        rows = [row for row in await self._listed(held, 1) if row.observer_id in self._views]
        return Facts(tuple({one.text: one for one in (*cards, *map(self._fact, rows))}.values()))

    async def _by_id(self, fact: str) -> AsyncIterator[Fact]:
        if fact.startswith(CARD):
            for line in await self._cards(FactQuery()):
                if line.id == fact:
                    yield line
            return
        for row in await self._listed({"observed_id": self._peer, "id": {"in": [fact]}}, 1):
            if row.observer_id in self._views:
                yield self._fact(row)

    async def _cards(self, query: FactQuery) -> list[Fact]:
        """Return card lines that are not conclusions too."""
        lines: list[str] = []
        for view in self._views:
            card = await self._reader.get(Card, card_path(view, self._peer))
            lines += [] if card is None else card.peer_card or []
        said: set[str] = set()
        if lines:
            held = {"observed_id": self._peer, "content": {"in": sorted(set(lines))}}
            said = {row.content for row in await self._listed(held, 1)}
        chosen = [line for line in dict.fromkeys(lines) if line not in said]
        return [
            Fact(f"{CARD}{digest(line, 16)}", line, None, "a line of the card")
            for line in chosen
            if query.words is None or query.words.is_in(line)
        ]

    def _fact(self, row: HeldConclusion) -> Fact:
        level = LEVELS.get(row.level, "derived")
        origin = f"{level} in Honcho session {row.session_id}" if row.session_id else f"{level}, in no session"
        until = None if row.valid_until is None else as_time(row.valid_until)
        return Fact(row.id, strip_speaker(row.content, self._peer), as_time(row.created_at), origin, until)


def make_filter(query: FactQuery) -> Json:
    """Return a filter by which the server drops most non-matching rows. Rows must be checked again: a server matches
    substrings, not words."""
    filters: dict[str, Json] = {}
    if query.kind is not None:
        filters["level"] = STATED if query.kind == "stated" else {"ne": STATED}
    if query.words is not None:
        spelled = [{"OR": [{"content": {"icontains": one}} for one in spellings(word)]} for word in query.words.words]
        filters["AND"] = spelled[:MAX_FILTER_WORDS]
    return filters


def spellings(word: str) -> list[str]:
    """Return the spellings under which a text may hold this word."""
    forms = [word, word.casefold(), word.casefold().translate(FULL_WIDTH)]
    return sorted({unicodedata.normalize(form, one) for one in forms for form in ("NFC", "NFD", "NFKC")} | {*forms})


def _fits(query: FactQuery, row: HeldConclusion, fact: Fact) -> bool:
    is_kind = query.kind is None or (row.level == STATED) == (query.kind == "stated")
    return is_kind and (query.words is None or query.words.is_in(fact.text)) and _held_at(fact, query.as_of)


def _held_at(fact: Fact, moment: float | None) -> bool:
    """Return True if a fact was known and valid at a moment; always True without one."""
    if moment is None:
        return True
    return (fact.at is None or fact.at <= moment) and (fact.until is None or fact.until > moment)


def strip_speaker(content: str, peer: str) -> str:
    """Return the text of a conclusion without its speaker's name."""
    return content.removeprefix(f"{peer}: ")


def to_source(message: SourceMessage, *, can_go: bool) -> FactSource:
    session = message.metadata.get(SESSION)
    return FactSource(
        message.content, as_time(message.created_at), session if isinstance(session, str) else None, can_go
    )


def as_time(text: str) -> float | None:
    """Return a server's timestamp as seconds since 1970; None if it is invalid."""
    try:
        return read_time(text, "fact").timestamp()
    except Unanswered:
        return None


LACKS = (
    "what always holds of you, such as health or standing wishes, is not told apart from other facts",
    "it does not say from which message a fact was learnt",
    "it does not say when a fact stopped holding, and a change cannot be undone",
    "people cannot be merged",
)
"""Features that other Honcho servers than ours lack."""


class StandingPart(Struct, frozen=True):
    """The standing facts in an evidence response."""

    standing: list[RecalledStanding]


async def draw_portraits(reader: RecallReader, peer: str, ai: str, views: Sequence[str]) -> Sequence[Portrait]:
    """Return the person in the agent's view, then the agent in its own. Raises ProviderError with a readable
    message."""
    link = await reader.link()
    standing: list[RecalledStanding] = []
    if link.finds_evidence:
        asked = {"query": "?", "limit": 1, "views": [{"observer_id": views[0], "observed_id": peer}]}
        found = await reader.post(StandingPart, "ext/evidence", asked)
        standing = [] if found is None else found.standing
    held = tuple((one.kind, _fact(one, peer)) for one in standing)
    person = Portrait(
        peer,
        card=await _read_card(reader, views, peer),
        standing=held,
        total=await _count(reader, views[0], peer),
        lacks=() if link.finds_evidence else LACKS,
    )
    agent = Portrait(ai, True, await _read_card(reader, [ai], ai), total=await _count(reader, ai, ai))
    return [person, agent]


async def _read_card(reader: RecallReader, views: Sequence[str], peer: str) -> tuple[str, ...]:
    lines: list[str] = []
    for view in views:
        card = await reader.get(Card, card_path(view, peer))
        lines += [] if card is None else card.peer_card or []
    return tuple(dict.fromkeys(strip_speaker(line, peer) for line in lines))


async def _count(reader: RecallReader, observer: str, observed: str) -> int | None:
    body = {"filters": {"observer_id": observer, "observed_id": observed}}
    found = await reader.post(ListPage[Any], "conclusions/list", body, page=1, size=1)
    return 0 if found is None else found.total


def _fact(one: RecalledStanding, peer: str) -> Fact:
    origin = f"said in session {one.session_id}" if one.session_id else "stated"
    return Fact(one.id, strip_speaker(one.content, peer), as_time(one.created_at), origin)
