"""What memory holds of one person, to be seen, corrected and forgotten: built-in notes, and the provider's facts.

    page ──> entries with ids ──> correct · forget ── one commit: what may not come back, and the outbox row

A note is its own id, to the letter, and a fact has its provider's: nothing is changed but what was listed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.queue_items import find
from hermes.errors import NoteError, NotFoundError, ProviderError
from hermes.memory.active import ActiveProvider
from hermes.memory.forgetting import mark_forgotten
from hermes.memory.likeness import fact_words
from hermes.memory.mirror import Mirrored, NoteChange
from hermes.memory.notes import FILES, Notes, NotesFile
from hermes.memory.outbox import Spot
from hermes.memory.plugin_thread import Returned
from hermes.memory.provider import MemoryPlugin
from hermes.memory.source_turns import find_late, find_source_turns, leave_out
from hermes.memory.undoing import TakenBack
from hermes.memory.values import Fact, FactChange, FactKind, FactQuery, Facts, FactSource, Notebook, Portrait, Wording
from hermes.redaction import hide_passwords
from hermes.scope import OWNER
from hermes.store.corrections import corrections_of, keep_correction, keep_forgotten
from hermes.store.injections import drop_injections
from hermes.store.note_remarks import drop_remarks
from hermes.store.store import Store

T = TypeVar("T")
PAGE = 20
"""Entries of one page."""
LONGEST_FACT = 2000
"""Characters of a fact that a person writes."""
DELIVERED = 5.0
"""Seconds that a change is waited for on its way to the provider; it is saved either way."""
NOTE_ORDER: tuple[NotesFile, ...] = ("user", "memory")
EntryFilter: TypeAlias = FactKind | Literal["noted"]
"""A kind of entries that a page may be limited to."""
Settled = Literal["done", "queued", "refused"]
NO_WAY = "was told of the replies and has them still: it takes no wish to delete messages"
LATER = "was told of the replies too, and deletes them when it is used again"


class Forgotten(Struct, frozen=True):
    """What became of a wish to forget. `stays` says in words what another provider has still."""

    settled: Settled = "done"
    stays: tuple[str, ...] = ()


class Remembering(Struct, frozen=True):
    """One entry: a note of one of the two files, or a fact of the provider's."""

    id: str
    text: str
    at: float | None
    origin: str
    target: NotesFile | None = None
    """None for a fact."""
    until: float | None = None
    """Until when a fact held; None for what holds."""


class BookPage(Struct, frozen=True):
    """Entries, and after which the next come, if there are more. `remarks` say what could not be read."""

    entries: tuple[Remembering, ...] = ()
    after: str | None = None
    remarks: tuple[str, ...] = ()
    total: int | None = None
    """How many entries there are altogether; None where nobody counted."""


class MemoryBook:
    """The memory of one person or group. Numbers that someone was shown lead to what was shown, whatever changed."""

    def __init__(
        self,
        store: Store,
        notes: Notes,
        provider: ActiveProvider | None,
        notebook: Notebook,
        deliver: Callable[[], None] = lambda: None,
    ) -> None:
        self.notes = notes
        self.shown: list[Remembering | None] = []
        """What the person was shown last, in order; None for what was changed since."""
        self.going_on: tuple[Wording | None, str] | None = None
        """How the last listing goes on."""
        self._store = store
        self._provider = provider
        self._notebook = notebook
        self._deliver = deliver

    async def page(
        self,
        words: Wording | None = None,
        after: str = "",
        limit: int = PAGE,
        as_of: float | None = None,
        kind: EntryFilter | None = None,
    ) -> BookPage:
        """Return notes first, then facts that no note says; with `kind` those of one kind alone."""
        noted, problems = await asyncio.to_thread(self._noted)
        chosen = [one for one in noted if kind in (None, "noted") and (words is None or words.is_in(one.text))]
        start, _, place = after.partition(":")
        begun = int(start or 0)
        notes = chosen[begun : begun + limit]
        if len(chosen) > begun + limit:
            return BookPage(tuple(notes), f"{begun + limit}:", problems)
        if kind == "noted":
            return BookPage(tuple(notes), None, problems)
        left = max(1, limit - len(notes))
        found = await self._facts(FactQuery(words, as_of=as_of, after=place, limit=left, kind=kind))
        said = {one.text for one in noted}
        facts = [_fact(one) for one in found.items if one.text not in said]
        going_on = None if found.after is None else f"{len(chosen)}:{found.after}"
        remarks = (*problems, found.remark) if found.remark else problems
        total = None if found.total is None else found.total + len(noted)
        return BookPage((*notes, *facts), going_on, remarks, total)

    async def provider_answers(self) -> bool:
        """Whether facts can be listed now."""
        return not (await self._facts(FactQuery(limit=1))).remark

    async def add(self, text: str) -> Remembering:
        """Note something about the person. Raises NoteError for what cannot be noted."""
        noted = " ".join(text.split())
        if not noted or len(noted) > LONGEST_FACT:
            raise NoteError(f"an entry has 1 to {LONGEST_FACT} characters", hint="Say what holds")
        await asyncio.to_thread(self.notes.add, "user", noted)
        self._mirror(NoteChange("user", "add", "", noted))
        return Remembering(_note_id("user", noted), noted, self._store.clock.now(), FILES["user"], "user")

    async def said_by(self, line: str, why: str) -> Sequence[Remembering]:
        """The facts that a line of a recall says; `why` is its source, as it was recorded."""
        found = await self._facts(FactQuery(injected=(line, why)))
        if found.remark and not found.items:
            raise ProviderError(found.remark, hint="")
        return [_fact(one) for one in found.items]

    async def portraits(self) -> Sequence[Portrait]:
        """The person and the agent, each at a glance."""
        if self._provider is None:
            return ()
        return await self._ask("portraits", lambda plugin: plugin.portraits(self._notebook), "who it knows")

    async def find(self, entry_id: str) -> Remembering:
        """The entry with an id, which may be cut short to what no other entry begins with."""
        noted, _ = await asyncio.to_thread(self._noted)
        known = [one for one in noted if one.id.startswith(entry_id)] if entry_id else []
        if not known and entry_id:
            found = await self._facts(FactQuery(id=entry_id))
            if found.remark and not found.items:
                raise ProviderError(found.remark, hint="")
            known = [_fact(one) for one in found.items]
        if len(known) != 1:
            raise NotFoundError(
                f"nothing in memory has the id '{entry_id[:80]}'", hint="`hermes memory list` lists them"
            )
        return known[0]

    async def correct(self, entry: Remembering, text: str) -> Settled:
        """Let an entry say something else from now on, for good. Raises NoteError for what cannot be noted."""
        right = " ".join(text.split())
        if not right or len(right) > LONGEST_FACT:
            raise NoteError(f"an entry has 1 to {LONGEST_FACT} characters", hint="Say what holds")
        if right == entry.text:
            return "done"
        if entry.target is None:
            return (await self._change_fact(entry, right, ())).settled
        target, now = entry.target, self._store.clock.now()
        noted = await asyncio.to_thread(self.notes.check_correct, target, entry.text, right)
        # First what keeps it from coming back: a note that is changed without it might be noted again as it was.
        await self._store.write(lambda tx: keep_correction(tx, self.notes.scope, entry.text, noted, now=now))
        await asyncio.to_thread(self.notes.correct, target, entry.text, right)
        self._mirror(NoteChange(target, "replace", entry.text, noted))
        return "done"

    async def forget(self, entry: Remembering, sources: Sequence[FactSource] = ()) -> Forgotten:
        """Forget an entry for good, a fact with the messages that it was learnt from and the replies to them."""
        if entry.target is None:
            return await self._change_fact(entry, "", sources)
        target = entry.target
        await asyncio.to_thread(self.notes.check_forget, target, entry.text)
        # First what keeps it from coming back, as above.
        await self._store.write(lambda tx: self._keep_forgotten(tx, entry.text))
        await asyncio.to_thread(self.notes.forget, target, entry.text)
        self._mirror(NoteChange(target, "remove", entry.text, ""))
        return Forgotten()

    async def sources(self, entry: Remembering) -> Sequence[FactSource]:
        """What a fact was learnt from; a note does not know."""
        provider = self._provider
        if entry.target is not None or provider is None:
            return ()
        fact = Fact(entry.id, entry.text, entry.at, entry.origin)
        return await self._ask(
            "fact_sources", lambda plugin: plugin.fact_sources(self._notebook, fact), "where it comes from"
        )

    async def changes(self, entry: Remembering, *, undo: bool = False) -> Sequence[FactChange]:
        """What a fact changed, was changed by or contradicts; a note is only corrected. With `undo` both sides hold."""
        provider = self._provider
        if entry.target is not None or provider is None:
            return ()
        fact = Fact(entry.id, entry.text, entry.at, entry.origin)
        return await self._ask(
            "fact_changes", lambda plugin: plugin.fact_changes(self._notebook, fact, undo=undo), "what it changed"
        )

    async def late(self, entry: Remembering, sources: Sequence[FactSource]) -> Sequence[FactSource]:
        """What the person said of a fact, beside its sources, that the provider may not have read yet: it goes too."""
        provider = self._provider
        if entry.target is not None or provider is None:
            return ()
        name, now, store = provider.name, self._store.clock.now(), self._store
        found = await store.read(lambda tx: find_late(store, tx, name, self._notebook, entry.text, now=now))
        known = {(source.session_id, source.text) for source in sources}
        late = [FactSource(one.content or "", one.timestamp, one.session_id) for one in found]
        return [one for one in late if (one.session_id, one.text) not in known]

    async def titles(self, sources: Sequence[FactSource]) -> dict[str, str]:
        """What the sessions are called, by id, in which these were said; for the owner alone, who may name them."""
        if self.notes.scope != OWNER:
            return {}
        ids, sessions = {source.session_id for source in sources if source.session_id}, self._store.sessions
        found = await self._store.read(lambda tx: [sessions.look_up(tx, session_id) for session_id in ids])
        return {one.id: one.title for one in found if one is not None and one.title}

    async def replies(self, sources: Sequence[FactSource]) -> list[str]:
        """What was replied to these here: it is forgotten with them."""
        turns = await self._store.read(lambda tx: find_source_turns(self._store, tx, sources))
        return [text for one in turns for text in one.replies]

    async def corrected_from(self, entry: Remembering) -> list[tuple[str, float]]:
        """What the entry said before a person corrected it, and when that was."""
        rows = await self._store.read(lambda tx: corrections_of(tx, self.notes.scope))
        return [(row.wrong, row.at) for row in rows if row.right and row.right == entry.text]

    def _noted(self) -> tuple[list[Remembering], tuple[str, ...]]:
        read = self.notes.read_all()
        problems = tuple(problem.line() for problem in read.problems)
        found = [
            Remembering(_note_id(target, text), text, read.changed.get(target), FILES[target], target)
            for target in NOTE_ORDER
            if target in read.texts
            for text in self.notes.entries(target)
        ]
        return list({one.id: one for one in found}.values()), problems

    async def _ask(self, hook: str, ask: Callable[[MemoryPlugin], Awaitable[Sequence[T]]], what: str) -> Sequence[T]:
        """What a hook lists. Raises ProviderError, in words, when it does not."""
        provider = self._provider
        assert provider is not None, "it was looked at before"
        found = await provider.call(hook, ask, (tuple, list), provider.within(provider.deadlines.tool), line="facts")
        if not isinstance(found, Returned):
            raise ProviderError(f"{provider.name} does not say {what}: {found.reason}", hint="")
        return list(found.value)

    async def _facts(self, query: FactQuery) -> Facts:
        provider = self._provider
        if provider is None:
            return Facts()
        deadline = provider.within(provider.deadlines.tool)
        found = await provider.call(
            "facts", lambda plugin: plugin.facts(self._notebook, query), Facts, deadline, line="facts"
        )
        if isinstance(found, Returned):
            return found.value
        why = next(iter(provider.health.failing().values()), found.reason)
        return Facts(remark=f"what {provider.name} holds is not shown: {hide_passwords(why)}")

    async def _change_fact(self, entry: Remembering, right: str, sources: Sequence[FactSource]) -> Forgotten:
        """Commit a fact's change with all that keeps the old one from coming back; then it is delivered."""
        provider, mirrored = self._provider, Mirrored(self.notes, self._notebook)
        assert provider is not None, "who lists facts has a provider"
        address = await provider.find_address(mirrored.place, self._notebook)
        spot, now, key = Spot(mirrored.place, self._notebook, address), self._store.clock.now(), secrets.token_hex(8)

        def commit(tx: Tx) -> tuple[str, list[TakenBack]]:
            taken: list[TakenBack] = []
            if right:
                keep_correction(tx, self.notes.scope, entry.text, right, now=now)
            else:
                self._keep_forgotten(tx, entry.text)
                late = find_late(self._store, tx, provider.name, self._notebook, entry.text, now=now)
                for turns in find_source_turns(self._store, tx, sources, late):
                    taken += leave_out(self._store, tx, turns, provider.name, key, now=now)
            mark_forgotten(tx, provider.name, now=now)
            data, whose = {"id": entry.id, "old": entry.text}, self._notebook.person
            ticket = provider.outbox.put(tx, spot, "correct", key, right, data, whose, now=now)
            if ticket is None:  # nothing of it is committed
                raise ProviderError(f"{provider.name} takes nothing at present", hint="`hermes memory status` says why")
            return ticket, taken

        ticket, taken = await self._store.write(commit)
        queued = [one for each in taken if each.provider == provider.name for one in each.queued]
        self._deliver()
        await provider.flush_all([spot.lane, *(one.lane for one in queued)], DELIVERED)
        tickets = [ticket, *(one.ticket for one in queued)]
        settled = await self._store.read(lambda tx: _settled(tx, provider.outbox.queue, tickets))
        return Forgotten(settled, tuple(_staying(provider.name, taken)))

    def _keep_forgotten(self, tx: Tx, text: str) -> None:
        """Nothing is to say it again; of records and remarks only those go that this person's conversations have."""
        scope = self.notes.scope
        keep_forgotten(tx, scope, text, fact_words, now=self._store.clock.now())
        drop_injections(tx, lambda held: text in held, self._store.search.sessions_within(tx, scope))
        drop_remarks(tx, lambda held: text in held, scope)

    def _mirror(self, change: NoteChange) -> None:
        if self._provider is not None:
            self._provider.mirror_soon(Mirrored(self.notes, self._notebook), change)
            self._deliver()


def _settled(tx: Tx, queue: str, tickets: Sequence[str]) -> Settled:
    """What became of all of them."""
    items = [find(tx, queue, ticket) for ticket in tickets]
    if any(item is not None and item.state == "dead" for item in items):
        return "refused"
    return "done" if all(item is not None and item.state == "done" for item in items) else "queued"


def _staying(current: str, taken: Sequence[TakenBack]) -> Iterator[str]:
    for one in taken:
        if one.stays:
            yield f"{one.provider} {NO_WAY}"
        elif one.queued and one.provider != current:
            yield f"{one.provider} {LATER}"


def _note_id(target: NotesFile, text: str) -> str:
    return f"{target}-{sha256(text.encode()).hexdigest()[:10]}"


def _fact(fact: Fact) -> Remembering:
    return Remembering(fact.id, fact.text, fact.at, fact.origin, until=fact.until)


def describe_change(one: FactChange) -> str:
    """Say what a fact changed, was changed by or contradicts, in a line."""
    day = "" if one.at is None else f"{datetime.fromtimestamp(one.at).astimezone():%d %b %Y}"
    text = " ".join(one.text.split())
    if one.is_contradiction:
        told = f"It contradicts what was said{' later' if one.is_newer else ''}: {text}"
    elif one.is_newer:
        told = f"It held until {day}; since then: {text}"
    else:
        told = f"It changed something on {day}; before, this held: {text}"
    return f"{told} (undone)" if one.is_undone else told
