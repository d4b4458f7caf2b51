"""All reads of a conversation from a Honcho server, limited by its reach.

| reach | about the person | about the agent | answers |
|---|---|---|---|
| everything (the owner) | all of it | from the sessions that the owner is in, and its card | from all of it |
| own (a guest) | all of it: it is theirs | from this session | from this session |
| here (a group) | what was said here by those who are here | from this session | from this session |

A guest whose peer is also someone else's has the reach of a group. A guest's conversation reads its session only while
its members are the guest and the agent alone.

An agent reads its own view of a person and the person's own view, so agents that share a workspace recall what the
person said to any of them. Cards and conclusions that an agent made are its own.

A Honcho server that is not ours uses cards in its answers, and a card does not say which session it comes from. There
guests and groups get no answers, and the owner gets one about the agent only while nobody else is in its sessions.
Reading creates nothing on the server.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal

from hermes.errors import ProviderError
from hermes.honcho.context_views import (
    AI,
    AI_CARD,
    MAX_OWN_VIEW_FACTS,
    SUMMARY,
    USER,
    USER_CARD,
    Whose,
    choose_views,
)
from hermes.honcho.evidence import MAX_CANDIDATES, MAX_QUERY_CHARS, RecalledEvidence, score_by_rank
from hermes.honcho.injection import Section
from hermes.honcho.names import card_path, peer_path, session_path
from hermes.honcho.recall_reader import (
    DIALECTIC_TIMEOUT_SECONDS,
    Card,
    ChatAnswer,
    Context,
    ListPage,
    Named,
    RecalledConclusion,
    RecalledContext,
    RecalledMessage,
    RecalledRepresentation,
    RecallReader,
)
from hermes.types import Json

MAX_MEMBERS = 5
"""Members of a group whose conclusions are requested."""
MAX_OWN_SESSIONS = 20
"""The owner's newest sessions that the agent's view of itself may draw on."""
MAX_AGENT_SESSIONS = 50
"""Sessions of the agent that are checked for members beside the owner."""
ALONE_SECONDS = 2.0
"""How long the check that a guest is alone in a session stays valid: for the requests of one recall."""
MAX_NEIGHBOURS = 10
"""Nearest neighbours of a conclusion that are searched for duplicates."""
MAX_CONCLUSIONS = 10
"""Conclusions of each view that are considered as evidence."""
MAX_SEARCH_CHARS = 500
"""Length of the question used to select conclusions."""
DATED = re.compile(r"^(?:- )?(?:\[[^\]]*\] ?)?")
"""Matches the mark and the date before a fact in a representation."""
NOT_NARROW = (
    "this server answers from cards too, which say nothing of where they come from, so it is not asked here; "
    "honcho_search finds what was said in this conversation"
)
SUMMARY_TITLE = "Summary of what was said here so far"


class RecallSource:
    """Reads for one conversation. Every method raises ProviderError with a readable message; unknown objects are
    empty."""

    def __init__(self, reader: RecallReader, whose: Whose) -> None:
        self.reader = reader
        self.whose = whose
        self._own_sessions: list[str] | None = None
        self._alone_until = 0.0

    async def base(self, tokens: int, search: str = "") -> tuple[Section, ...]:
        """Return the base layer, in its order; from our own server with one request."""
        if (await self.reader.link()).reads_views and await self._may_read_session():
            return await self._base_at_once(tokens, search[:MAX_SEARCH_CHARS])
        people, agent = await asyncio.gather(self._about_people(tokens, search), self.about_agent())
        return (*people, *agent)

    async def _base_at_once(self, tokens: int, search: str) -> tuple[Section, ...]:
        members = [] if self.whose.user is not None else await self._members()
        asked = choose_views(self.whose, members, searched=bool(search))
        body: dict[str, Json] = {"session_id": self.whose.session, "tokens": tokens}
        body |= {"views": [one.view for one in asked], **({"search_query": search} if search else {})}
        found = await self.reader.post(RecalledContext, "ext/context", body)
        if found is None:
            return ()
        given: list[tuple[str, str, str | None]] = [(SUMMARY, SUMMARY_TITLE, found.summary)]
        for one, held in zip(asked, found.views, strict=False):
            given.append((one.layer, one.title, held.representation))
            given.append((AI_CARD if one.layer == AI else USER_CARD, one.card_title, "\n".join(held.card or ())))
        return self._sections(*given)

    async def about(self, peer: str, tokens: int, search: str = "") -> tuple[Section, ...]:
        """Return summary, representation and card for one person of the conversation."""
        if self.whose.reach == "here":
            return (*await self._summary(tokens), *await self._said_here(peer))
        observer, target = self.whose.view(peer)
        search, name = search[:MAX_SEARCH_CHARS], self.whose.name_of(peer)
        if not await self._may_read_session():
            known = {"target": target, **({"search_query": search} if search else {})}
            held, card = await asyncio.gather(self._represent(observer, known), self.card(peer))
            return self._sections(
                (USER, f"What is known about {name}", held), (USER_CARD, f"Key facts about {name}", "\n".join(card))
            )
        context = self.reader.get(
            Context,
            session_path(self.whose.session, "context"),
            tokens=tokens,
            peer_target=peer,
            peer_perspective=None if target is None else observer,
            search_query=search or None,
        )
        told, own = await asyncio.gather(context, self._own_view(peer, search))
        found = told or Context()
        return self._sections(
            (SUMMARY, SUMMARY_TITLE, found.summary.content if found.summary else ""),
            (USER, f"What is known about {name}", found.peer_representation),
            (USER_CARD, f"Key facts about {name}", "\n".join(found.peer_card or ())),
            (USER, f"What else {name} has said", without_repeats(own, found.peer_representation or "")),
        )

    async def about_agent(self) -> tuple[Section, ...]:
        """Return the agent's view of itself."""
        whose = self.whose
        if not whose.ai_observes_itself:
            return ()
        if not await self._may_read_session():
            return ()
        held = self._represent(whose.ai, {"target": None, "filters": _only(await self.own_sessions())})
        if whose.reach != "everything":
            return self._sections((AI, "What you know about yourself here", await held))
        # A card does not say which conversations it comes from: it is the owner's alone.
        text, card = await asyncio.gather(held, self.card(whose.ai))
        return self._sections(
            (AI, "What you know about yourself", text), (AI_CARD, "Key facts about yourself", "\n".join(card))
        )

    async def card(self, peer: str) -> Sequence[str]:
        """Return the lines of a peer's card; empty without a card."""
        observer, target = self.whose.view(peer)
        found = await self.reader.get(Card, card_path(observer, target or observer))
        return () if found is None else found.peer_card or ()

    async def may_answer(self, about: str) -> bool:
        """Return True if an answer about a peer can be limited to the conversation's reach."""
        return (
            not self._is_narrow(about)
            or (await self.reader.link()).answers_narrowly
            or (self.whose.reach == "everything" and about == self.whose.ai and await self._is_agent_alone())
        )

    async def answer(
        self, question: str, level: str, about: str, *, in_session: bool, own: Literal["no", "alone", "too"] = "no"
    ) -> str | None:
        """Return the server's answer to a question about a peer; None if it knows nothing. `own` selects the peer's
        own view instead of the agent's ("alone"), or both ("too"), which only our own server supports."""
        if not await self.may_answer(about):
            raise ProviderError(NOT_NARROW, hint="")
        if not await self._may_read_session():
            return None
        observer, target = (about, None) if own == "alone" else self.whose.view(about)
        body: dict[str, Json] = {"query": question, "target": target, "reasoning_level": level, "stream": False}
        if own == "too" and self.whose.has_own_view(about):
            body["with_own_view"] = True
        if in_session:
            body["session_id"] = self.whose.session
        if self._is_narrow(about) and (await self.reader.link()).answers_narrowly:
            body["filters"] = _only(await self.own_sessions())
        found = await self.reader.post(ChatAnswer, peer_path(observer, "chat"), body, longest=DIALECTIC_TIMEOUT_SECONDS)
        return None if found is None or not found.content else found.content.strip() or None

    async def find_conclusions(self, query: str, peer: str, most: int) -> Sequence[RecalledConclusion]:
        """Return matching conclusions about a peer, the best first; then those that only the peer's own view has."""
        agents, *own = await self._query_views(query, peer, most)
        known = {one.content for one in agents}
        return [*agents, *(one for view in own for one in view if one.content not in known)]

    async def find_same(self, conclusion: str, peer: str) -> list[str]:
        """Return the ids of a conclusion and of its duplicates in all views, which would still be recalled; empty if
        the conclusion is out of reach."""
        filters = [{**view, "id": {"in": [conclusion]}} for view in await self._views(peer)]
        pages = await asyncio.gather(
            *(
                self.reader.post(ListPage[RecalledConclusion], "conclusions/list", {"filters": one}, size=1)
                for one in filters
            )
        )
        text = next((one.content for page in pages if page is not None for one in page.items), None)
        if text is None:
            return []
        views = await self._query_views(text[:MAX_SEARCH_CHARS], peer, MAX_NEIGHBOURS)
        same = {one.id for view in views for one in view if one.content == text}
        return [conclusion, *sorted(same - {conclusion})]

    async def _query_views(self, query: str, peer: str, most: int) -> list[list[RecalledConclusion]]:
        """Return the matching conclusions of each view of a peer, the best first."""
        bodies = [{"query": query, "top_k": most, "filters": view} for view in await self._views(peer)]
        found = await asyncio.gather(
            *(self.reader.post(list[RecalledConclusion], "conclusions/query", body) for body in bodies)
        )
        return [view or [] for view in found]

    async def _views(self, peer: str) -> list[dict[str, Json]]:
        """Return filters for the conclusions about a peer within reach: the agent's view, then the peer's own."""
        where = await self._where(peer)
        return [] if where is None else [{**pair, **where} for pair in self.whose.pairs(peer)]

    async def list_conclusions(self, peer: str, most: int) -> Sequence[RecalledConclusion]:
        """Return the newest conclusions about a peer; then those that only the peer's own view has."""
        listed = (
            self.reader.post(ListPage[RecalledConclusion], "conclusions/list", {"filters": view}, size=most)
            for view in await self._views(peer)
        )
        found: dict[str, RecalledConclusion] = {}
        for page in await asyncio.gather(*listed):
            found = {**{one.content: one for one in (page.items if page else ())}, **found}
        return list(found.values())[:most]

    async def find_messages(self, query: str, peer: str, most: int) -> Sequence[RecalledMessage]:
        """Return matching messages within reach; about the agent, only its own."""
        body: dict[str, Json] = {"query": query, "limit": most}
        where = await self._where(peer)
        if where is None:
            return ()
        if peer != self.whose.ai:
            bodies = self._searches(body)
            if not await self._may_read_session():
                bodies.pop(session_path(self.whose.session, "search"), None)
        elif self.whose.reach == "here":
            bodies = {session_path(self.whose.session, "search"): {**body, "filters": {"peer_id": peer}}}
        else:
            bodies = {peer_path(peer, "search"): {**body, "filters": where}}
        pages = await asyncio.gather(*(self.reader.post(list[RecalledMessage], *one) for one in bodies.items()))
        ranked = [one for rank in zip_longest(*(page or () for page in pages)) for one in rank if one is not None]
        return list({one.id or one.content: one for one in ranked}.values())[:most]

    def _searches(self, body: dict[str, Json]) -> dict[str, dict[str, Json]]:
        """Return searches, by path, that together cover the messages of both speakers within reach."""
        whose = self.whose
        peer = whose.user or whose.guest
        bodies = {session_path(whose.session, "search"): body}
        if whose.reach == "everything" and peer is not None:
            bodies = {"search": {**body, "filters": {"peer_perspective": peer}}}
        if whose.reach != "here" and peer is not None:
            # A stock server's perspective begins when its peer last spoke; this finds what they said before.
            bodies[peer_path(peer, "search")] = body
        return bodies

    async def find_evidence(self, query: str) -> RecalledEvidence:
        """Return matching messages of both speakers within reach, and matching conclusions."""
        query = query[:MAX_QUERY_CHARS]
        if (await self.reader.link()).finds_evidence:
            return await self._find_evidence_at_once(query) or RecalledEvidence()
        if not await self._may_read_session():
            return RecalledEvidence()
        peer = self.whose.user or self.whose.guest
        bodies = self._searches({"query": query, "limit": MAX_CANDIDATES})
        searches = asyncio.gather(*(self.reader.post(list[RecalledMessage], *one) for one in bodies.items()))
        pages, concluded = await asyncio.gather(searches, self._find_concluded(query, peer))
        hits = {one.id or one.content: one for page in pages for one in page or ()}
        return RecalledEvidence(score_by_rank(hits.values(), query), concluded)

    async def _find_concluded(self, query: str, peer: str | None) -> Sequence[RecalledConclusion]:
        return () if peer is None else await self.find_conclusions(query, peer, MAX_CONCLUSIONS)

    async def _find_evidence_at_once(self, query: str) -> RecalledEvidence | None:
        whose = self.whose
        peer = whose.user or whose.guest
        body: dict[str, Json] = {"query": query, "limit": MAX_CANDIDATES}
        if whose.reach == "here" or peer is None:
            body["session_id"] = whose.session
        elif whose.reach == "everything":
            body["heard_by"] = peer
        if whose.reach == "own" or whose.guest is not None:
            body["alone"] = [peer or whose.ai, whose.ai]
        if peer is not None:
            body["views"] = self.whose.pairs(peer)
        return await self.reader.post(RecalledEvidence, "ext/evidence", body)

    async def newest_messages(self, most: int) -> Sequence[RecalledMessage]:
        """Return the newest messages of this session, in order."""
        if not await self._may_read_session():
            return ()
        path = session_path(self.whose.session, "messages/list")
        found = await self.reader.post(ListPage[RecalledMessage], path, None, size=most, reverse="true")
        return () if found is None else found.items[::-1]

    async def own_sessions(self) -> list[str]:
        """Return the sessions from which the agent's messages may be read: the newest ones with the owner alone, or
        only this one. Messages said to others may concern them."""
        whose = self.whose
        if whose.reach != "everything" or whose.user is None:
            return [whose.session]
        if self._own_sessions is None:
            path = peer_path(whose.user, "sessions")
            found = await self.reader.post(ListPage[Named], path, None, size=MAX_OWN_SESSIONS, reverse="true")
            names = [] if found is None else [one.id for one in found.items if one.id != whose.session]
            private = await asyncio.gather(*(self._is_private(name) for name in names))
            kept = [name for name, is_private in zip(names, private, strict=True) if is_private]
            self._own_sessions = [whose.session, *kept]
        return self._own_sessions

    async def _may_read_session(self) -> bool:
        """Return False if a guest's session has members beside the guest and the agent. Unique session names prevent
        that; this is a second barrier."""
        guest, now = self.whose.guest, self.reader.now()
        if guest is None or now < self._alone_until:
            return True
        peers = await self._peers(self.whose.session)
        is_alone = peers is None or set(peers) <= {guest, self.whose.ai, *self.whose.agents}
        if peers is not None and is_alone:
            self._alone_until = now + ALONE_SECONDS
        return is_alone

    async def _is_private(self, session: str) -> bool:
        """Return True if only the person and the agent are in a session."""
        peers = await self._peers(session)
        return peers is not None and set(peers) <= {self.whose.user, self.whose.ai}

    async def _is_agent_alone(self) -> bool:
        """Return True if no session of the agent has members beside the owner, so that all its knowledge of itself
        is the owner's. False if there are too many sessions to check."""
        path = peer_path(self.whose.ai, "sessions")
        found = await self.reader.post(ListPage[Named], path, None, size=MAX_AGENT_SESSIONS)
        names = [] if found is None else [one.id for one in found.items]
        if len(names) == MAX_AGENT_SESSIONS:
            return False
        return all(await asyncio.gather(*(self._is_private(name) for name in names)))

    async def _about_people(self, tokens: int, search: str) -> tuple[Section, ...]:
        if self.whose.user is not None:
            return await self.about(self.whose.user, tokens, search)
        if not await self._may_read_session():
            return ()
        summary, members = await asyncio.gather(self._summary(tokens), self._members())
        said = await asyncio.gather(*(self._said_here(member) for member in members))
        return (*summary, *(section for sections in said for section in sections))

    async def _members(self) -> list[str]:
        """Return the members of a group whose conclusions are requested."""
        peers = await self._peers(self.whose.session)
        return [peer for peer in peers or () if peer != self.whose.ai][:MAX_MEMBERS]

    async def _summary(self, tokens: int) -> tuple[Section, ...]:
        if not await self._may_read_session():
            return ()
        found = await self.reader.get(Context, session_path(self.whose.session, "context"), tokens=tokens)
        text = found.summary.content if found is not None and found.summary else ""
        return self._sections((SUMMARY, SUMMARY_TITLE, text))

    async def _said_here(self, peer: str) -> tuple[Section, ...]:
        if not await self._may_read_session():
            return ()
        observer, target = self.whose.view(peer)
        held = await self._represent(observer, {"target": target, "filters": _only([self.whose.session])})
        return self._sections((USER, f"What {peer} said here", held))

    async def _represent(self, observer: str, body: Json) -> str:
        found = await self.reader.post(RecalledRepresentation, peer_path(observer, "representation"), body)
        return "" if found is None else found.representation

    async def _own_view(self, peer: str, search: str) -> str:
        if not self.whose.has_own_view(peer):
            return ""
        return await self._represent(
            peer, {"max_conclusions": MAX_OWN_VIEW_FACTS, **({"search_query": search} if search else {})}
        )

    async def _peers(self, session: str) -> list[str] | None:
        found = await self.reader.get(ListPage[Named], session_path(session, "peers"))
        return None if found is None else [one.id for one in found.items]

    async def _where(self, peer: str) -> dict[str, Json] | None:
        """Return a filter for the sessions that data about a peer may come from; {} for all, None for none."""
        if self.whose.reach != "here" and peer == self.whose.user:
            return {}
        return _only(await self.own_sessions()) if await self._may_read_session() else None

    def _is_narrow(self, about: str) -> bool:
        """Return True if an answer must be limited to certain sessions."""
        return self.whose.reach != "everything" or about == self.whose.ai

    def _sections(self, *given: tuple[str, str, str | None]) -> tuple[Section, ...]:
        now = self.reader.now()
        return tuple(Section(layer, title, text.strip(), now) for layer, title, text in given if text and text.strip())


def without_repeats(text: str, known: str) -> str:
    """Return the facts of a representation that `known` does not hold, ignoring dates."""
    held = {DATED.sub("", line.strip()) for line in known.splitlines()}
    facts = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(line for line in facts if DATED.sub("", line.strip()) not in held)


def _only(sessions: Sequence[str]) -> dict[str, Json]:
    return {"session_id": {"in": list(sessions)}}
