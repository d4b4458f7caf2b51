"""The memory of one conversation: the only thing that a turn knows of a provider.

    accept ──said(tx)──> recall ──> model ↔ tools ──replied(tx)──> turn_over ──> after_turn (off the turn)

`said`, `replied` and what is noted become rows of the outbox, written in the turn's own commits; the rest are questions
to the provider's session, each within its deadline: `Memory` asks its `ActiveProvider`, which asks the `PluginThread`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hermes.db.engine import Tx
from hermes.errors import StoreError
from hermes.memory.active import ActiveProvider
from hermes.memory.book import MemoryBook
from hermes.memory.deadline import Deadline
from hermes.memory.forgetting import forgotten_at, replies_marked_at, without_forgotten
from hermes.memory.health import Lateness, Told
from hermes.memory.mirror import Action, Mirrored, NoteChange, notebook_of
from hermes.memory.notes import Notes
from hermes.memory.offered import (
    MAX_RECALL_CHARS,
    OpenedMemory,
    excess,
    opened_flaw,
    recall_flaw,
    recall_lines,
    recall_text,
    storable_parts,
    storable_reasons,
    usable_tools,
)
from hermes.memory.outbox import Spot
from hermes.memory.plugin_thread import Expected, HookResult, Missed, Returned
from hermes.memory.provider import MemoryPlugin, MemorySession
from hermes.memory.values import Conversation, Ending, Question, Recalled, Said, Speaker, ToolUse, speaker_of
from hermes.store.injections import Injection, keep_injection
from hermes.store.memory_rows import find_place, get_health, told_title
from hermes.store.store import Store
from hermes.types import Json, Message, RecalledLine, ToolSpec

T = TypeVar("T")
MAX_BLOCK_CHARS, MAX_RESULT_CHARS = 16_000, 64_000
"""Characters that a provider may bring; more would crowd the conversation out of the model's window."""
MAX_DELEGATED_CHARS = 16_000
"""Characters of a task, and of its result, that a provider is told."""
NOTHING = type(None)
NOT_OPEN = Missed("the provider's session is not open", skipped=True)


class Recall(Struct, frozen=True):
    """What memory brought for one turn; `missed` says why something is not there that should be."""

    text: str = ""
    missed: str | None = None
    recalled: Recalled = Recalled()

    @property
    def lines(self) -> tuple[RecalledLine, ...]:
        """The same as data."""
        return recall_lines(self.recalled)


class Memory:
    """The memory of one agent: a session of the active provider, or none. The session is opened with the first turn
    that memory may know of, and closed once."""

    def __init__(self, provider: ActiveProvider, conversation: Conversation, notes: Notes) -> None:
        self.provider = provider
        self._conversation = conversation
        self._notes = notes
        self._opened: OpenedMemory | None = None
        self._opening: asyncio.Task[None] | None = None
        self._usable: tuple[frozenset[str], tuple[ToolSpec, ...], str] | None = None
        """The session's tools that can be offered beside others, and what is wrong with the rest."""
        self._given_up: Deadline | None = None
        """The deadline of the turn that goes on without a session."""
        self._preparing: asyncio.Task[None] | None = None
        self._next: list[Question | None] = []
        self._asked: tuple[int, ...] = ()
        """The messages of the turn that is under way, which has no reply yet."""
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
        if self._opened is not None and not self._opened.address.wants:
            return "off"
        return "failing" if self._failing() else "ok"

    def take_notices(self) -> list[str]:
        """What the owner should hear now: once when something starts to fail and once when it works again. Guests and
        groups hear nothing of it."""
        if self._conversation.reach != "everything":
            return []
        failing = self._failing()
        late = self._late.news(failing)
        # After close nothing is tried, so an empty failure list does not mean it recovered.
        return late + self._told.news({**self._told.failing, **failing} if self._closed else failing)

    def open_book(self, store: Store, notes: Notes) -> MemoryBook:
        """What memory holds about the person or group of this conversation."""
        return MemoryBook(store, notes, self.provider, notebook_of(notes.scope, self._conversation))

    # What a turn writes, inside its own commits.

    def said(self, tx: Tx, messages: Sequence[Message]) -> None:
        """Record what people said, with who said it."""
        if not messages:
            return
        if self._opened is None and self._conversation.title is not None:  # it may have been given incognito
            title = told_title(tx, self._conversation.session_id, self._conversation.title)
            self._conversation = replace(self._conversation, title=title)
        spoken = [(message, self._speaker_of(message)) for message in messages]
        self._turn = self.provider.outbox.said(tx, self._spot, spoken, now=self._clock_now())
        self._forgotten_at = forgotten_at(tx, self.provider.name)
        self._replies_marked_at = replies_marked_at(tx, self.provider.name)
        self._fetched_since = min(self._forgotten_at, self._clock_now())
        self._may_know = get_health(tx, self.provider.name).last_success is not None
        self._speaker = spoken[-1][1]
        self._asked = tuple(message.id for message in messages)

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
        outbox, spot, now = self.provider.outbox, self._spot, self._clock_now()
        if replies_marked_at(tx, self.provider.name) != self._replies_marked_at:
            self.provider.store.incognito.leave_out(tx, spot.place, message.id)
            outbox.turn_over(tx, spot, self._turn, now=now)
        else:
            agent = self._speaker if self._speaker.is_agent else None
            outbox.replied(tx, spot, message, self._turn, now=now, agent=agent)
        self._asked = ()
        self._record(tx)

    # What a turn asks, while a person waits.

    def begin(self) -> Deadline:
        """A turn begins: by when all its questions to the provider must have ended."""
        deadlines = self.provider.deadlines
        return self.provider.within(deadlines.first_turn if self._turn == 1 else deadlines.turn)

    async def prompt_block(self, deadline: Deadline, *, with_tools: bool = True) -> str | None:
        """The session's text for the system prompt; None when it cannot be had now."""
        opened = await self._open(deadline)
        if opened is None:
            return None
        plain = opened.block_without_tools
        block = opened.block if with_tools or plain is None else plain
        self._report("prompt_block", excess(block, MAX_BLOCK_CHARS))
        return block[:MAX_BLOCK_CHARS]

    async def tools(self, deadline: Deadline, taken: Collection[str] = ()) -> tuple[ToolSpec, ...]:
        """The session's tools; those that are malformed or named like one of `taken` are left out and reported."""
        opened = await self._open(deadline)
        if opened is None:
            return ()
        if self._usable is None or self._usable[0] != taken:
            self._usable = (frozenset(taken), *usable_tools(opened.tools, taken))
        self._report("tools", self._usable[2])
        return self._usable[1]

    async def recall(self, messages: Sequence[Message], deadline: Deadline, *, is_read: bool = True) -> Recall:
        """What to recall for this turn. It is recorded with the turn. `is_read`: the reply goes by it, so the person
        hears of it when it is late; not while the provider cannot know anything from here."""
        left = deadline.seconds_left()
        question = self._question(messages, deadline)
        found: HookResult[Recalled] = NOT_OPEN
        if await self._open(deadline) is not None:
            self.provider.turn_recalls(self._conversation.session_id)
            ask = methodcaller("recall", question)
            found = await self._ask("recall", ask, Recalled, deadline, flaw=recall_flaw)
        recalled = found.value if isinstance(found, Returned) else Recalled(missed={"recall": found.reason})
        recalled = without_forgotten(recalled, self._fetched_since)
        missed = storable_reasons(recalled.missed)
        self._injection = Injection(
            self._conversation.session_id,
            self._turn,
            messages[-1].id if messages else 0,
            self.provider.name,
            self._clock_now(),
            left - deadline.seconds_left(),
            storable_parts(recalled.parts),
            missed,
        )
        text = recall_text(recalled.parts)[:MAX_RECALL_CHARS]
        self._late.recalled(text, missed=bool(missed) and is_read and self._may_know)
        said = "; ".join(f"{name}: {why}" for name, why in missed.items())
        return Recall(text, said or None, recalled)

    async def call_tool(self, name: str, arguments: Mapping[str, Json], key: str) -> HookResult[str]:
        """Run one of the session's tools. Missed says what failed."""
        deadline = self.provider.within(self.provider.deadlines.tool)
        if await self._open(deadline) is None:
            return NOT_OPEN
        call = methodcaller("call_tool", ToolUse(name, arguments, key, deadline.wall_time), self._speaker)
        found = await self._ask(
            "call_tool",
            call,
            str,
            deadline,
            # A line of its own: what only writes the outbox waits neither for a late recall nor for another tool.
            line=f"tool:{name}",
            flaw=lambda text: excess(text, MAX_RESULT_CHARS),
        )
        return Returned(found.value[:MAX_RESULT_CHARS]) if isinstance(found, Returned) else found

    # What happens at the end of a turn, and off it.

    async def turn_over(self) -> None:
        """A turn has ended. Outbox rows held back until the reply are released if there was none. With the pace "turn"
        this waits until the turn's rows are delivered, within the deadline `delivered`."""
        spot, turn, provider = self._spot, self._turn, self.provider
        if spot.asked:
            self._asked = ()
            now = self._clock_now()

            def let_go(tx: Tx) -> None:
                provider.outbox.turn_over(tx, spot, turn, now=now)
                self._record(tx)

            await provider.write_beside(let_go, "letting a question go")
        provider.turn_over(self._conversation.session_id)
        if spot.address is not None and spot.address.pace == "turn":
            await self.flush(provider.deadlines.delivered)

    def after_turn(self, messages: Sequence[Message]) -> None:
        """Have the session prepare the next recall, off the turn."""
        if self._opened is not None:
            self._prepare(self._question(messages, self.provider.within(self.provider.deadlines.prepare)))

    def note_written(self, target: Literal["memory", "user"], action: Action, text: str) -> None:
        """A built-in note changed: mirror it, off the turn. A crash in between is made up for at the next start."""
        old, new = (text, "") if action == "remove" else ("", text)
        mirrored = Mirrored.of(self._notes, self._conversation)
        self.provider.mirror_soon(mirrored, NoteChange(target, action, old, new))

    async def delegated(self, task: str, result: str) -> None:
        """Record a sub-agent's work, unless the session was deleted meanwhile."""
        spot, key, now, store = self._spot, secrets.token_hex(8), self._clock_now(), self.provider.store
        text, data = result[:MAX_DELEGATED_CHARS], {"task": task[:MAX_DELEGATED_CHARS]}

        def record(tx: Tx) -> None:
            if store.sessions.exists(tx, spot.place):
                self.provider.outbox.put(tx, spot, "delegation", key, text, data, None, now=now)

        await store.write(record)

    async def before_compress(self, messages: Sequence[Message]) -> None:
        """Give an open session a last look at what leaves the window, and deliver what waits, in one deadline."""
        deadline = self.provider.within(self.provider.deadlines.compress)
        if self._opened is not None:
            look = methodcaller("before_compress", messages, deadline.wall_time)
            await self._ask("before_compress", look, NOTHING, deadline)
        await self._release()
        await self.flush(deadline.seconds_left())

    async def retitled(self, title: str) -> None:
        self._conversation = replace(self._conversation, title=title)
        if self._opened is not None:
            deadline = self.provider.within(self.provider.deadlines.turn)
            await self._ask("retitled", methodcaller("retitled", title), NOTHING, deadline)

    async def flush(self, seconds: float) -> None:
        """Wait, at most so many seconds, until the due outbox rows of this conversation have been delivered."""
        await self.provider.flush(self._spot.lane, seconds)

    async def undoing(self) -> None:
        """Something is about to be taken back: keep what the provider wants of this conversation now, which may be more
        than when it was asked last."""
        spot, now, outbox = self._spot, self._clock_now(), self.provider.outbox
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
        if self._preparing is not None:
            await asyncio.wait({self._preparing})
        await self.provider.background.settle()

    async def close(self, why: Ending = "exit") -> None:
        """Close the provider's session, within the deadline. What was held back is released: it needs no session."""
        if self._closed:
            return
        self._closed = True
        deadline = self.provider.within(self.provider.deadlines.close)
        if why not in ("deleted", "settings"):
            await self._release()
        for task in (self._preparing, self._opening):
            if task is not None:
                task.cancel()
        if self._opened is not None:
            await self._ask("close", methodcaller("close", why, deadline.wall_time), NOTHING, deadline)
        self.provider.let_go(self._conversation.session_id)

    # The provider's session: opened when it is first needed, asked one question at a time, prepared beside them.

    @property
    def _spot(self) -> Spot:
        """The conversation, with its address while the session is open."""
        address = None if self._opened is None else self._opened.address
        return Spot(self._conversation.session_id, self._conversation, address, self._asked)

    async def _open(self, deadline: Deadline) -> OpenedMemory | None:
        """The session; None when it cannot be opened by then. It is then opened for the next turn."""
        if self._opened is not None or deadline == self._given_up:
            return self._opened
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open_session(deadline))
        done, _ = await asyncio.wait({self._opening}, timeout=deadline.seconds_left())
        if not done:
            self.provider.report_late_open(self._conversation.session_id)
        if self._opened is None:
            self._given_up = deadline
        return self._opened

    async def _open_session(self, deadline: Deadline) -> None:
        session_id, provider = self._conversation.session_id, self.provider
        try:
            known = await provider.store.read(lambda tx: find_place(tx, provider.name, session_id))
        except StoreError as error:
            provider.report("open", Missed(f"open failed: {error.line()}"), session_id)
            return
        if known is not None:
            directory = known.about.get("directory")
            here = self._conversation.directory if directory is None else Path(directory)
            self._conversation = replace(self._conversation, bound=known.bound, directory=here)
        conversation = self._conversation

        async def open_session(plugin: MemoryPlugin) -> OpenedMemory:
            address = plugin.address(conversation)
            session = plugin.open(conversation, address)
            return OpenedMemory(session, address, session.prompt_block, session.tools, session.block_without_tools)

        patient = max(deadline, provider.within(provider.deadlines.tool), key=Deadline.seconds_left)
        found = await provider.call(
            "open", open_session, OpenedMemory, patient, line=f"open:{session_id}", whose=session_id, flaw=opened_flaw
        )
        if not isinstance(found, Returned) or opened_flaw(found.value):
            return
        self._opened = found.value
        self._prepare(None)
        provider.mirror_soon(Mirrored.of(self._notes, conversation), None)
        provider.background.begin(provider.address_place(self._spot, found.value.address), "addressing a conversation")

    async def _ask(
        self,
        hook: str,
        run: Callable[[MemorySession], Awaitable[T]],
        expect: Expected[T],
        deadline: Deadline,
        *,
        line: str = "ask",
        flaw: Callable[[T], str] = lambda _: "",
    ) -> HookResult[T]:
        """Call a hook of the open session."""
        opened, whose = self._opened, self._conversation.session_id
        assert opened is not None, "only an open session is asked"
        return await self.provider.call(
            hook, lambda _: run(opened.session), expect, deadline, line=f"{line}:{whose}", whose=whose, flaw=flaw
        )

    def _prepare(self, question: Question | None) -> None:
        """Have the session prepare its next recall. While it does, the newest question waits and others are let go."""
        self._next = [question]
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare_next())

    async def _prepare_next(self) -> None:
        while self._next and self._opened is not None:
            async with self.provider.preparing:
                if self._next[0] is not None:  # the first turn may already wait for what is prepared for it
                    await self.provider.yield_to_turns()
                question = self._next.pop()
                deadline = self.provider.within(self.provider.deadlines.prepare)
                await self._ask("prepare", methodcaller("prepare", question), NOTHING, deadline, line="prepare")

    def _record(self, tx: Tx) -> None:
        """Record what was recalled for the turn, once; not when something was forgotten since, which may be in it."""
        made, self._injection = self._injection, None
        if made is not None and forgotten_at(tx, self.provider.name) == self._forgotten_at:
            keep_injection(tx, made)

    async def _release(self) -> None:
        spot, outbox, now = self._spot, self.provider.outbox, self._clock_now()
        if spot.address is not None and (spot.asked or spot.address.pace not in ("async", "turn")):
            await self.provider.write_beside(lambda tx: outbox.release(tx, spot, now=now), "letting entries go")
            self.provider.wake.set()

    def _report(self, hook: str, flaw: str) -> None:
        found: HookResult[None] = Missed(f"{hook} has {flaw}") if flaw else Returned(None)
        self.provider.report(hook, found, self._conversation.session_id)

    def _failing(self) -> dict[str, str]:
        return self.provider.health.failing(self._conversation.session_id)

    def _speaker_of(self, message: Message) -> Speaker:
        return speaker_of(self._conversation.person, message, is_owner=bool(message.author_is_owner))

    def _question(self, messages: Sequence[Message], deadline: Deadline) -> Question:
        said = tuple(Said(message.content or "", self._speaker_of(message)) for message in messages)
        return Question(said, self._turn, deadline.wall_time, self._fetched_since)

    def _clock_now(self) -> float:
        return self.provider.store.clock.now()
