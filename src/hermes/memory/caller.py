"""The memory of one conversation: the only interface between a turn and a provider.

    accept ──said(tx)──> recall ──> model ↔ tools ──replied(tx)──> turn_over ──> after_turn (background)

`said`, `replied` and note changes become outbox rows in the turn's own commits. All else is a call to the provider's
session within a deadline: `Memory` calls its `ActiveProvider`, which calls the `PluginThread`.
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
from hermes.memory.active import PAUSE_SECONDS, ActiveProvider
from hermes.memory.book import MemoryBook
from hermes.memory.forgetting import ForgettingEpoch, without_forgotten
from hermes.memory.health import LateRecallNotice, Told
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
from hermes.memory.outbox import Destination
from hermes.memory.plugin_thread import Deadline, Expected, HookResult, Missed, Returned
from hermes.memory.provider import MemoryPlugin, MemorySession
from hermes.memory.values import Conversation, Ending, Question, Recalled, Said, Speaker, ToolUse, speaker_of
from hermes.store.hidden import FORGOTTEN, hide_rows
from hermes.store.injections import Injection, keep_injection
from hermes.store.memory_rows import find_place, get_health, title_for_providers
from hermes.store.store import Store
from hermes.types import Json, Message, RecalledLine, ToolSpec

T = TypeVar("T")
MAX_BLOCK_CHARS, MAX_RESULT_CHARS = 16_000, 64_000
"""Limits of a provider's texts; longer ones would crowd the conversation out of the model's window."""
MAX_DELEGATED_CHARS = 16_000
"""Limits the task of a sub-agent and its result, each, that a provider receives."""
NOTHING = type(None)
NOT_OPEN = Missed("the provider's session is not open", skipped=True)


class Recall(Struct, frozen=True):
    """The recall of one turn. `missed` explains why parts are missing."""

    text: str = ""
    missed: str | None = None
    recalled: Recalled = Recalled()

    @property
    def lines(self) -> tuple[RecalledLine, ...]:
        """The recalled lines as data."""
        return recall_lines(self.recalled)


class Memory:
    """The memory of one agent: a session of the active provider, opened in the first turn that memory may know of, and
    closed once."""

    def __init__(self, provider: ActiveProvider, conversation: Conversation, notes: Notes) -> None:
        self.provider = provider
        self._conversation = conversation
        self._notes = notes
        self._opened: OpenedMemory | None = None
        self._opening: asyncio.Task[None] | None = None
        self._usable: tuple[frozenset[str], tuple[ToolSpec, ...], str] | None = None
        """The tools that can be offered beside a set of others, and a description of the unusable ones."""
        self._given_up: Deadline | None = None
        """The deadline of the turn that continues without a session."""
        self._preparing: asyncio.Task[None] | None = None
        self._next: list[Question | None] = []
        self._asked: tuple[int, ...] = ()
        """The messages of the running turn, while it has no reply."""
        self._told = Told(provider.name)
        self._turn = 1
        self._speaker = conversation.person or Speaker()
        self._closed = False
        self._epoch = ForgettingEpoch()
        """The epoch in which the turn began; compared at its end, to see whether something was forgotten meanwhile."""
        self._late = LateRecallNotice()
        self._may_know = False
        """True if this home has sent anything to the provider."""
        self._injection: Injection | None = None
        """The record of the running turn's recall, until it is stored."""

    @property
    def name(self) -> str:
        """The provider's name in the setting `memory.provider`."""
        return self.provider.name

    @property
    def state(self) -> Literal["off", "ok", "failing"]:
        """The state for a status line: 'off' if the provider accepts no kind of entry."""
        if self._opened is not None and not self._opened.address.wants:
            return "off"
        return "failing" if self._failing() else "ok"

    def take_notices(self) -> list[str]:
        """Return notices for the owner: one when something starts to fail, one when it works again. Others get
        none."""
        if self._conversation.reach != "everything":
            return []
        failing = self._failing()
        late = self._late.news(failing)
        # After close nothing is tried, so an empty failure list does not mean it recovered.
        return late + self._told.news({**self._told.failing, **failing} if self._closed else failing)

    def open_book(self, store: Store, notes: Notes) -> MemoryBook:
        """Return the memory of this conversation's person or group."""
        return MemoryBook(store, notes, self.provider, notebook_of(notes.scope, self._conversation))

    # Writes of a turn, inside its own commits.

    def said(self, tx: Tx, messages: Sequence[Message]) -> None:
        """Record people's messages with their speakers."""
        if not messages:
            return
        if self._opened is None and self._conversation.title is not None:  # it may have been set while incognito
            title = title_for_providers(tx, self._conversation.session_id, self._conversation.title)
            self._conversation = replace(self._conversation, title=title)
        spoken = [(message, self._speaker_of(message)) for message in messages]
        self._turn = self.provider.outbox.said(tx, self._destination, spoken, now=self._clock_now())
        self._epoch = self._read_epoch(tx)
        self._may_know = get_health(tx, self.provider.name).last_success is not None
        self._speaker = spoken[-1][1]
        self._asked = tuple(message.id for message in messages)

    async def ask_only(self, turn: int) -> None:
        """Begin a turn of which the provider receives nothing; `turn` is its number in the conversation."""

        def look(tx: Tx) -> tuple[ForgettingEpoch, bool]:
            return self._read_epoch(tx), get_health(tx, self.provider.name).last_success is not None

        self._turn = turn
        self._epoch, self._may_know = await self.provider.store.read(look)

    def replied(self, tx: Tx, message: Message) -> None:
        """Record a reply, also one that the person stopped. If the owner forgot words since the turn began, the reply
        may contain them and stays out of memory."""
        outbox, destination, now = self.provider.outbox, self._destination, self._clock_now()
        if self._read_epoch(tx).replies_at != self._epoch.replies_at:
            hide_rows(tx, [message.id], FORGOTTEN, now=now, hidden_from="memory")
            outbox.turn_over(tx, destination, self._turn, now=now)
        else:
            agent = self._speaker if self._speaker.is_agent else None
            outbox.replied(tx, destination, message, self._turn, now=now, agent=agent)
        self._asked = ()
        self._record(tx)

    # Calls of a turn, while a person waits.

    def begin(self) -> Deadline:
        """Begin a turn, and return the deadline of all its calls to the provider."""
        deadlines = self.provider.deadlines
        return self.provider.within(deadlines.first_turn if self._turn == 1 else deadlines.turn)

    async def prompt_block(self, deadline: Deadline, *, with_tools: bool = True) -> str | None:
        """Return the session's text for the system prompt; None if it is not available now."""
        opened = await self._open(deadline)
        if opened is None:
            return None
        plain = opened.block_without_tools
        block = opened.block if with_tools or plain is None else plain
        self._report("prompt_block", excess(block, MAX_BLOCK_CHARS))
        return block[:MAX_BLOCK_CHARS]

    async def tools(self, deadline: Deadline, taken: Collection[str] = ()) -> tuple[ToolSpec, ...]:
        """Return the session's tools. Malformed ones, and those with a name in `taken`, are dropped and reported."""
        opened = await self._open(deadline)
        if opened is None:
            return ()
        if self._usable is None or self._usable[0] != taken:
            self._usable = (frozenset(taken), *usable_tools(opened.tools, taken))
        self._report("tools", self._usable[2])
        return self._usable[1]

    async def recall(self, messages: Sequence[Message], deadline: Deadline, *, is_read: bool = True) -> Recall:
        """Recall for this turn; the result is stored with the turn. A late recall is reported to the person if the
        reply depends on it (`is_read`) and the provider may know something from this home."""
        left = deadline.seconds_left()
        question = self._question(messages, deadline)
        found: HookResult[Recalled] = NOT_OPEN
        if await self._open(deadline) is not None:
            with self.provider.recalling(self._conversation.session_id):
                ask = methodcaller("recall", question)
                found = await self._ask("recall", ask, Recalled, deadline, flaw=recall_flaw)
        recalled = found.value if isinstance(found, Returned) else Recalled(missed={"recall": found.reason})
        recalled = without_forgotten(recalled, self._epoch.fetched_since)
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
        """Run one of the session's tools. A failure is returned as Missed."""
        deadline = self.provider.within(self.provider.deadlines.tool)
        if await self._open(deadline) is None:
            return NOT_OPEN
        call = methodcaller("call_tool", ToolUse(name, arguments, key, deadline.wall_time), self._speaker)
        found = await self._ask(
            "call_tool",
            call,
            str,
            deadline,
            # A separate line: a tool that only writes the outbox waits neither for a late recall nor for another tool.
            line=f"tool:{name}",
            flaw=lambda text: excess(text, MAX_RESULT_CHARS),
        )
        return Returned(found.value[:MAX_RESULT_CHARS]) if isinstance(found, Returned) else found

    # The end of a turn, and background work.

    async def turn_over(self) -> None:
        """End a turn. Without a reply, rows held for one are released. With the pace "turn", wait until the turn's
        rows are delivered, within the deadline `delivered`."""
        destination, turn, provider = self._destination, self._turn, self.provider
        if destination.asked:
            self._asked = ()
            now = self._clock_now()

            def let_go(tx: Tx) -> None:
                provider.outbox.turn_over(tx, destination, turn, now=now)
                self._record(tx)

            await provider.write_beside(let_go, "letting a question go")
        provider.turn_over(self._conversation.session_id)
        if destination.address is not None and destination.address.pace == "turn":
            await self.flush(provider.deadlines.delivered)

    def after_turn(self, messages: Sequence[Message]) -> None:
        """Prepare the next recall in the background."""
        if self._opened is not None:
            self._prepare(self._question(messages, self.provider.within(self.provider.deadlines.prepare)))

    def note_written(self, target: Literal["memory", "user"], action: Action, text: str) -> None:
        """Mirror a change of a built-in note in the background. After a crash, the next start mirrors it."""
        old, new = (text, "") if action == "remove" else ("", text)
        mirrored = Mirrored.of(self._notes, self._conversation)
        self.provider.mirror_soon(mirrored, NoteChange(target, action, old, new))

    async def delegated(self, task: str, result: str) -> None:
        """Record a sub-agent's work, unless the session was deleted meanwhile."""
        destination, key, now, store = self._destination, secrets.token_hex(8), self._clock_now(), self.provider.store
        text, data = result[:MAX_DELEGATED_CHARS], {"task": task[:MAX_DELEGATED_CHARS]}

        def record(tx: Tx) -> None:
            if store.sessions.exists(tx, destination.place):
                self.provider.outbox.put(tx, destination, "delegation", key, text, data, None, now=now)

        await store.write(record)

    async def before_compress(self, messages: Sequence[Message]) -> None:
        """Show an open session the messages that leave the window, and deliver its entries, within one deadline."""
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
        """Wait up to `seconds` until the due outbox rows of this conversation are delivered."""
        await self.provider.flush(self._destination.lane, seconds)

    async def undoing(self) -> None:
        """Prepare an undo: record the kinds of entries that the provider accepts now, which may have changed."""
        destination, now, outbox = self._destination, self._clock_now(), self.provider.outbox
        address = destination.address or await self.provider.find_address(destination.place, destination.about)

        def keep(tx: Tx) -> None:
            outbox.settle_known(tx, replace(destination, address=address), now=now)

        if address is not None:
            await self.provider.write_beside(keep, "keeping an address")

    async def undone(self, lanes: Iterable[str]) -> None:
        """Deliver the entries of an undo now, within the deadline of a turn."""
        await self.provider.flush_all(lanes, self.provider.deadlines.turn)

    async def settle(self) -> None:
        """Wait until background work has ended."""
        if self._preparing is not None:
            await asyncio.wait({self._preparing})
        await self.provider.background.settle()

    async def close(self, why: Ending = "exit") -> None:
        """Close the provider's session within the deadline. Held rows are released; they need no session."""
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

    # The provider's session: opened when first needed, one call at a time, prepared in the background.

    @property
    def _destination(self) -> Destination:
        """The conversation, with its address while the session is open."""
        address = None if self._opened is None else self._opened.address
        return Destination(self._conversation.session_id, self._conversation, address, self._asked)

    async def _open(self, deadline: Deadline) -> OpenedMemory | None:
        """Return the session, or None if it is not open by the deadline; then it opens for the next turn."""
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
        provider.background.begin(
            provider.address_place(self._destination, found.value.address), "addressing a conversation"
        )

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
        assert opened is not None, "the session is open"
        return await self.provider.call(
            hook, lambda _: run(opened.session), expect, deadline, line=f"{line}:{whose}", whose=whose, flaw=flaw
        )

    def _prepare(self, question: Question | None) -> None:
        """Prepare the next recall. While a preparation runs, only the newest question waits; others are dropped."""
        self._next = [question]
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare_next())

    async def _prepare_next(self) -> None:
        while self._next and self._opened is not None:
            async with self.provider.preparing:
                if self._next[0] is not None:  # the first turn may already wait for what is prepared for it
                    await asyncio.sleep(PAUSE_SECONDS)
                    await self.provider.yield_to_turns()
                question = self._next.pop()
                deadline = self.provider.within(self.provider.deadlines.prepare)
                await self._ask("prepare", methodcaller("prepare", question), NOTHING, deadline, line="prepare")

    def _record(self, tx: Tx) -> None:
        """Store the record of the recall, unless something that it may contain was forgotten since."""
        made, self._injection = self._injection, None
        if made is not None and self._read_epoch(tx).forgotten_at == self._epoch.forgotten_at:
            keep_injection(tx, made)

    def _read_epoch(self, tx: Tx) -> ForgettingEpoch:
        return ForgettingEpoch.read(tx, self.provider.name, now=self._clock_now())

    async def _release(self) -> None:
        destination, outbox, now = self._destination, self.provider.outbox, self._clock_now()
        if destination.address is not None and (destination.asked or destination.address.pace not in ("async", "turn")):
            await self.provider.write_beside(lambda tx: outbox.release(tx, destination, now=now), "letting entries go")
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
        return Question(said, self._turn, deadline.wall_time, self._epoch.fetched_since)

    def _clock_now(self) -> float:
        return self.provider.store.clock.now()
