"""The scope of a conversation's recall, and the views that its base layer is built from. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hermes.memory.provider import Reach
from hermes.types import Json

MAX_FACTS_PER_VIEW = 50
"""Facts requested from our server for each view; more would not fit."""
MAX_OWN_VIEW_FACTS = 20
"""Facts requested from a person's own view, beside the agent's."""
SUMMARY, USER, USER_CARD, AI, AI_CARD = "summary", "user representation", "user card", "ai representation", "ai card"


class Whose(Struct, frozen=True):
    """The session of a conversation, its participants, and its reach."""

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
    """Agents of all profiles: a guest's chats with two of them may share one session."""
    called: str = ""
    """The person's display name if it differs from the peer name."""

    def name_of(self, peer: str) -> str:
        """Return how headings name a peer."""
        return self.called if self.called and peer == self.user else peer

    def view(self, peer: str) -> tuple[str, str | None]:
        """Return observer and target. A peer's view of itself has no target."""
        return (peer, None) if peer == self.ai or not self.ai_observes_others else (self.ai, peer)

    def has_own_view(self, peer: str) -> bool:
        """Return True if the person's own view may be read and differs from the agent's."""
        return self.reach == "everything" and peer == self.user and self.view(peer)[1] is not None

    def pairs(self, peer: str) -> list[dict[str, Json]]:
        """Return the views about a peer: the agent's, then the peer's own."""
        observer, target = self.view(peer)
        own = [pair(peer, peer)] if self.has_own_view(peer) else []
        return [pair(observer, target or observer), *own]


def pair(observer: str, observed: str) -> dict[str, Json]:
    """Return a view in the API's field names."""
    return {"observer_id": observer, "observed_id": observed}


class AskedView(Struct, frozen=True):
    """A view requested from our server, and the titles of the sections made from its representation and card."""

    view: dict[str, Json]
    layer: str
    title: str
    card_title: str = ""


def choose_views(whose: Whose, members: Sequence[str], *, searched: bool) -> list[AskedView]:
    """Return the views of the base layer, in order: of the person or of a group's members, then the agent's of
    itself."""
    here = {"session_id": whose.session}
    asked: list[AskedView] = []
    if whose.user is not None:
        agents, *own = whose.pairs(whose.user)
        view = {**agents, "searched": searched, "max_conclusions": MAX_FACTS_PER_VIEW, "card": True}
        name = whose.name_of(whose.user)
        asked.append(AskedView(view, USER, f"What is known about {name}", f"Key facts about {name}"))
        for held in own:
            view = {**held, "searched": searched, "max_conclusions": MAX_OWN_VIEW_FACTS}
            asked.append(AskedView(view, USER, f"What else {name} has said"))
    for peer in members:
        asked.append(AskedView({**whose.pairs(peer)[0], **here}, USER, f"What {peer} said here"))
    itself = {**pair(whose.ai, whose.ai), "max_conclusions": MAX_FACTS_PER_VIEW}
    if whose.ai_observes_itself and whose.reach == "everything" and whose.user is not None:
        # A card does not say which conversations it comes from: it is the owner's alone.
        view = {**itself, "alone": [whose.user, whose.ai], "card": True}
        asked.append(AskedView(view, AI, "What you know about yourself", "Key facts about yourself"))
    elif whose.ai_observes_itself:
        asked.append(AskedView({**itself, **here}, AI, "What you know about yourself here"))
    return asked
