"""The contents of memory about one person, to see, correct and forget: built-in notes, and the provider's facts.

    page ──> entries with ids ──> correct · forget ── one commit: protection against relearning, and the outbox row

A note's id is derived from its exact text, a fact has its provider's id: only entries as listed are changed.
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
from hermes.memory.forgetting import Retraction, mark_forgotten
from hermes.memory.likeness import fact_words
from hermes.memory.mirror import Mirrored, NoteChange
from hermes.memory.notes import FILES, Notes, NotesFile
from hermes.memory.outbox import Destination
from hermes.memory.plugin_thread import Returned
from hermes.memory.provider import MemoryPlugin
from hermes.memory.source_turns import exclude_turns, find_late, find_source_turns
from hermes.memory.values import Fact, FactChange, FactKind, FactQuery, Facts, FactSource, Notebook, Portrait, Wording
from hermes.redaction import hide_passwords
from hermes.scope import OWNER
from hermes.store.corrections import corrections_of, keep_correction, keep_forgotten
from hermes.store.injections import drop_injections
from hermes.store.reviews import drop_remarks
from hermes.store.search import HistoryHit
from hermes.store.store import Store

T = TypeVar("T")
SPEAKERS = ("user", "assistant")
MAX_PAGE_ENTRIES = 20
"""The default page size."""
MAX_FACT_CHARS = 2000
"""Limits a fact that a person writes."""
DELIVERY_WAIT_SECONDS = 5.0
"""How long a change waits for its delivery; it is saved either way."""
NOTE_ORDER: tuple[NotesFile, ...] = ("user", "memory")
EntryFilter: TypeAlias = FactKind | Literal["noted"]
"""A kind of entry to which a page may be limited."""
Settled = Literal["done", "queued", "refused"]
KEEPS_REPLIES = "received the replies and still has them: it does not delete single messages"
DELETES_REPLIES_LATER = "received the replies too, and deletes them when it is used again"


class Forgotten(Struct, frozen=True):
    """The result of forgetting. `stays` names what other providers still have."""

    settled: Settled = "done"
    stays: tuple[str, ...] = ()


class Remembering(Struct, frozen=True):
    """An entry of memory: a line of one of the two notes, or a fact of the provider."""

    id: str
    text: str
    at: float | None
    origin: str
    target: NotesFile | None = None
    """The note of the entry; None for a fact."""
    until: float | None = None
    """The end of a fact's validity; None for a current fact."""


class BookPage(Struct, frozen=True):
    """A page of entries. `after` is the cursor of the next page, if any; `remarks` say what could not be read."""

    entries: tuple[Remembering, ...] = ()
    after: str | None = None
    remarks: tuple[str, ...] = ()
    total: int | None = None
    """The number of all entries; None if unknown."""


class MemoryBook:
    """The memory of one person or group. Numbers of a listing refer to the entries as listed, even after changes."""

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
        """The last listing, in order; None for entries that were changed since."""
        self.going_on: tuple[Wording | None, str] | None = None
        """The filter and cursor of the last listing's next page."""
        self._store = store
        self._provider = provider
        self._notebook = notebook
        self._deliver = deliver

    async def page(
        self,
        words: Wording | None = None,
        after: str = "",
        limit: int = MAX_PAGE_ENTRIES,
        as_of: float | None = None,
        kind: EntryFilter | None = None,
    ) -> BookPage:
        """Return notes first, then facts that no note repeats; with `kind` only that kind."""
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
        """Return True if facts can be listed now."""
        return not (await self._facts(FactQuery(limit=1))).remark

    async def add(self, text: str) -> Remembering:
        """Note something about the person. Raises NoteError for an empty or too long entry."""
        noted = " ".join(text.split())
        if not noted or len(noted) > MAX_FACT_CHARS:
            raise NoteError(f"an entry has 1 to {MAX_FACT_CHARS} characters", hint="Say what holds")
        await asyncio.to_thread(self.notes.add, "user", noted)
        self._mirror(NoteChange("user", "add", "", noted))
        return Remembering(_note_id("user", noted), noted, self._store.clock.now(), FILES["user"], "user")

    async def search_said(self, text: str, limit: int) -> Sequence[HistoryHit]:
        """Return the messages of this person's conversations that fit a text best."""
        store, scope = self._store, self.notes.scope
        await store.index()
        return await store.read(lambda tx: store.search.related(tx, text, scope, limit=limit, roles=SPEAKERS))

    async def said_by(self, line: str, why: str) -> Sequence[Remembering]:
        """Return the facts behind a recalled line; `why` is its recorded source."""
        found = await self._facts(FactQuery(injected=(line, why)))
        if found.remark and not found.items:
            raise ProviderError(found.remark, hint="")
        return [_fact(one) for one in found.items]

    async def portraits(self) -> Sequence[Portrait]:
        """Return summaries of the person and the agent."""
        if self._provider is None:
            return ()
        return await self._ask("portraits", lambda plugin: plugin.portraits(self._notebook), "who it knows")

    async def find(self, entry_id: str) -> Remembering:
        """Return the entry with an id, or with a unique prefix of an id."""
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
        """Replace an entry's text for good. Raises NoteError for an empty or too long text."""
        right = " ".join(text.split())
        if not right or len(right) > MAX_FACT_CHARS:
            raise NoteError(f"an entry has 1 to {MAX_FACT_CHARS} characters", hint="Say what holds")
        if right == entry.text:
            return "done"
        if entry.target is None:
            return (await self._change_fact(entry, right, ())).settled
        target, now = entry.target, self._store.clock.now()
        noted = await asyncio.to_thread(self.notes.check_correct, target, entry.text, right)
        # Store the correction first: a note changed without it might be noted again with the old text.
        await self._store.write(lambda tx: keep_correction(tx, self.notes.scope, entry.text, noted, now=now))
        await asyncio.to_thread(self.notes.correct, target, entry.text, right)
        self._mirror(NoteChange(target, "replace", entry.text, noted))
        return "done"

    async def forget(self, entry: Remembering, sources: Sequence[FactSource] = ()) -> Forgotten:
        """Forget an entry for good; for a fact also the messages it was learnt from and the replies to them."""
        if entry.target is None:
            return await self._change_fact(entry, "", sources)
        target = entry.target
        await asyncio.to_thread(self.notes.check_forget, target, entry.text)
        # Store the protection first, as above.
        await self._store.write(lambda tx: self._keep_forgotten(tx, entry.text))
        await asyncio.to_thread(self.notes.forget, target, entry.text)
        self._mirror(NoteChange(target, "remove", entry.text, ""))
        return Forgotten()

    async def sources(self, entry: Remembering) -> Sequence[FactSource]:
        """Return the messages that a fact was learnt from; empty for a note."""
        provider = self._provider
        if entry.target is not None or provider is None:
            return ()
        fact = Fact(entry.id, entry.text, entry.at, entry.origin)
        return await self._ask(
            "fact_sources", lambda plugin: plugin.fact_sources(self._notebook, fact), "where it comes from"
        )

    async def changes(self, entry: Remembering, *, undo: bool = False) -> Sequence[FactChange]:
        """Return the facts that a fact changed, was changed by or contradicts; empty for a note. `undo` reverts these
        changes."""
        provider = self._provider
        if entry.target is not None or provider is None:
            return ()
        fact = Fact(entry.id, entry.text, entry.at, entry.origin)
        return await self._ask(
            "fact_changes", lambda plugin: plugin.fact_changes(self._notebook, fact, undo=undo), "what it changed"
        )

    async def late(self, entry: Remembering, sources: Sequence[FactSource]) -> Sequence[FactSource]:
        """Return further messages that state the fact and that the provider may not have read yet: they must go
        too."""
        provider = self._provider
        if entry.target is not None or provider is None:
            return ()
        name, now, store = provider.name, self._store.clock.now(), self._store
        found = await store.read(lambda tx: find_late(store, tx, name, self._notebook, entry.text, now=now))
        known = {(source.session_id, source.text) for source in sources}
        late = [FactSource(one.content or "", one.timestamp, one.session_id) for one in found]
        return [one for one in late if (one.session_id, one.text) not in known]

    async def titles(self, sources: Sequence[FactSource]) -> dict[str, str]:
        """Return the titles of the sources' sessions by id; only for the owner."""
        if self.notes.scope != OWNER:
            return {}
        ids, sessions = {source.session_id for source in sources if source.session_id}, self._store.sessions
        found = await self._store.read(lambda tx: [sessions.look_up(tx, session_id) for session_id in ids])
        return {one.id: one.title for one in found if one is not None and one.title}

    async def replies(self, sources: Sequence[FactSource]) -> list[str]:
        """Return the replies to these sources: they are forgotten with them."""
        turns = await self._store.read(lambda tx: find_source_turns(self._store, tx, sources))
        return [text for one in turns for text in one.replies]

    async def corrected_from(self, entry: Remembering) -> list[tuple[str, float]]:
        """Return the earlier texts of a corrected entry, with the times of correction."""
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
        """Return the list from a hook. Raises ProviderError if it fails."""
        provider = self._provider
        assert provider is not None, "callers check for a provider"
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
        """Commit a fact's change together with its protection against relearning, then deliver it."""
        provider, mirrored = self._provider, Mirrored(self.notes, self._notebook)
        assert provider is not None, "who lists facts has a provider"
        address = await provider.find_address(mirrored.place, self._notebook)
        destination, now, key = (
            Destination(mirrored.place, self._notebook, address),
            self._store.clock.now(),
            secrets.token_hex(8),
        )

        def commit(tx: Tx) -> tuple[str, list[Retraction]]:
            taken: list[Retraction] = []
            if right:
                keep_correction(tx, self.notes.scope, entry.text, right, now=now)
            else:
                self._keep_forgotten(tx, entry.text)
                late = find_late(self._store, tx, provider.name, self._notebook, entry.text, now=now)
                for turns in find_source_turns(self._store, tx, sources, late):
                    taken += exclude_turns(self._store, tx, turns, provider.name, key, now=now)
            mark_forgotten(tx, provider.name, now=now)
            data, whose = {"id": entry.id, "old": entry.text}, self._notebook.person
            ticket = provider.outbox.put(tx, destination, "correct", key, right, data, whose, now=now)
            if ticket is None:  # the commit is rolled back
                raise ProviderError(f"{provider.name} takes nothing at present", hint="`hermes memory status` says why")
            return ticket, taken

        ticket, taken = await self._store.write(commit)
        queued = [one for each in taken if each.provider == provider.name for one in each.queued]
        self._deliver()
        await provider.flush_all([destination.lane, *(one.lane for one in queued)], DELIVERY_WAIT_SECONDS)
        tickets = [ticket, *(one.ticket for one in queued)]
        settled = await self._store.read(lambda tx: _settled(tx, provider.outbox.queue, tickets))
        return Forgotten(settled, tuple(_staying(provider.name, taken)))

    def _keep_forgotten(self, tx: Tx, text: str) -> None:
        """Store the protection against relearning, and drop records and notices with the text in this person's
        conversations."""
        scope = self.notes.scope
        keep_forgotten(tx, scope, text, fact_words, now=self._store.clock.now())
        drop_injections(tx, lambda held: text in held, self._store.search.sessions_within(tx, scope))
        drop_remarks(tx, lambda held: text in held, scope)

    def _mirror(self, change: NoteChange) -> None:
        if self._provider is not None:
            self._provider.mirror_soon(Mirrored(self.notes, self._notebook), change)
            self._deliver()


def _settled(tx: Tx, queue: str, tickets: Sequence[str]) -> Settled:
    """Return the common outcome of these entries."""
    items = [find(tx, queue, ticket) for ticket in tickets]
    if any(item is not None and item.state == "dead" for item in items):
        return "refused"
    return "done" if all(item is not None and item.state == "done" for item in items) else "queued"


def _staying(current: str, taken: Sequence[Retraction]) -> Iterator[str]:
    for one in taken:
        if one.stays:
            yield f"{one.provider} {KEEPS_REPLIES}"
        elif one.queued and one.provider != current:
            yield f"{one.provider} {DELETES_REPLIES_LATER}"


def _note_id(target: NotesFile, text: str) -> str:
    return f"{target}-{sha256(text.encode()).hexdigest()[:10]}"


def _fact(fact: Fact) -> Remembering:
    return Remembering(fact.id, fact.text, fact.at, fact.origin, until=fact.until)


def describe_change(one: FactChange) -> str:
    """Describe in one line what a fact changed, was changed by or contradicts."""
    day = "" if one.at is None else f"{datetime.fromtimestamp(one.at).astimezone():%d %b %Y}"
    text = " ".join(one.text.split())
    if one.is_contradiction:
        line = f"It contradicts what was said{' later' if one.is_newer else ''}: {text}"
    elif one.is_newer:
        line = f"It held until {day}; since then: {text}"
    else:
        line = f"It changed something on {day}; before, this held: {text}"
    return f"{line} (undone)" if one.is_undone else line
