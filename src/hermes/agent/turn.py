"""One turn, from a person's message to the reply.

lane ── accept (commit) ── recall ── model ↔ tools ── after_turn
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from hermes.agent.agent import Agent
from hermes.agent.compress import compress_when_idle
from hermes.agent.lane import UNSAID, Lane, LaneDoor
from hermes.agent.loop import Speaker, converse
from hermes.agent.prompt import PromptParts, build_system_prompt, read_soul
from hermes.agent.review import review_soon
from hermes.agent.stored_transcript import StoredTranscript
from hermes.agent.tools import Tool, Toolbox, ToolResult
from hermes.agent.turn_record import NoRecord, TurnRecord
from hermes.db.engine import Tx
from hermes.errors import HermesError, NotFoundError, SessionBusyError, StaleError
from hermes.events import GONE, Accepted, Failed, Notice, Stopped, TurnEvent, Waiting
from hermes.fence import strip_fences
from hermes.memory.caller import Recall
from hermes.memory.isolation import Answer
from hermes.memory.provider import FinishedTurn
from hermes.store.rewrites import Stamp
from hermes.types import Draft, Json, Message, Session, ToolSpec


async def run_turn(agent: Agent, text: str, stop: asyncio.Event) -> AsyncGenerator[TurnEvent, None]:
    """Answer one message. It is on the disk before the model is asked; the last event says how the turn ended."""
    async with aclosing(answer(agent, [Draft("user", text)], stop, NoRecord())) as events:
        async for event in events:
            yield event


async def answer(
    agent: Agent, said: Sequence[Draft], stop: asyncio.Event, record: TurnRecord
) -> AsyncGenerator[TurnEvent, None]:
    """Answer several messages with one reply. Without any, what is stored already is answered: a crash cut it off.

    A turn that is stopped while it waits for another one of the session has said nothing.
    """
    await agent.be_busy()
    try:
        accept = _acceptance(agent, said, record)
        async with LaneDoor(agent.store, agent.session_id, agent.owner, agent.policy.lane, accept) as door:
            async with aclosing(door.wait(stop)) as waiting:
                async for _ in waiting:
                    yield Waiting(agent.session_id)
            if door.entered is None:
                yield Notice(UNSAID)
                yield Stopped(agent.session_id, "")
                return
            async with aclosing(_answer_in(agent, door.entered.lane, door.entered.begun, stop, record)) as events:
                async for event in events:
                    yield event
    except SessionBusyError as error:
        yield Failed(agent.session_id, "busy", error.line())
    except StaleError:
        if await _exists(agent):
            yield Failed(agent.session_id, "busy", "another process has taken over this session; say it again there")
        else:
            yield Failed(agent.session_id, "gone", GONE)
    except NotFoundError as error:
        if await _exists(agent):
            yield Failed(agent.session_id, "host", error.line())
        else:
            yield Failed(agent.session_id, "gone", GONE)
    except HermesError as error:  # the store, the notes or the home: the turn ends, the conversation need not
        yield Failed(agent.session_id, "host", error.line())


async def _exists(agent: Agent) -> bool:
    return await agent.store.read(lambda tx: agent.store.sessions.exists(tx, agent.session_id))


async def _answer_in(
    agent: Agent, lane: Lane, accepted: _Accepted, stop: asyncio.Event, record: TurnRecord
) -> AsyncGenerator[TurnEvent, None]:
    for message in accepted.messages:
        yield Accepted(agent.session_id, message.id)
    prepared = await _prepare(agent, lane, accepted)
    for notice in agent.memory.take_notices():
        yield Notice(notice)
    while agent.untold:
        yield agent.untold.pop(0)
    transcript = StoredTranscript(agent, lane, prepared.system_prompt, prepared.recall.text, record, accepted.stamp)
    async with aclosing(converse(prepared.speaker, transcript, agent.session_id, stop)) as events:
        async for event in events:
            yield event
    _after(agent, accepted, transcript.reply)


@dataclass(frozen=True, slots=True)
class _Accepted:
    messages: tuple[Message, ...]
    session: Session
    incognito: bool
    stamp: Stamp

    @property
    def text(self) -> str:
        """What memory is asked about."""
        return "\n".join(message.content or "" for message in self.messages)


@dataclass(frozen=True, slots=True)
class _Prepared:
    system_prompt: str
    recall: Recall
    speaker: Speaker


def _acceptance(agent: Agent, said: Sequence[Draft], record: TurnRecord) -> Callable[[Tx], _Accepted]:
    """The transaction that commits what was said. From its end on nothing can lose it."""
    drafts = [replace(draft, content=strip_fences(draft.content or "")) for draft in said]

    def commit(tx: Tx) -> _Accepted:
        stored = agent.store.messages.append(tx, agent.session_id, drafts, now=agent.clock.now())
        messages = tuple(record.accepted(tx, stored))
        session = agent.store.sessions.get(tx, agent.session_id)
        known = agent.store.incognito.remembered(tx, agent.session_id, messages)
        incognito = len(known) < len(messages) or agent.store.incognito.is_on(tx, agent.session_id)
        return _Accepted(messages, session, incognito, agent.store.lines.stamp(tx))

    return commit


async def _prepare(agent: Agent, lane: Lane, accepted: _Accepted) -> _Prepared:
    """Ask memory, within one deadline for all of it, and put the prompt and the tools together."""
    speaking = agent.incognito() if accepted.incognito else agent
    memory, own = speaking.memory, speaking.tools(speaking)
    until = memory.begin(first=agent.turns == 0)
    block = await memory.system_prompt_block(until) if not accepted.session.system_prompt else ""
    given = await memory.tools(until, taken={tool.spec.name for tool in own})
    recall = await memory.before_turn(agent.session_id, accepted.text, until)
    agent.turns += not accepted.incognito
    toolbox = Toolbox([*own, *(_provider_tool(agent, spec) for spec in given)], off=speaking.policy.tools_off)
    if accepted.incognito:
        prompt = _bare_prompt(agent, accepted.session)
    else:
        notes = agent.read_notes()
        prompt = accepted.session.system_prompt or build_system_prompt(
            PromptParts(
                soul=read_soul(agent.soul_file),
                user_notes=notes.texts.get("user", ""),
                memory_notes=notes.texts.get("memory", ""),
                provider_block=block,
                has_memory_tool=any(spec.name == "memory" for spec in toolbox.specs),
                started_at=accepted.session.started_at,
            )
        )
        if not notes.problems and prompt != accepted.session.system_prompt:
            await _keep_prompt(agent, lane, prompt)
    return _Prepared(prompt, recall, Speaker(speaking.model, toolbox, agent.policy.max_steps, agent.policy.max_calls))


def _bare_prompt(agent: Agent, session: Session) -> str:
    """An incognito turn's prompt: nothing of memory is in it, and it is not kept."""
    return build_system_prompt(PromptParts(read_soul(agent.soul_file), session.started_at))


async def _keep_prompt(agent: Agent, lane: Lane, prompt: str) -> None:
    """A later turn, also after a restart, uses the very same prompt. One that lacks a note is not kept."""

    def keep(tx: Tx) -> None:
        lane.check(tx)
        agent.store.sessions.set_system_prompt(tx, agent.session_id, prompt)

    await agent.store.write(keep)


def _provider_tool(agent: Agent, spec: ToolSpec) -> Tool:
    async def run(arguments: Mapping[str, Json]) -> ToolResult:
        found = await agent.memory.call_tool(spec.name, arguments)
        return ToolResult(found.value) if isinstance(found, Answer) else ToolResult(found.reason, ok=False)

    return Tool(spec, run)


def _after(agent: Agent, accepted: _Accepted, reply: Message | None) -> None:
    """What happens off the turn: the provider hears of it, and now and then the notes are reviewed."""
    compress_when_idle(agent)
    if accepted.incognito or not accepted.messages:
        return
    agent.memory.after_turn(FinishedTurn(agent.session_id, accepted.messages, reply))
    review_soon(agent)
