"""One turn, from a person's message to the reply.

lane ── accept (commit) ── recall ── model ↔ tools ── after_turn
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.agent import Agent
from hermes.agent.compress import compress_when_idle
from hermes.agent.lane import UNSAID, Lane, LaneDoor
from hermes.agent.loop import Responder, converse
from hermes.agent.prompt import PromptParts, build_system_prompt, is_current, made_of, read_soul
from hermes.agent.review import review_soon
from hermes.agent.stored_transcript import Preparation, StoredTranscript
from hermes.agent.titles import title_soon
from hermes.agent.tools import Tool, Toolbox, ToolResult
from hermes.agent.turn_record import NoRecord, TurnRecord
from hermes.db.engine import Tx
from hermes.errors import HermesError, NotFoundError, SessionBusyError, StaleError, StoreError
from hermes.events import GONE, Accepted, Failed, Notice, Replied, Stopped, TurnEvent, Waiting
from hermes.fence import fence, strip_fences
from hermes.memory.plugin_thread import Returned
from hermes.store.chosen_models import ChosenModel, chosen_model
from hermes.store.prompts import prompt_made_of, set_prompt_made_of
from hermes.types import Draft, Json, Message, Session, ToolSpec


async def run_turn(agent: Agent, text: str, stop: asyncio.Event) -> AsyncGenerator[TurnEvent, None]:
    """Answer one message of the owner's. It is on the disk before the model is asked; the last event says how the turn
    ended."""
    said = Draft("user", text, author_is_owner=True)
    async with aclosing(answer(agent, [said], stop, NoRecord())) as events:
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
    except StoreError as error:
        yield Failed(agent.session_id, "store", error.line())
    except HermesError as error:  # the notes or the home: the turn ends, the conversation need not
        yield Failed(agent.session_id, "host", error.line())


async def _exists(agent: Agent) -> bool:
    return await agent.store.read(lambda tx: agent.store.sessions.exists(tx, agent.session_id))


async def _answer_in(
    agent: Agent, lane: Lane, accepted: _Accepted, stop: asyncio.Event, record: TurnRecord
) -> AsyncGenerator[TurnEvent, None]:
    for message in accepted.messages:
        yield Accepted(agent.session_id, message.id)
    agent.speak_with(accepted.model)
    prepared = await _prepare(agent, lane, accepted)
    for notice in agent.memory.take_notices():
        yield Notice(notice, is_outage=True)
    while agent.untold:
        yield agent.untold.pop(0)
    transcript = StoredTranscript(agent, lane, prepared, record)
    async with aclosing(converse(prepared.speaker, transcript, agent.session_id, stop)) as events:
        async for event in events:
            if isinstance(event, Replied | Stopped | Failed):
                await prepared.memory.turn_over()
            yield event
    _after(agent, accepted)


class _Accepted(Struct, frozen=True):
    messages: tuple[Message, ...]
    session: Session
    incognito: bool
    prompt_made_of: str | None
    model: ChosenModel | None


def _acceptance(agent: Agent, said: Sequence[Draft], record: TurnRecord) -> Callable[[Tx], _Accepted]:
    """The transaction that commits what was said. From its end on nothing can lose it."""
    drafts = [replace(draft, content=strip_fences(draft.content or "")) for draft in said]

    def commit(tx: Tx) -> _Accepted:
        stored = agent.store.messages.append(tx, agent.session_id, drafts, now=agent.clock.now())
        messages = tuple(record.accepted(tx, stored))
        session = agent.store.sessions.get(tx, agent.session_id)
        known = agent.store.incognito.remembered(tx, agent.session_id, messages)
        incognito = len(known) < len(messages) or agent.store.incognito.is_on(tx, agent.session_id)
        if not incognito:
            agent.memory.said(tx, messages)
        made = prompt_made_of(tx, agent.session_id)
        return _Accepted(messages, session, incognito, made, chosen_model(tx, agent.session_id))

    return commit


async def _prepare(agent: Agent, lane: Lane, accepted: _Accepted) -> Preparation:
    """Ask memory, within one deadline for all of it, and put the prompt and the tools together."""
    speaking = agent.incognito() if accepted.incognito else agent
    memory, own = speaking.memory, speaking.tools(speaking)
    until = memory.begin()
    block = await memory.prompt_block(until)
    given = await memory.tools(until, taken={tool.spec.name for tool in own})
    recall = await memory.recall(accepted.messages, until)
    agent.turns += not accepted.incognito
    toolbox = Toolbox([*own, *(_provider_tool(agent, spec) for spec in given)], off=speaking.policy.tools_off)
    prompt = await _prompt(agent, lane, accepted, block, toolbox)
    speaker = Responder(speaking.model, toolbox, agent.policy.max_steps, agent.policy.max_calls)
    return Preparation(prompt, recall.text, speaker, memory)


async def _prompt(agent: Agent, lane: Lane, accepted: _Accepted, block: str | None, toolbox: Toolbox) -> str:
    """The prompt that the session has, byte for byte, unless what it was made of has changed."""
    if accepted.incognito:
        return _bare_prompt(agent, accepted.session)
    notes = agent.read_notes()
    kept = accepted.session.system_prompt
    if kept and is_current(accepted.prompt_made_of, agent.scope, block):
        return kept
    prompt = build_system_prompt(
        PromptParts(
            soul=read_soul(agent.soul_file),
            scope=agent.scope,
            notes=notes,
            provider_block=block or "",
            has_memory_tool=any(spec.name == "memory" for spec in toolbox.specs),
            started_at=accepted.session.started_at,
        )
    )
    if not notes.problems:
        await _keep_prompt(agent, lane, prompt, made_of(agent.scope, block))
    return prompt


def _bare_prompt(agent: Agent, session: Session) -> str:
    """An incognito turn's prompt: nothing of memory is in it, and it is not kept."""
    return build_system_prompt(PromptParts(read_soul(agent.soul_file), session.started_at, agent.scope))


async def _keep_prompt(agent: Agent, lane: Lane, prompt: str, of: str) -> None:
    """A later turn, also after a restart, uses the very same prompt. One that lacks a note is not kept."""

    def keep(tx: Tx) -> None:
        lane.check(tx)
        agent.store.sessions.set_system_prompt(tx, agent.session_id, prompt)
        set_prompt_made_of(tx, agent.session_id, of)

    await agent.store.write(keep)


def _provider_tool(agent: Agent, spec: ToolSpec) -> Tool:
    """A tool of the provider's. What it finds is recalled text, and what it fails with may be a server's words."""

    async def run(arguments: Mapping[str, Json]) -> ToolResult:
        found = await agent.memory.call_tool(spec.name, arguments, secrets.token_hex(16))
        if isinstance(found, Returned):
            return ToolResult(fence(found.value))
        return ToolResult(strip_fences(found.reason), ok=False)

    return Tool(spec, run)


def _after(agent: Agent, accepted: _Accepted) -> None:
    """What happens off the turn: memory prepares for the next one, and now and then the notes are reviewed."""
    compress_when_idle(agent)
    if accepted.incognito or not accepted.messages:
        return
    agent.memory.after_turn(accepted.messages)
    review_soon(agent)
    title_soon(agent)
