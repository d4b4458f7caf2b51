"""The memory of one conversation: the only thing that a turn knows of a provider.

    accept ──said(tx)──> recall ──> model ↔ tools ──replied(tx)──> turn_over ──> after_turn (off the turn)

`said`, `replied` and what is noted become rows of the outbox, written in the turn's own commits; the rest are questions
to the provider's session, each within its deadline. `until` is loop time (`asyncio`), `wall` the same moment by the
store's clock, which is what a plugin is told.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from hermes.db.engine import Tx
from hermes.fence import disarm
from hermes.memory.active import ActiveProvider
from hermes.memory.book import MemoryBook
from hermes.memory.forgetting import forgotten_at, replies_marked_at, without_forgotten
from hermes.memory.health import Lateness, Told
from hermes.memory.mirror import Action, Mirrored, NoteChange, notebook_of
from hermes.memory.notes import Notes
from hermes.memory.offered import usable_tools
from hermes.memory.plugin_thread import HookResult, Missed, Returned
from hermes.memory.session_caller import SessionCaller
from hermes.memory.values import Conversation, Ending, Part, Question, Recalled, Said, Speaker, ToolUse, speaker_of
from hermes.store.injections import InjectedPart, Injection, keep_injection
from hermes.store.memory_rows import get_health
from hermes.store.store import Store
from hermes.types import Json, Message, RecalledLine, ToolSpec

BLOCK, RECALL, RESULT = 16_000, 32_000, 64_000
"""Characters that a provider may bring; more would crowd the conversation out of the model's window."""
MAX_SOURCES, MAX_SOURCE_CHARS = 200, 500
MAX_LINES = 200
DELEGATED = 16_000
"""Characters of a task, and of its result, that a provider is told."""
NOTHING = type(None)
LATEST = 32503680000.0
"""The year 3000 in seconds: a larger time or number from a plugin is dropped."""


class Recall(Struct, frozen=True):
    """What memory brought for one turn; `missed` says why something is not there that should be."""

    text: str = ""
    missed: str | None = None
    lines: tuple[RecalledLine, ...] = ()


class Memory:
    """The memory of one agent: a session of the active provider, or none. The session is opened with the first turn
    that memory may know of, and closed once."""

    def __init__(self, provider: ActiveProvider, conversation: Conversation, notes: Notes) -> None:
        self.provider = provider
        self._notes = notes
        self._caller = SessionCaller(provider, conversation, notes)
        self._told = Told(provider.name)
        self._turn = 1
        self._speaker = conversation.person or Speaker()
        self._closed = False
        # Values when the turn began; compared at its end, to see whether something was forgotten meanwhile.
        self._forgotten_at = self._replies_marked_at = 0.0
        self._fetched_since = 0.0
        """What was fetched before then is not recalled. Never later than the turn's beginning, also when the clock was
        ahead while something was forgotten."""
        self._late = Lateness()
        self._may_know = False
        """Whether this home has told the provider anything yet."""
        self._injection: Injection | None = None
        """What was recalled for the turn that is under way, until it is recorded."""

    @property
    def name(self) -> str:
        """How `memory.provider` calls it."""
        return self.provider.name

    @property
    def state(self) -> Literal["off", "ok", "failing"]:
        """What a status line shows: 'off' when the provider accepts no kind of entry."""
        opened = self._caller.opened
        if opened is not None and not opened.address.wants:
            return "off"
        return "failing" if self._failing() else "ok"

    def take_notices(self) -> list[str]:
        """What the owner should hear now: once when something starts to fail and once when it works again. Guests and
        groups hear nothing of it."""
        if self._caller.conversation.reach != "everything":
            return []
        failing = self._failing()
        late = self._late.news(failing)
        # After close nothing is tried, so an empty failure list does not mean it recovered.
        return late + self._told.news({**self._told.failing, **failing} if self._closed else failing)

    def open_book(self, store: Store, notes: Notes) -> MemoryBook:
        """What memory holds about the person or group of this conversation."""
        return MemoryBook(store, notes, self.provider, notebook_of(notes.scope, self._caller.conversation))

    # What a turn writes, inside its own commits.

    def said(self, tx: Tx, messages: Sequence[Message]) -> None:
        """Record what people said, with who said it."""
        if not messages:
            return
        self._caller.hide_title(tx)
        spoken = [(message, self._speaker_of(message)) for message in messages]
        self._turn = self.provider.outbox.said(tx, self._caller.spot, spoken, now=self._clock_now())
        self._forgotten_at = forgotten_at(tx, self.provider.name)
        self._replies_marked_at = replies_marked_at(tx, self.provider.name)
        self._fetched_since = min(self._forgotten_at, self._clock_now())
        self._may_know = get_health(tx, self.provider.name).last_success is not None
        self._speaker = spoken[-1][1]
        self._caller.asked = tuple(message.id for message in messages)

    async def ask_only(self, turn: int) -> None:
        """A turn begins that the provider is asked about and never told of: the so many-th of its conversation."""

        def look(tx: Tx) -> tuple[float, bool]:
            known = get_health(tx, self.provider.name).last_success is not None
            return forgotten_at(tx, self.provider.name), known

        forgotten, self._may_know = await self.provider.store.read(look)
        self._turn, self._fetched_since = turn, min(forgotten, self._clock_now())

    def replied(self, tx: Tx, message: Message) -> None:
        """Record a reply, or as much of it as was kept when the person stopped it. When the owner had words forgotten
        since the turn began, the reply may hold them and stays out of memory."""
        outbox, spot, now = self.provider.outbox, self._caller.spot, self._clock_now()
        if replies_marked_at(tx, self.provider.name) != self._replies_marked_at:
            self.provider.store.incognito.leave_out(tx, spot.place, message.id)
            outbox.turn_over(tx, spot, self._turn, now=now)
        else:
            outbox.replied(tx, spot, message, self._turn, now=now)
        self._caller.asked = ()
        self._record(tx)

    # What a turn asks, while a person waits.

    def begin(self) -> float:
        """A turn begins: the loop time (`until`) by which all its questions to the provider must have ended."""
        deadlines = self.provider.deadlines
        return _in(deadlines.first_turn if self._turn == 1 else deadlines.turn)

    async def prompt_block(self, until: float) -> str | None:
        """The session's text for the system prompt; None when it cannot be had now."""
        opened = await self._caller.open(until)
        if opened is None:
            return None
        self._report("prompt_block", _longer(BLOCK)(opened.block))
        return opened.block[:BLOCK]

    async def tools(self, until: float, taken: Collection[str] = ()) -> tuple[ToolSpec, ...]:
        """The session's tools; those that are malformed or named like one of `taken` are left out and reported."""
        opened = await self._caller.open(until)
        if opened is None:
            return ()
        good, problem = usable_tools(opened.tools, taken)
        self._report("tools", problem)
        return good

    async def recall(self, messages: Sequence[Message], until: float, *, is_read: bool = True) -> Recall:
        """What to recall for this turn. It is recorded with the turn. `is_read`: the reply goes by it, so the person
        hears of it when it is late; not while the provider cannot know anything from here."""
        begun = _in(0)
        found = await self._recall(messages, until)
        recalled = found.value if isinstance(found, Returned) else Recalled(missed={"recall": found.reason})
        recalled = without_forgotten(recalled, self._fetched_since)
        parts = tuple(_recorded(part) for part in recalled.parts if _is_part(part))
        missed = {_storable(str(name), 100): _storable(str(why), 300) for name, why in recalled.missed.items()}
        self._injection = Injection(
            self._caller.conversation.session_id,
            self._turn,
            messages[-1].id if messages else 0,
            self.provider.name,
            self._clock_now(),
            _in(0) - begun,
            parts,
            missed,
        )
        said = "; ".join(f"{name}: {why}" for name, why in missed.items())
        text = _joined(recalled)[:RECALL]
        self._late.recalled(text, missed=bool(missed) and is_read and self._may_know)
        return Recall(text, said or None, _lines(recalled))

    async def call_tool(self, name: str, arguments: Mapping[str, Json], key: str) -> HookResult[str]:
        """Run one of the session's tools. Missed says what failed."""
        until = _in(self.provider.deadlines.tool)
        if await self._caller.open(until) is None:
            return Missed("the provider's session is not open", skipped=True)
        use, speaker = ToolUse(name, arguments, key, self.provider.wall(until)), self._speaker
        call = methodcaller("call_tool", use, speaker)
        # A line of its own: what only writes the outbox waits neither for a late recall nor for another tool.
        found = await self._caller.ask("call_tool", call, str, until, line=f"tool:{name}", flaw=_longer(RESULT))
        return Returned(found.value[:RESULT]) if isinstance(found, Returned) else found

    # What happens at the end of a turn, and off it.

    async def turn_over(self) -> None:
        """A turn has ended. Outbox rows held back until the reply are released if there was none. With the pace "turn"
        this waits until the turn's rows are delivered, within the deadline `delivered`."""
        spot, turn, provider = self._caller.spot, self._turn, self.provider
        if spot.asked:
            self._caller.asked = ()
            now = self._clock_now()

            def let_go(tx: Tx) -> None:
                provider.outbox.turn_over(tx, spot, turn, now=now)
                self._record(tx)

            await provider.write_beside(let_go, "letting a question go")
        provider.wake.set()
        if spot.address is not None and spot.address.pace == "turn":
            await self.flush(provider.deadlines.delivered)

    def after_turn(self, messages: Sequence[Message]) -> None:
        """Have the session prepare the next recall, off the turn."""
        if self._caller.opened is not None:
            self._caller.prepare(self._question(messages, _in(self.provider.deadlines.prepare)))

    def note_written(self, target: Literal["memory", "user"], action: Action, text: str) -> None:
        """A built-in note changed: mirror it, off the turn. A crash in between is made up for at the next start."""
        old, new = (text, "") if action == "remove" else ("", text)
        mirrored = Mirrored.of(self._notes, self._caller.conversation)
        self.provider.mirror_soon(mirrored, NoteChange(target, action, old, new))

    async def delegated(self, task: str, result: str) -> None:
        """Record a sub-agent's work, unless the session was deleted meanwhile."""
        spot, key, now, store = self._caller.spot, secrets.token_hex(8), self._clock_now(), self.provider.store
        text, data = result[:DELEGATED], {"task": task[:DELEGATED]}

        def record(tx: Tx) -> None:
            if store.sessions.exists(tx, spot.place):
                self.provider.outbox.put(tx, spot, "delegation", key, text, data, None, now=now)

        await store.write(record)

    async def before_compress(self, messages: Sequence[Message]) -> None:
        """Give an open session a last look at what leaves the window, and deliver what waits, in one deadline."""
        until = _in(self.provider.deadlines.compress)
        wall = self.provider.wall(until)
        if self._caller.opened is not None:
            await self._caller.ask(
                "before_compress", lambda session: session.before_compress(messages, wall), NOTHING, until
            )
        await self._release()
        await self.flush(until - _in(0))

    async def retitled(self, title: str) -> None:
        self._caller.conversation = replace(self._caller.conversation, title=title)
        if self._caller.opened is not None:
            until = _in(self.provider.deadlines.turn)
            await self._caller.ask("retitled", lambda session: session.retitled(title), NOTHING, until)

    async def flush(self, seconds: float) -> None:
        """Wait, at most so many seconds, until the due outbox rows of this conversation have been delivered."""
        await self.provider.flush(self._caller.spot.lane, seconds)

    async def undoing(self) -> None:
        """Something is about to be taken back: keep what the provider wants of this conversation now, which may be more
        than when it was asked last."""
        spot, now, outbox = self._caller.spot, self._clock_now(), self.provider.outbox
        address = spot.address or await self.provider.find_address(spot.place, spot.about)

        def keep(tx: Tx) -> None:
            outbox.settle_known(tx, replace(spot, address=address), now=now)

        if address is not None:
            await self.provider.write_beside(keep, "keeping an address")

    async def undone(self, lanes: Iterable[str]) -> None:
        """Something was taken back: have the provider hear of it at once, within the deadline of a turn."""
        await self.provider.flush_all(lanes, self.provider.deadlines.turn)

    async def settle(self) -> None:
        """Return when all work off the turn has ended."""
        await self._caller.prepared()
        await self.provider.background.settle()

    async def close(self, why: Ending = "exit") -> None:
        """Close the provider's session, within the deadline. What was held back is released: it needs no session."""
        if self._closed:
            return
        self._closed = True
        until = _in(self.provider.deadlines.close)
        if why not in ("deleted", "settings"):
            await self._release()
        await self._caller.close(why, until)

    async def _recall(self, messages: Sequence[Message], until: float) -> HookResult[Recalled]:
        if await self._caller.open(until) is None:
            return Missed("the provider's session is not open", skipped=True)
        question = self._question(messages, until)
        return await self._caller.ask("recall", lambda session: session.recall(question), Recalled, until, flaw=_flaw)

    def _record(self, tx: Tx) -> None:
        """Record what was recalled for the turn, once; not when something was forgotten since, which may be in it."""
        made, self._injection = self._injection, None
        if made is not None and forgotten_at(tx, self.provider.name) == self._forgotten_at:
            keep_injection(tx, made)

    async def _release(self) -> None:
        spot, outbox, now = self._caller.spot, self.provider.outbox, self._clock_now()
        if spot.address is not None and (spot.asked or spot.address.pace not in ("async", "turn")):
            await self.provider.write_beside(lambda tx: outbox.release(tx, spot, now=now), "letting entries go")
            self.provider.wake.set()

    def _report(self, hook: str, flaw: str) -> None:
        found: HookResult[None] = Missed(f"{hook} has {flaw}") if flaw else Returned(None)
        self.provider.report(hook, found, self._caller.conversation.session_id)

    def _failing(self) -> dict[str, str]:
        return self.provider.health.failing(self._caller.conversation.session_id)

    def _speaker_of(self, message: Message) -> Speaker:
        return speaker_of(self._caller.conversation.person, message, is_owner=bool(message.author_is_owner))

    def _question(self, messages: Sequence[Message], until: float) -> Question:
        said = tuple(Said(message.content or "", self._speaker_of(message)) for message in messages)
        return Question(said, self._turn, self.provider.wall(until), self._fetched_since)

    def _clock_now(self) -> float:
        return self.provider.store.clock.now()


def _joined(recalled: Recalled) -> str:
    return "\n\n".join(part.text for part in recalled.parts if _is_part(part) and part.text)


def _is_part(part: object) -> bool:
    """Whether a plugin gave what it should."""
    return isinstance(part, Part) and type(part.text) is str


def _is_line(line: object) -> bool:
    """Whether a plugin gave what it should."""
    return isinstance(line, RecalledLine) and type(line.text) is str


def _lines(recalled: Recalled) -> tuple[RecalledLine, ...]:
    """What was recalled as data. A plugin that gives none has its text split into lines."""
    given = [replace(line, text=disarm(line.text)) for line in recalled.lines if _is_line(line)]
    split = (line.strip().lstrip("-*• ") for line in _joined(recalled)[:RECALL].splitlines() if line[:1] != "#")
    return tuple(given or (RecalledLine(line) for line in split if line))[:MAX_LINES]


def _recorded(part: Part) -> InjectedPart:
    """A part as it is kept. A plugin may give anything for a number."""
    as_of, tokens, cut = map(_number, (part.as_of, part.tokens, part.cut))
    layer, text = _storable(str(part.layer), 100), _storable(part.text, RECALL)
    sources, left_out = map(_texts, (part.sources, part.left_out))
    return InjectedPart(layer, text, as_of, int(tokens or 0), int(cut or 0), sources, left_out)


def _texts(given: object) -> tuple[str, ...]:
    """Lines that a row can hold, not too many of them."""
    listed = given[:MAX_SOURCES] if isinstance(given, tuple | list) else ()
    return tuple(_storable(str(line), MAX_SOURCE_CHARS) for line in listed)


def _number(value: object) -> float | None:
    """A number that a row can hold; None for what is none."""
    return float(value) if isinstance(value, int | float) and -LATEST < value < LATEST else None


def _storable(text: str, most: int) -> str:
    """A text that a row can hold."""
    return text[:most].encode("utf-8", "replace").decode()


def _flaw(recalled: Recalled) -> str:
    if not all(map(_is_part, recalled.parts)):
        return "something that is no Part"
    return _longer(RECALL)(_joined(recalled))


def _longer(than: int) -> Callable[[str], str]:
    return lambda text: f"{len(text)} characters, {than} are used" if len(text) > than else ""


def _in(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds
