"""Whose memory a conversation reads, and the views that the first layer of its recall is made of. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hermes.memory.provider import Reach
from hermes.types import Json

MAX_FACTS = 50
"""Facts that our server is asked for of each view: more would not fit."""
OWN_FACTS = 20
"""Of a person's own view, how many facts are asked for beside the agent's."""
SUMMARY, USER, USER_CARD, AI, AI_CARD = "summary", "user representation", "user card", "ai representation", "ai card"


class Whose(Struct, frozen=True):
    """Where a conversation is kept, who takes part in it, and how far it reaches."""

    session: str
    ai: str
    reach: Reach
    user: str | None
    """The person of a direct chat; None in a group."""
    ai_observes_others: bool = True
    ai_observes_itself: bool = True
    guest: str | None = None
    """The person of a guest's direct chat, who must be alone in its session with the agent."""
    agents: frozenset[str] = frozenset()
    """Agents of all profiles: a guest who talks to two of them may have one session with both."""

    def view(self, peer: str) -> tuple[str, str | None]:
        """Who looks at whom; None where a peer looks at itself."""
        return (peer, None) if peer == self.ai or not self.ai_observes_others else (self.ai, peer)

    def has_own_view(self, peer: str) -> bool:
        """Whether a person's own view may be asked, and is another than the agent's."""
        return self.reach == "everything" and peer == self.user and self.view(peer)[1] is not None

    def pairs(self, peer: str) -> list[dict[str, Json]]:
        """Who holds what about a peer: the agent, then the peer itself."""
        observer, target = self.view(peer)
        own = [pair(peer, peer)] if self.has_own_view(peer) else []
        return [pair(observer, target or observer), *own]


def pair(observer: str, observed: str) -> dict[str, Json]:
    """Return a view in the words of the API."""
    return {"observer_id": observer, "observed_id": observed}


class AskedView(Struct, frozen=True):
    """A view that our server is asked for, and the sections that its representation and its card become."""

    view: dict[str, Json]
    layer: str
    title: str
    card_title: str = ""


def choose_views(whose: Whose, members: Sequence[str], *, searched: bool) -> list[AskedView]:
    """Return the views of the first layer, in their order: of the person, or of those who are in a group, and the
    agent's of itself."""
    here = {"session_id": whose.session}
    asked: list[AskedView] = []
    if whose.user is not None:
        agents, *own = whose.pairs(whose.user)
        view = {**agents, "searched": searched, "max_conclusions": MAX_FACTS, "card": True}
        asked.append(AskedView(view, USER, f"What is known about {whose.user}", f"Key facts about {whose.user}"))
        for held in own:
            view = {**held, "searched": searched, "max_conclusions": OWN_FACTS}
            asked.append(AskedView(view, USER, f"What else {whose.user} has said"))
    for peer in members:
        asked.append(AskedView({**whose.pairs(peer)[0], **here}, USER, f"What {peer} said here"))
    itself = {**pair(whose.ai, whose.ai), "max_conclusions": MAX_FACTS}
    if whose.ai_observes_itself and whose.reach == "everything" and whose.user is not None:
        # A card does not say which conversations it comes from: it is the owner's alone.
        view = {**itself, "alone": [whose.user, whose.ai], "card": True}
        asked.append(AskedView(view, AI, "What you know about yourself", "Key facts about yourself"))
    elif whose.ai_observes_itself:
        asked.append(AskedView({**itself, **here}, AI, "What you know about yourself here"))
    return asked
