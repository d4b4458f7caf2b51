"""The values that host and provider exchange: speakers, conversations, entries, questions and recalls.

Plain values, the same in every process. Times are Unix seconds of the host's clock.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, cast

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import asdict

from hermes.ranking.words import SPACELESS
from hermes.types import Json, Message, RecalledLine

EntryKind = Literal["said", "reply", "note", "delegation", "own", "forget", "correct", "undo"]
"""The kind of an entry: a person's message, a reply, a change of the built-in notes, a finished task of a sub-agent,
an entry of the provider's own (`Host.put`), a deletion of a conversation, a fact that a person corrected or forgot, or
a deletion of some messages."""

Pace: TypeAlias = Literal["async", "turn", "session"] | int
"""When entries are delivered: at once; before the turn ends; when the conversation ends; after this many turns."""

Reach = Literal["everything", "own", "here"]
"""The extent of a conversation's recall: everything (the owner alone), the person's own (a guest alone), or what
belongs to this conversation (a group, whoever speaks)."""

Ending = Literal["new", "switch", "exit", "idle", "settings", "deleted", "shutdown"]
"""Why a session is closed. `settings`: it is reopened at once with new settings."""


class Speaker(Struct, frozen=True):
    """A speaker, by the unchanged ids of the platform. In the terminal it is `Speaker(is_owner=True)`."""

    user_id: str | None = None
    user_id_alt: str | None = None
    name: str | None = None
    is_owner: bool = False
    is_agent: bool = False
    """True for another program that the owner allowed to talk in groups."""

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Json) -> Speaker | None:
        return None if value is None else cls(**value)


def speaker_of(person: Speaker | None, message: Message, *, is_owner: bool) -> Speaker:
    """Return a message's speaker: the person of a direct chat, else its author. The owner may write in any chat."""
    if person is not None and (person.is_owner or not is_owner):
        return person
    return Speaker(message.author_id, message.author_alt, message.author_name, is_owner, bool(message.author_is_agent))


class Conversation(Struct, frozen=True):
    """A conversation. It is stored, so that processes that never opened it describe it in the same way."""

    session_id: str
    platform: str
    reach: Reach
    person: Speaker | None = None
    """The person of a direct chat; None in a group, where each message has its own speaker."""
    chat_type: str | None = None
    gateway_session_key: str | None = None
    title: str | None = None
    directory: Path | None = None
    """The terminal's directory when the conversation began."""
    bound: Json = None
    """The first `Address.data` of this conversation, from which it must not be moved."""

    def to_json(self) -> Json:
        """Return all fields but `bound`, which is stored separately."""
        kept = to_builtins(self, enc_hook=str)
        del kept["bound"]
        return kept

    @classmethod
    def from_json(cls, value: Json, bound: Json = None) -> Conversation:
        return convert({**value, "bound": bound}, cls, dec_hook=lambda _, directory: Path(directory))


class Notebook(Struct, frozen=True):
    """The built-in notes of the owner, a guest, or (by `gateway_session_key`) a group, independent of a
    conversation."""

    person: Speaker | None
    platform: str | None = None
    gateway_session_key: str | None = None

    def to_json(self) -> Json:
        return to_builtins(self)

    @classmethod
    def from_json(cls, value: Json) -> Notebook:
        return convert(value, cls)


DEFAULT_WANTS: frozenset[EntryKind] = frozenset({"said", "reply", "note", "own", "forget", "correct"})


class Address(Struct, frozen=True):
    """The destination of entries. Entries of one `lane` are delivered in order, by one process at a time. `data` is
    stored in each row and returned with it. Kinds that are not in `wants` are not recorded. A lane has 1 to 1,000
    characters and does not begin with `?`; data is JSON of up to 16,000 characters."""

    lane: str
    data: Json = None
    wants: frozenset[EntryKind] = DEFAULT_WANTS
    pace: Pace = "async"

    def to_json(self) -> Json:
        return {"lane": self.lane, "data": self.data, "wants": sorted(self.wants), "pace": self.pace}

    @classmethod
    def from_json(cls, value: Json) -> Address:
        return cls(value["lane"], value["data"], frozenset(cast(list[EntryKind], value["wants"])), value["pace"])


class Entry(Struct, frozen=True):
    """An outbox row. `key` is random, made with the row, and the same at every attempt."""

    key: str
    kind: EntryKind
    address: Json
    text: str
    """The complete text without fences, read from the store at delivery; "" if the content is in `data`."""
    at: float
    speaker: Speaker | None
    """The speaker of a `said`, `note` or `own` entry; for a `reply` to another agent, that agent."""
    session_id: str | None
    data: Json = None
    """The content by kind. own: the data given to `put`. note: target, action, old. delegation: task. reply:
    `{"stopped": true}` if the person cut it off. forget: the session_id of a deleted conversation. correct: the `id`
    of a fact and its former text (`old`); the entry's text is the right one, or "" to forget the fact. undo: the
    session_id, `times` of the retracted messages (the `at` of their entries), and `entries` that tools made meanwhile
    or that describe sub-agents, each with kind, data and the note of its delivery. forget and undo: `may_arrive`, the
    last attempts of entries that will not come again, by key: a server may still be processing them."""
    tried_at: float | None = None
    """The start of the last attempt that may have arrived: check the server before repeating it."""
    queued_at: float | None = None
    """The time when the row was made; no attempt is older. Old messages may be sent much later."""


class Delivered(Struct, frozen=True):
    """A final success. `note` is stored and shown, such as the server's id."""

    note: str | None = None


class Later(Struct, frozen=True):
    """A temporary failure without a limit of attempts; later entries of the lane wait too. `everyone` means that the
    server is at fault, not this entry, so that all lanes pause."""

    reason: str
    after: float | None = None
    """Seconds to wait, at most a day; None leaves it to the host's growing back-off."""
    everyone: bool = False


class DeadLetter(Struct, frozen=True):
    """A final failure: refused for good, or it is unknown whether it arrived. It is shown to people; the lane
    continues."""

    reason: str


Outcome: TypeAlias = Delivered | Later | DeadLetter


class Said(Struct, frozen=True):
    text: str
    speaker: Speaker


class Question(Struct, frozen=True):
    """The question of a turn. `turn` counts the conversation's turns that memory may know, from 1, across restarts.
    `until` is the deadline of the answer."""

    said: tuple[Said, ...]
    turn: int
    until: float
    since: float = 0.0
    """When something was last forgotten or undone: text fetched earlier may contain it and must not be recalled."""

    @property
    def text(self) -> str:
        """The messages as one text."""
        return "\n".join(said.text for said in self.said)


class Part(Struct, frozen=True):
    """A piece of recalled text, as it goes into the request."""

    layer: str
    text: str
    as_of: float
    """The time at which it was fetched."""
    tokens: int
    cut: int = 0
    """Characters omitted to fit."""
    sources: tuple[str, ...] = ()
    """The reason for each line that begins with "- ", in order."""
    left_out: tuple[str, ...] = ()
    """Shortened lines that did not fit."""


class Recalled(Struct, frozen=True):
    """The result of a recall, in the order of the request. `missed` maps what was not ready in time to the reason."""

    parts: tuple[Part, ...] = ()
    missed: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[RecalledLine, ...] = ()
    """The same as data, best first, for answers without a model."""


UNSPACED = re.compile(f"[{SPACELESS}]")
"""Matches scripts without spaces between words, in which a word is found anywhere in a text."""


class Wording(Struct, frozen=True):
    """Words that must all occur in a text, as whole words in any order, ignoring case and Unicode form."""

    words: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        folded = _fold(text)
        return all(_stands_in(_fold(word), folded) for word in self.words)


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _stands_in(word: str, text: str) -> bool:
    if UNSPACED.search(word):
        return word in text
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


FactKind = Literal["stated", "derived"]
"""The origin of a fact: stated by a person, or derived from statements."""


class FactQuery(Struct, frozen=True):
    """A query for facts: with all `words`, with an `id`, or those behind an `injected` line; at most `limit`,
    following the cursor `after`. `as_of` selects facts valid at a time, `kind` those of one kind."""

    words: Wording | None = None
    id: str | None = None
    injected: tuple[str, str] | None = None
    """A recalled line and its source, as recorded."""
    as_of: float | None = None
    after: str = ""
    limit: int = 20
    kind: FactKind | None = None


class Fact(Struct, frozen=True):
    """A fact about a person. `id` is the provider's own, and constant for the same text."""

    id: str
    text: str
    at: float | None = None
    origin: str = ""
    """The origin in a few words."""
    until: float | None = None
    """The end of its validity; None for a current fact."""


class Facts(Struct, frozen=True):
    """A page of facts. `after` is the cursor of the next page, if any; `remark` says what is missing, and why."""

    items: tuple[Fact, ...] = ()
    after: str | None = None
    remark: str = ""
    total: int | None = None
    """The number of all facts; None if unknown."""


class Portrait(Struct, frozen=True):
    """A summary of a person or agent. `lacks` describes what the server cannot provide."""

    name: str
    is_agent: bool = False
    card: tuple[str, ...] = ()
    standing: tuple[tuple[str, Fact], ...] = ()
    """Permanent facts, each with its category."""
    total: int | None = None
    lacks: tuple[str, ...] = ()


class FactSource(Struct, frozen=True):
    """A message that a fact was learnt from. `session_id` is set for conversations of this home."""

    text: str
    at: float | None = None
    session_id: str | None = None
    can_go: bool = True
    """False if the provider cannot delete it."""


class FactChange(Struct, frozen=True):
    """A fact that another fact changed, was changed by, or contradicts."""

    text: str
    at: float | None
    """The time of the later fact."""
    is_newer: bool
    """True if this fact is the later one."""
    is_contradiction: bool = False
    is_undone: bool = False


class Remembered(Struct, frozen=True):
    """An item that a provider holds. `id` is the provider's own."""

    kind: str
    id: str
    text: str
    about: str = ""


class Holding(Struct, frozen=True):
    """A provider's items that match some words. `stays` describes what it cannot delete or did not search; `profiles`
    are others with the same memory."""

    items: tuple[Remembered, ...] = ()
    stays: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()


class ToolUse(Struct, frozen=True):
    """A tool call by the model. `key` is unique: use it for entries of this call."""

    name: str
    arguments: Mapping[str, Json]
    key: str
    until: float
