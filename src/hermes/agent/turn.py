"""One turn, from a person's message to the reply.

take lane + store message (one commit) ── recall ── model ↔ tools ── store reply + release lane (one commit)
    ── background work

Reads memory for a conversation that its client keeps, without recording anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import asdict, replace

from hermes.agent.agent import Agent, AgentMemory
from hermes.agent.compress import announcement, compress_smaller, compress_when_idle, make_room, wait_deadline
from hermes.agent.context import build_context
from hermes.agent.loop import Responder, converse
from hermes.agent.memory_tool import respect_corrections
from hermes.agent.offline import OfflineModel
from hermes.agent.prompt import PromptParts, build_system_prompt, is_current, prompt_source, read_persona
from hermes.agent.review import review_soon, wants_review
from hermes.agent.titles import title_soon, wants_title
from hermes.agent.tools import Tool, Toolbox, ToolResult
from hermes.agent.transcript import PreparedRequest
from hermes.errors import HermesError, NotFoundError, SessionBusyError, StaleError, StoreError
from hermes.events import GONE, Accepted, Failed, Notice, Replied, Stopped, TurnEvent, Waiting
from hermes.fence import fence, strip_fences
from hermes.llm.metered import Limited
from hermes.llm.model import Model
from hermes.memory.caller import Recall
from hermes.memory.corrections import Corrections
from hermes.memory.forgetting import new_call_key
from hermes.memory.plugin_thread import Returned
from hermes.store.held_lease import UNSAID, LaneDoor
from hermes.store.turns import NoRecord, StoredTurn, TurnOpening, TurnRecord, opening
from hermes.types import Draft, Json, LiveView, Message, ToolSpec, is_told


async def run_turn(agent: Agent, text: str, stop: asyncio.Event) -> AsyncGenerator[TurnEvent, None]:
    """Answer one message of the owner. It is stored before the model is called; the last event says how the turn
    ended."""
    said = Draft("user", text, author_is_owner=True)
    async with aclosing(answer(agent, [said], stop, NoRecord())) as events:
        async for event in events:
            yield event


async def answer(
    agent: Agent, said: Sequence[Draft], stop: asyncio.Event, record: TurnRecord
) -> AsyncGenerator[TurnEvent, None]:
    """Answer several messages with one reply. Without drafts, answer messages already stored by a turn that crashed.

    A turn that is stopped while it waits for another turn of the session stores nothing.
    """
    await agent.cancel_idle_work()
    try:
        drafts = [replace(draft, content=strip_fences(draft.content or "")) for draft in said]
        begin = opening(agent.store, agent.session_id, drafts, agent.scope, agent.memory, record)
        async with LaneDoor(agent.store, agent.session_id, agent.owner, agent.policy.lane, begin) as door:
            async with aclosing(door.wait(stop)) as waiting:
                async for _ in waiting:
                    yield Waiting(agent.session_id)
            if door.entered is None:
                yield Notice(UNSAID)
                yield Stopped(agent.session_id, "")
                return
            turn = StoredTurn(agent.store, door.entered, agent.memory, record)
            async with aclosing(_answer_in(agent, turn, stop)) as events:
                async for event in events:
                    yield event
    except SessionBusyError as error:
        yield Failed(agent.session_id, "busy", error.line())
    except (StaleError, NotFoundError) as error:
        if not await agent.store.read(lambda tx: agent.store.sessions.exists(tx, agent.session_id)):
            yield Failed(agent.session_id, "gone", GONE)
        elif isinstance(error, StaleError):
            yield Failed(agent.session_id, "busy", "another process has taken over this session; say it again there")
        else:
            yield Failed(agent.session_id, "host", error.line())
    except StoreError as error:
        yield Failed(agent.session_id, "store", error.line())
    except HermesError as error:  # notes or home: only this turn fails
        yield Failed(agent.session_id, "host", error.line())


async def _answer_in(agent: Agent, turn: StoredTurn, stop: asyncio.Event) -> AsyncGenerator[TurnEvent, None]:
    for message in turn.opening.messages:
        yield Accepted(agent.session_id, message.id)
    agent.speak_with(turn.opening.model)
    prepared = await _prepare(agent, turn)
    for notice in agent.memory.take_notices():
        yield Notice(notice, is_outage=True)
    while agent.untold:
        yield agent.untold.pop(0)
    transcript = StoredTranscript(agent, turn, prepared)
    async with aclosing(converse(prepared.speaker, transcript, agent.session_id, stop)) as events:
        async for event in events:
            if isinstance(event, Replied | Stopped | Failed):
                await prepared.memory.turn_over()
            yield event
    _after(agent, turn.opening)


async def _prepare(agent: Agent, turn: StoredTurn) -> Preparation:
    """Query memory within one common deadline, and build the prompt and the tools."""
    accepted, corrections = turn.opening, Corrections(turn.opening.corrections)
    # An agent's message neither queries nor changes memory; it is sent to the provider in a separate session.
    by_agent = bool(accepted.messages) and all(message.author_is_agent for message in accepted.messages)
    speaking = agent.incognito() if accepted.incognito or by_agent else agent
    if not agent.answers_from_memory:
        speaking = replace(speaking, model=Limited(speaking.model, agent.policy.max_requests))
    memory, own = speaking.memory, _own_tools(speaking, accepted)
    deadline = memory.begin()
    agent.begin_tool_test()
    given = await memory.tools(deadline, taken={tool.spec.name for tool in own})
    recall = await memory.recall(accepted.messages, deadline, is_read=not agent.answers_from_memory)
    agent.turns += not accepted.incognito
    provided = [_provider_tool(agent, spec, corrections) for spec in given]
    may_use = await agent.may_use_tools()
    block = await memory.prompt_block(deadline, with_tools=may_use)
    toolbox = Toolbox([*own, *provided], off=speaking.policy.tools_off, offered=may_use)
    prompt = await _prompt(agent, turn, corrections, block, toolbox)
    model = _with_recalled_lines(speaking.model, recall, corrections, accepted)
    speaker = Responder(model, toolbox, agent.policy.max_steps, agent.policy.max_calls)
    text, is_known = corrections.marked(recall.text), may_use or is_told(recall.lines)
    return Preparation(prompt, text, speaker, memory, is_told=is_known)


def _with_recalled_lines(model: Model, recall: Recall, corrections: Corrections, accepted: TurnOpening) -> Model:
    """Return the model; an offline one gets the recalled lines as data."""
    if not isinstance(model, OfflineModel):
        return model
    lines = tuple(replace(line, text=corrections.replaced(line.text)) for line in recall.lines)
    asker = accepted.messages[-1].author_name if accepted.messages else None
    return replace(model, recalled=lines, asker=asker or "", is_whole=recall.missed is None)


def _own_tools(agent: Agent, accepted: TurnOpening) -> list[Tool]:
    """Return the agent's own tools. `memory` refuses to note what the person corrected, unless they repeat it now."""
    spoken = "\n".join(message.content or "" for message in accepted.messages)
    return [
        respect_corrections(agent, tool, spoken) if tool.spec.name == "memory" else tool for tool in agent.tools(agent)
    ]


async def _prompt(agent: Agent, turn: StoredTurn, corrections: Corrections, block: str | None, toolbox: Toolbox) -> str:
    """Return the session's stored prompt byte for byte, or a new one, which is then stored, if its sources have
    changed."""
    accepted = turn.opening
    if accepted.incognito:  # it contains nothing from memory and is not stored
        persona, began = read_persona(agent.soul_file), accepted.session.started_at
        return build_system_prompt(PromptParts(persona, began, agent.scope, project=accepted.project))
    notes = agent.read_notes()
    kept, mark = accepted.session.system_prompt, corrections.mark + ("" if toolbox.specs else "-")
    if kept and is_current(accepted.prompt_made_of, agent.scope, block, mark):
        return kept
    prompt = build_system_prompt(
        PromptParts(
            persona=read_persona(agent.soul_file),
            scope=agent.scope,
            notes=notes,
            provider_block=block or "",
            has_memory_tool=any(spec.name == "memory" for spec in toolbox.specs),
            started_at=accepted.session.started_at,
            corrected=corrections.lines(),
            project=accepted.project,
        )
    )
    if not notes.problems:  # a prompt built without an unreadable note is not kept
        await turn.keep_prompt(prompt, prompt_source(agent.scope, block, mark))
    return prompt


def _provider_tool(agent: Agent, spec: ToolSpec, corrections: Corrections) -> Tool:
    """Return a tool of the provider. Its results count as recalled text; its errors may quote a server."""

    async def run(arguments: Mapping[str, Json]) -> ToolResult:
        found = await agent.memory.call_tool(spec.name, arguments, new_call_key())
        if isinstance(found, Returned):
            return ToolResult(fence(corrections.marked(found.value)))
        return ToolResult(strip_fences(found.reason), ok=False)

    return Tool(spec, run)


def _after(agent: Agent, accepted: TurnOpening) -> None:
    """Start background work: idle compression, next recall, review of notes, title."""
    compress_when_idle(agent)
    if accepted.incognito or not accepted.messages:
        return
    agent.memory.after_turn(accepted.messages)
    review_soon(agent)
    title_soon(agent)


class Preparation(Struct, frozen=True):
    """The results of `_prepare`: the system prompt, the recalled text, the model with its tools, and the memory that
    is notified at the end of the turn. `is_told` is False for a model without tools if memory probably lacks the
    answer."""

    system_prompt: str
    recalled: str
    speaker: Responder
    memory: AgentMemory
    is_told: bool


class StoredTranscript(Struct):
    """A session's stored transcript, kept within the model's window. `add` commits each message; it raises StaleError
    once another process has taken the lane."""

    agent: Agent
    turn: StoredTurn
    prepared: Preparation
    added: int = 0
    """Messages added in this turn, not counting the person's."""

    async def request(self, tools: Sequence[ToolSpec]) -> PreparedRequest:
        until = wait_deadline(self.agent)
        while True:  # repeats only while other processes compress the session ("busy"), at most until `until`
            view = await self.turn.view()
            messages = self._build(view)
            window = self.agent.model.context_length
            tokens, made = await make_room(self.agent, window, view, messages, tools, until)
            if made is None:
                return PreparedRequest(self._reminded(messages), tokens=tokens)
            if made.outcome != "busy":
                return PreparedRequest(self._reminded(self._build(await self.turn.view())), announcement(made))

    def _build(self, view: LiveView) -> list[dict[str, Json]]:
        given = self.prepared
        prompt, *messages = build_context(given.system_prompt, view, given.recalled, is_told=given.is_told)
        return [prompt, *({"role": role, "content": text} for role, text in self.turn.opening.earlier), *messages]

    async def shrink(self) -> bool:
        return await compress_smaller(self.agent)

    def _reminded(self, messages: list[dict[str, Json]]) -> list[dict[str, Json]]:
        """Return the messages with the record's reminder at the start of this turn: before the messages it added, and
        never between a tool call and its results."""
        if not self.turn.opening.reminder:
            return messages
        place = max(0, len(messages) - self.added)
        while place < len(messages) and messages[place]["role"] == "tool":
            place += 1
        return [*messages[:place], {"role": "user", "content": self.turn.opening.reminder}, *messages[place:]]

    async def add(self, *drafts: Draft) -> list[Message]:
        added = await self.turn.add(drafts, self.agent.spending.take())
        self.added += len(added)
        return added

    async def conclude(self, reply: Draft) -> Message:
        review_due, title_due = wants_review(self.agent), wants_title(self.agent)
        return await self.turn.conclude(reply, self.agent.spending.take(), review_due=review_due, title_due=title_due)


class Reading(Struct, frozen=True):
    """The system prompt, including the person's notes, and the text recalled for their last message."""

    prompt: str
    recalled: str = ""
    notices: Sequence[str] = ()
    """Notices for the owner about memory."""
    found: Recall = Recall()


async def read_memory(agent: Agent, messages: Sequence[Draft]) -> Reading:
    """Recall for the last user message within the deadline of a turn. Neither messages nor a turn are sent to
    memory."""
    people = [draft for draft in messages if draft.role == "user"]
    corrections = await agent.store.read(lambda tx: Corrections.read(tx, agent.scope))
    await agent.memory.ask_only(len(people))
    now = agent.clock.now()
    asked = [Message(id=0, session_id=agent.session_id, timestamp=now, **asdict(draft)) for draft in people[-1:]]
    found = await agent.memory.recall(asked, agent.memory.begin(), is_read=not agent.answers_from_memory)
    agent.memory.after_turn(asked)
    parts = PromptParts(
        persona=read_persona(agent.soul_file),
        started_at=now,
        scope=agent.scope,
        notes=agent.read_notes(),
        corrected=corrections.lines(),
    )
    return Reading(build_system_prompt(parts), corrections.marked(found.text), agent.memory.take_notices(), found)
