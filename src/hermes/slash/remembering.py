"""`/memory`: list, correct and forget memory entries of this person by number; and incognito.
`/remember`, `/search` and `/forget` are short ways to the same.

A number always means the entry that it was last shown with, so that a command never changes another entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime

from hermes.agent.agent import Agent
from hermes.agent.loop import unless_stopped
from hermes.errors import UsageError
from hermes.memory.book import BookPage, Forgotten, MemoryBook, Remembering, describe_change
from hermes.memory.values import FactSource, Wording
from hermes.scope import OWNER, Group
from hermes.slash.context import Beginning, CommandContext, Word, read_number
from hermes.store.held_lease import LaneDoor

MAX_QUOTED_CHARS, MAX_ENTRY_CHARS = 40, 300
"""How much of a wrong argument, and of an entry, is shown."""
MAX_SOURCES = 5
INCOGNITO = "Incognito: from here on nothing is recalled, noted or sent to memory."
REMEMBERED = "Memory is on again. What was said incognito stays out of it for good."
UNCHANGED = "Stopped; memory is as it was."
WORDS = {
    "more": "The next entries.",
    "search": "Entries with all of these words.",
    "edit": "Correct an entry: its number, then what holds.",
    "forget": "Forget an entry for good: its number, or words to look for.",
    "why": "Where an entry comes from.",
    "undo": "Let an entry and what changed it both hold.",
    "on": "Recall, note and send again.",
    "off": "Incognito from here on.",
}
TAKES = "[more|search WORDS|edit N TEXT|forget N|why N|undo N|on|off]"
FACTS, ENDED = "Facts, from what was said:", "No longer so:"
"""Headings of a listing, below those of the notes."""
MAX_SEARCH_ROWS = 5
SAID = "Said in conversations:"
LEARNT_FROM = "It was learnt from:"
IN_INCOGNITO = "nothing is noted in an incognito conversation"
REMEMBERED_TEXT = "Noted: {}. `/forget` takes it out again."
HOW = "`/memory edit N TEXT` corrects an entry, `/memory forget N` forgets it, `/memory why N` says where it is from."
MORE = "There is more: `/memory more`."
NOT_LISTED = "`/memory` lists what there is, with numbers; `/memory search WORDS` what holds these words"
GROUPS = "what is noted in a group belongs to all of it: ask the agent to change it, or the owner"
GOING = "With it memory loses these messages, what it learnt from them alone, and a title that was made of them:"
ELSEWHERE = " Where it was said in other turns, `hermes memory forget WORDS` finds it."
OTHERS = " Another memory has the replies still."
OUTCOMES = {
    "done": "",
    "queued": " It is saved here, and reaches the memory server as soon as that answers.",
    "refused": " The memory server refused it: `hermes memory outbox list` says why.",
}


async def memory(here: CommandContext, text: str) -> str:
    word, _, rest = text.partition(" ")
    acts: dict[str, Callable[[CommandContext, MemoryBook, str], Coroutine[None, None, str]]] = {
        "": _list,
        "more": _list_more,
        "search": _search,
        "edit": _edit,
        "forget": _forget,
        "why": _why,
        "undo": _undo,
    }
    word, place = word.lower(), await here.place()
    if word in ("on", "off") and not rest:
        return await _set_incognito(place, word == "off", here.stop)
    if word not in acts:
        names = ", ".join(list(WORDS)[:-1])
        raise UsageError(f"/memory takes {names} or off, not '{text[:MAX_QUOTED_CHARS]}'", hint=NOT_LISTED)
    doing = acts[word](here, place.book, rest.strip())
    if word in ("edit", "forget", "undo"):  # what is begun is done: it takes a few seconds at most
        return await doing
    told = await unless_stopped(doing, here.stop)
    return UNCHANGED if told is None else told


async def remember(here: CommandContext, text: str) -> str:
    """Note something about the person, in their own words."""
    place = await here.place()
    if not text:
        raise UsageError("what shall be remembered?", hint="`/remember TEXT`")
    if isinstance(place.book.notes.scope, Group):
        raise UsageError(GROUPS)
    if await _is_incognito(place):
        raise UsageError(IN_INCOGNITO, hint="`/memory on` switches memory on again")
    return REMEMBERED_TEXT.format(_cut((await place.book.add(text)).text).rstrip("."))


async def search(here: CommandContext, text: str) -> str:
    """Search the memory, and the messages of sessions within the reach of this one."""
    place = await here.place()
    told = await unless_stopped(_search(here, place.book, text), here.stop)
    if told is None:
        return UNCHANGED
    hits = await place.book.search_said(text, MAX_SEARCH_ROWS)
    said = [f"- {_cut(hit.snippet)} ({_date(hit.message.timestamp)}, {hit.message.session_id})" for hit in hits]
    return "\n".join([told, "", SAID, *said]) if said else told


async def forget(here: CommandContext, text: str) -> str:
    """Forget an entry, by its number or by words that it holds."""
    place = await here.place()
    if not text:
        raise UsageError("what shall be forgotten?", hint="`/forget WORDS`, or `/forget N` with a number of `/memory`")
    return await _forget(here, place.book, text)


async def memory_words(_here: CommandContext, _typed: str) -> Sequence[Word]:
    return list(WORDS.items())


async def _list(here: CommandContext, book: MemoryBook, _: str) -> str:
    state = "off (incognito)" if await _is_incognito(await here.place()) else "on"
    told = await _show(book, None, "")
    return f"Memory is {state}.\n\n{told or '(nothing is noted yet)'}"


async def _search(here: CommandContext, book: MemoryBook, text: str) -> str:  # noqa: ARG001
    if not text:
        raise UsageError("which words?", hint="`/search WORDS`")
    return (
        await _show(book, Wording(tuple(text.split())), "") or f"Nothing holds all of this: {text[:MAX_QUOTED_CHARS]}"
    )


async def _list_more(here: CommandContext, book: MemoryBook, _: str) -> str:  # noqa: ARG001
    if book.going_on is None:
        raise UsageError("there is no more", hint=NOT_LISTED)
    words, after = book.going_on
    return await _show(book, words, after) or "There is no more."


async def _show(book: MemoryBook, words: Wording | None, after: str) -> str:
    """Show the next page and store the numbers of its entries; return "" for an empty page."""
    page = await book.page(words, after)
    first = len(book.shown) if after else 0
    entries = sorted(page.entries, key=lambda one: (one.target is None, bool(one.until)))
    book.shown = [*book.shown[:first], *entries]
    book.going_on = None if page.after is None else (words, page.after)
    lines, heading = list[str](), ""
    for number, one in enumerate(entries, start=first + 1):
        if (group := _group(book, one)) != heading:
            lines += [*([""] if heading else []), group]
            heading = group
        lines.append(f"{number}. {_cut(one.text)}{_since(one)}")
    ending = [*_remarks(book, page), *([HOW] if lines else []), *([MORE] if page.after is not None else [])]
    return "\n".join([*lines, *([""] if lines and ending else []), *ending])


def _group(book: MemoryBook, entry: Remembering) -> str:
    """The heading that an entry stands under. Where files are is the owner's business."""
    if entry.target is None:
        return ENDED if entry.until else FACTS
    place = str(book.notes.path(entry.target)) if book.notes.scope == OWNER else entry.origin
    return f"Notes in {place}:"


def _since(entry: Remembering) -> str:
    """Return the suffix of a fact: the day of its message, or until when it held."""
    if entry.target is not None:
        return ""
    when = f"until {_date(entry.until)}" if entry.until else _date(entry.at)
    return f" ({when})" if when else ""


def _origin(book: MemoryBook, entry: Remembering) -> str:
    """Return an entry's source in a line. Only the owner sees file paths."""
    if entry.target is None:
        ended = f"no longer so since {_date(entry.until)}" if entry.until else ""
        return ", ".join(filter(None, ("fact", entry.origin, _date(entry.at), ended)))
    place = str(book.notes.path(entry.target)) if book.notes.scope == OWNER else entry.origin
    return f"note in {place}" + (f", last changed {_date(entry.at)}" if entry.at else "")


def _remarks(book: MemoryBook, page: BookPage) -> Sequence[str]:
    if book.notes.scope == OWNER:
        return page.remarks
    return ["Some of it cannot be read now."] if page.remarks else []


async def _edit(here: CommandContext, book: MemoryBook, rest: str) -> str:
    number, _, text = rest.partition(" ")
    entry = _chosen(book, number)
    if not text.strip():
        if here.console is not None:
            here.console.offer_draft(f"/memory edit {number} {' '.join(entry.text.split())}")
        return f"`/memory edit {number} TEXT` says what holds instead of: {_cut(entry.text)}"
    settled = await book.correct(entry, text)
    _retire(book, entry)
    return f"Corrected. It said: {_cut(entry.text)}{OUTCOMES[settled]}"


async def _forget(here: CommandContext, book: MemoryBook, rest: str) -> str:
    number, _, sure = rest.partition(" ")
    if rest and not number.isdecimal():
        found = await _search(here, book, rest)
        if len(book.shown) != 1 or book.going_on is not None:
            return found
        number, sure = "1", ""
    entry = _chosen(book, number)
    sources = await book.sources(entry)
    if sure.strip() not in ("--yes", "yes"):
        sources = [*sources, *await book.late(entry, sources)]
        going = _going(sources, await book.replies(sources), await book.titles(sources))
        confirm = (
            f"`/memory forget {number} --yes` forgets it, `/memory edit {number} TEXT` corrects it instead. "
            "Your sessions keep what was said."
        )
        elsewhere = ELSEWHERE if book.notes.scope == OWNER else ""
        return "\n".join([f"This would be forgotten: {_cut(entry.text)}", *going, confirm + elsewhere])
    done = await book.forget(entry, sources)
    _retire(book, entry)
    place = await here.place()
    if isinstance(place, Agent):
        place.title_settled, place.given_title = False, None  # it may have been made of what is forgotten
    return f"Forgotten.{OUTCOMES[done.settled]}{_staying(book, sources, done)}"


def _staying(book: MemoryBook, sources: Sequence[FactSource], done: Forgotten) -> str:
    """Describe what stays elsewhere. Only the owner sees the names of providers."""
    stays = [source for source in sources if not source.can_go]
    left = f" {len(stays)} messages stay at the memory server, which cannot delete them." if stays else ""
    if book.notes.scope == OWNER:
        return left + "".join(f" {line}." for line in done.stays)
    return left + (OTHERS if done.stays else "")


def _going(sources: Sequence[FactSource], replies: Sequence[str], titles: Mapping[str, str]) -> list[str]:
    """Describe what is forgotten with a fact: the messages that it was learnt from, and the replies to them."""
    said = [_said(source, titles) for source in sources if source.can_go]
    going = said + [f"the reply: {_cut(text)}" for text in replies]
    lines = [f"   {line}" for line in going[:MAX_SOURCES]]
    if len(going) > MAX_SOURCES:
        lines.append(f"   and {len(going) - MAX_SOURCES} more")
    return [GOING, *lines] if lines else []


async def _why(here: CommandContext, book: MemoryBook, rest: str) -> str:  # noqa: ARG001
    entry = _chosen(book, rest)
    before = [
        f"You corrected it on {_date(at)}; it said: {_cut(wrong)}" for wrong, at in await book.corrected_from(entry)
    ]
    sources = list(await book.sources(entry))[:MAX_SOURCES]
    titles = await book.titles(sources)
    said = [LEARNT_FROM, *(f"   {_said(source, titles)}" for source in sources)] if sources else []
    changes = [describe_change(one) for one in await book.changes(entry)]
    return "\n".join([_cut(entry.text), f"{_origin(book, entry)}, id {entry.id}", *before, *changes, *said])


async def _undo(here: CommandContext, book: MemoryBook, rest: str) -> str:  # noqa: ARG001
    entry = _chosen(book, rest)
    undone = await book.changes(entry, undo=True)
    if not undone:
        return f"Nothing was changed by it, and it was not changed: {_cut(entry.text)}"
    others = [f"   {_cut(one.text)}" for one in undone[:MAX_SOURCES]]
    return "\n".join([f"Undone. Both hold: {_cut(entry.text)}", *others])


def _chosen(book: MemoryBook, number: str) -> Remembering:
    """Return the entry that was shown with a number. Raises UsageError."""
    if isinstance(book.notes.scope, Group):
        raise UsageError(GROUPS)
    place = read_number(number)
    if not 1 <= place <= len(book.shown):
        listed = f"1 to {len(book.shown)} are listed" if book.shown else "nothing is listed"
        raise UsageError(f"which entry? {listed}", hint=NOT_LISTED)
    found = book.shown[place - 1]
    if found is None:
        raise UsageError(f"entry {number} was changed since it was listed", hint=NOT_LISTED)
    return found


def _retire(book: MemoryBook, changed: Remembering) -> None:
    """Invalidate the number of a changed entry until the next listing."""
    book.shown = [None if one is changed else one for one in book.shown]


def _said(source: FactSource, titles: Mapping[str, str]) -> str:
    session = source.session_id or ""
    named = f" “{_cut(titles[session])}”" if session in titles else ""
    where = f"session {session}{named}" if session else ""
    return f"{_cut(source.text)} ({', '.join(filter(None, (where, _date(source.at))))})"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_ENTRY_CHARS else f"{line[: MAX_ENTRY_CHARS - 1]}…"


def _date(at: float | None) -> str:
    return "" if not at else f"{datetime.fromtimestamp(at).astimezone():%d %b %Y}"


async def _is_incognito(place: Agent | Beginning) -> bool:
    if isinstance(place, Beginning):
        return place.incognito
    store, session_id = place.store, place.session_id
    return await store.read(lambda tx: store.incognito.is_on(tx, session_id))


async def _set_incognito(place: Agent | Beginning, wanted: bool, stop: asyncio.Event) -> str:
    told = INCOGNITO if wanted else REMEMBERED
    if isinstance(place, Beginning):
        place.incognito = wanted
        return told
    store, session_id = place.store, place.session_id
    change = store.incognito.begin if wanted else store.incognito.end
    # Between turns: a reply that another process is waiting for belongs to the side of its question.
    async with LaneDoor(
        store, session_id, place.owner, place.policy.lane, lambda tx, _: change(tx, session_id)
    ) as door:
        async for _ in door.wait(stop):
            pass
        return UNCHANGED if door.entered is None else told
