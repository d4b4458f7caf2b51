"""Portraits of the owner and the agent: their cards and standing facts on a Honcho server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from hermes.honcho.facts import as_time, strip_speaker
from hermes.honcho.names import card_path
from hermes.honcho.recall_reader import Card, ListPage, RecalledStanding, RecallReader
from hermes.memory.provider import Fact, Portrait

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
