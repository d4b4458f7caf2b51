"""What a chat is told beside a reply, in one line after it: notices, and that a note changed.

owner, alone   notices, outages too; his notes
guest, alone   notices that are no outages; the guest's notes
group          nothing
over HTTP      nothing here: a request has a field for notices
"""

from __future__ import annotations

from msgspec import Struct, field

from hermes.events import Failed, MemoryUpdated, Notice, TurnEvent
from hermes.gateway.platform import Chat
from hermes.scope import API, OWNER, Group, Scope

NOTED = "💾 Memory updated"
LONGEST = 1000


class RemarkTerms(Struct, frozen=True):
    """What is said at all."""

    notices: bool = True
    notes: bool = True


class Remarks(Struct, frozen=True):
    """The remarks of one turn, as they come up."""

    terms: RemarkTerms
    chat: Chat
    scope: Scope
    _heard: dict[str, None] = field(default_factory=dict)

    def hear(self, event: TurnEvent) -> None:
        """Take down what this chat should be told of an event."""
        if not self.terms.notices or self.chat.chat_type == API or isinstance(self.scope, Group):
            return
        match event:
            case Notice(text, is_outage) if self.scope == OWNER or not is_outage:
                self._heard[" ".join(text.split())] = None
            case MemoryUpdated() if self.terms.notes:
                self._heard[NOTED] = None
            case _:
                pass

    @property
    def line(self) -> str:
        """All of it in one line; "" when there is nothing to say."""
        return " · ".join(self._heard)[:LONGEST]


def may_hear(event: TurnEvent, scope: Scope) -> bool:
    """Whether those who talk in a conversation of this scope may hear of an event at all."""
    return scope == OWNER or not (isinstance(event, Notice) and event.is_outage)


def apology(failed: Failed, scope: Scope) -> str:
    """What a chat is told of a turn that failed: the owner why, others not. A model's error may name addresses, files
    and accounts; the log has it."""
    tells = scope == OWNER or failed.kind == "gone"
    return f"I could not answer: {failed.message}." if tells else "I could not answer."
