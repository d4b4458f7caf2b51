"""What host and provider say to each other: who spoke, where, what is to be delivered, asked and recalled.

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
"""What an entry is: words of a person, a reply, a change of the built-in notes, a task that a sub-agent finished,
something of the provider's own (`Host.put`), the wish to forget a conversation, a fact that a person corrected or
forgot, or the wish to forget some messages."""

Pace: TypeAlias = Literal["async", "turn", "session"] | int
"""When entries are delivered: at once; before the turn ends; when the conversation ends; after so many turns."""

Reach = Literal["everything", "own", "here"]
"""What may be read: all of it (the owner, alone), what is the person's own (a guest, alone), or what belongs to this
conversation (a group, whoever speaks)."""

Ending = Literal["new", "switch", "exit", "idle", "settings", "deleted", "shutdown"]
"""Why a session is closed. `settings`: it is opened again at once, with what changed."""


class Speaker(Struct, frozen=True):
    """Who spoke, by the ids that the platform gave, unchanged. The terminal's is `Speaker(is_owner=True)`."""

    user_id: str | None = None
    user_id_alt: str | None = None
    name: str | None = None
    is_owner: bool = False
    is_agent: bool = False
    """Another program, which the owner allowed to talk in groups."""

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Json) -> Speaker | None:
        return None if value is None else cls(**value)


def speaker_of(person: Speaker | None, message: Message, *, is_owner: bool) -> Speaker:
    """Who said a message: the person of a direct chat, else its author. The owner may speak in anyone's."""
    if person is not None and (person.is_owner or not is_owner):
        return person
    return Speaker(message.author_id, message.author_alt, message.author_name, is_owner, bool(message.author_is_agent))


class Conversation(Struct, frozen=True):
    """One conversation. It is kept in the store, so that a process that never opened it says the same of it."""

    session_id: str
    platform: str
    reach: Reach
    person: Speaker | None = None
    """Of a direct chat; None in a group, where each message has its own."""
    chat_type: str | None = None
    gateway_session_key: str | None = None
    title: str | None = None
    directory: Path | None = None
    """Where a terminal stood when the conversation began."""
    bound: Json = None
    """`Address.data` as it was first given for this conversation, which must not be moved away from it."""

    def to_json(self) -> Json:
        """All but `bound`, which is kept beside it."""
        kept = to_builtins(self, enc_hook=str)
        del kept["bound"]
        return kept

    @classmethod
    def from_json(cls, value: Json, bound: Json = None) -> Conversation:
        return convert({**value, "bound": bound}, cls, dec_hook=lambda _, directory: Path(directory))


class Notebook(Struct, frozen=True):
    """Built-in notes of the owner, a guest, or (by `gateway_session_key`) a group: of no conversation."""

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
    """Where entries go. Those of one `lane` are delivered in order, by one process at a time. `data` is kept in each
    row and comes back with it. Kinds that are not in `wants` are not recorded.

    A lane has 1 to 1,000 characters and does not begin with `?`; data is JSON of up to 16,000 characters."""

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
    """One row of the outbox. `key` is random, made with the row, and the same at every attempt."""

    key: str
    kind: EntryKind
    address: Json
    text: str
    """What was said, whole and without fences, read from the store when it is delivered; "" where `data` says it."""
    at: float
    speaker: Speaker | None
    """Of `said`, `note` and `own`; of a `reply` to another agent, that agent."""
    session_id: str | None
    data: Json = None
    """own: what `put` was given. note: target, action, old. delegation: task. reply: `{"stopped": true}` for one that
    the person cut off. forget: the session_id of a conversation that was deleted. correct: the `id` of a fact and what
    it said (`old`); the entry's text is what holds, and "" has the fact forgotten. undo: the session_id, `times` of the
    messages that were taken back (the `at` of their entries), and `entries` that tools put meanwhile or that tell of
    sub-agents, each with kind, data and the note of its delivery. forget and undo: `may_arrive`, when entries were last
    tried that will not come again, by key: a server may still be busy with them."""
    tried_at: float | None = None
    """When the last attempt began that may have arrived: look before you repeat it."""
    queued_at: float | None = None
    """When the row was made: no attempt is older. What was said long before may be told later."""


class Delivered(Struct, frozen=True):
    """Done for good. `note` is kept and shown, such as the server's id."""

    note: str | None = None


class Later(Struct, frozen=True):
    """Not now, for as long as it takes; what follows in the lane waits too. `everyone`: it is the server's fault and
    not this entry's, so no lane is tried for a while."""

    reason: str
    after: float | None = None
    """Seconds to wait, a day at most; None leaves it to the host, which waits longer each time."""
    everyone: bool = False


class Parked(Struct, frozen=True):
    """Never by itself again: refused for good, or nobody can tell whether it arrived. It is shown; the lane goes on."""

    reason: str


Outcome: TypeAlias = Delivered | Later | Parked


class Said(Struct, frozen=True):
    text: str
    speaker: Speaker


class Question(Struct, frozen=True):
    """What a turn is about. `turn` counts the turns of the conversation that memory may know, from 1, over restarts.
    `until` is when the answer is due."""

    said: tuple[Said, ...]
    turn: int
    until: float
    since: float = 0.0
    """Something was forgotten or taken back then: what was fetched before may hold it, and is not to be recalled."""

    @property
    def text(self) -> str:
        """All that was said, in one piece."""
        return "\n".join(said.text for said in self.said)


class Part(Struct, frozen=True):
    """One piece of recalled text, as it goes into the request."""

    layer: str
    text: str
    as_of: float
    """When it was fetched."""
    tokens: int
    cut: int = 0
    """Characters that were left out to fit."""
    sources: tuple[str, ...] = ()
    """Why each line that begins with "- " is there, in their order."""
    left_out: tuple[str, ...] = ()
    """Lines that did not fit, in brief."""


class Recalled(Struct, frozen=True):
    """What was recalled, in the order of the request. `missed` names what was not there in time, and why."""

    parts: tuple[Part, ...] = ()
    missed: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[RecalledLine, ...] = ()
    """The same as data, the best first, for answers without a model."""


UNSPACED = re.compile(f"[{SPACELESS}]")
"""Characters of scripts without spaces between words: there a word is looked for anywhere in the text."""


class Wording(Struct, frozen=True):
    """Words that must all occur in a text, as whole words and in any order. Case does not matter, nor does the way in
    which Unicode writes a character."""

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
"""Whether a fact was said, or concluded from what was said."""


class FactQuery(Struct, frozen=True):
    """Which facts are wanted: with all of the words, with this id, or those that an injected line says; up to `limit`,
    `after` those given before. `as_of` leaves those that held at a time, `kind` those of one kind."""

    words: Wording | None = None
    id: str | None = None
    injected: tuple[str, str] | None = None
    """A line of a recall, and why it was there, both as they were recorded."""
    as_of: float | None = None
    after: str = ""
    limit: int = 20
    kind: FactKind | None = None


class Fact(Struct, frozen=True):
    """One thing that is held about a person. `id` is the provider's own, and stays the same for this text."""

    id: str
    text: str
    at: float | None = None
    origin: str = ""
    """Where it comes from, in a few words."""
    until: float | None = None
    """Until when it held; None for what holds."""


class Facts(Struct, frozen=True):
    """Facts, and after which the next come, if there are more. `remark` says what is not among them, and why."""

    items: tuple[Fact, ...] = ()
    after: str | None = None
    remark: str = ""
    total: int | None = None
    """How many are held altogether; None where nobody counted."""


class Portrait(Struct, frozen=True):
    """What is known of someone at a glance. `lacks` says in words what this server cannot tell or do."""

    name: str
    is_agent: bool = False
    card: tuple[str, ...] = ()
    standing: tuple[tuple[str, Fact], ...] = ()
    """What always holds, each with what kind of thing it is."""
    total: int | None = None
    lacks: tuple[str, ...] = ()


class FactSource(Struct, frozen=True):
    """Words that a fact was learnt from. `session_id` is the conversation, where it was one of this home."""

    text: str
    at: float | None = None
    session_id: str | None = None
    can_go: bool = True
    """False where the provider cannot delete it."""


class FactChange(Struct, frozen=True):
    """Another fact that a fact changed, was changed by, or contradicts."""

    text: str
    at: float | None
    """When the later of the two was said."""
    is_newer: bool
    """Whether the other fact is the later one."""
    is_contradiction: bool = False
    is_undone: bool = False


class Remembered(Struct, frozen=True):
    """One thing that a provider holds. `id` is the provider's own."""

    kind: str
    id: str
    text: str
    about: str = ""


class Holding(Struct, frozen=True):
    """What a provider holds that fits some words, and in words what of it cannot be deleted there, or was not looked
    at. `profiles` are the other ones that tell the same memory."""

    items: tuple[Remembered, ...] = ()
    stays: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()


class ToolUse(Struct, frozen=True):
    """One call by the model. `key` is unique for ever: put entries under it."""

    name: str
    arguments: Mapping[str, Json]
    key: str
    until: float
