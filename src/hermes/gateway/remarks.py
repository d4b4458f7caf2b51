"""What a chat is told beside a reply, in one line after it: notices, and that a note changed.

owner, alone   notices, outages too; his notes
guest, alone   notices that are no outages; the guest's notes
group          nothing
over HTTP      nothing here: a request has a field for notices

What a review noted meanwhile is told with the person's next reply, on whichever platform that is.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from hermes.db.engine import Tx
from hermes.events import Failed, MemoryUpdated, Notice, TurnEvent
from hermes.gateway.platform import Chat
from hermes.scope import OWNER, Group, Scope
from hermes.store.note_remarks import take_remarks

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
        if not self._are_told:
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
        return _one_line(self._heard)

    def line_of_reply(self, tx: Tx) -> str:
        """The same with what reviews have noted and this person was not told of yet. It is taken for the reply that the
        transaction records, so that it is told once."""
        if not self._are_told or not self.terms.notes or not take_remarks(tx, self.scope):
            return self.line
        return _one_line({NOTED: None, **self._heard})

    @property
    def _are_told(self) -> bool:
        return self.terms.notices and self.chat.chat_type == "dm" and not isinstance(self.scope, Group)


def _one_line(heard: Iterable[str]) -> str:
    return " · ".join(heard)[:LONGEST]


def may_hear(event: TurnEvent, scope: Scope) -> bool:
    """Whether those who talk in a conversation of this scope may hear of an event at all."""
    return scope == OWNER or not (isinstance(event, Notice) and event.is_outage)


def apology(failed: Failed, scope: Scope) -> str:
    """What a chat is told of a turn that failed: the owner why, others not. A model's error may name addresses, files
    and accounts; the log has it."""
    tells = scope == OWNER or failed.kind == "gone"
    end = "" if failed.message.endswith((".", "?", "!")) else "."
    return f"I could not answer: {failed.message}{end}" if tells else "I could not answer."
