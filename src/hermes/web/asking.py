"""Questions to memory: what it finds, with sources, and an answer composed from that. Nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hermes.agent.loop import Responder, converse
from hermes.agent.offline import NOT_KEPT, OfflineModel
from hermes.agent.reading import read_memory
from hermes.agent.tools import Toolbox
from hermes.agent.transcript import ScratchTranscript
from hermes.errors import UsageError
from hermes.events import Failed, Replied, TurnEvent
from hermes.gateway.agent_cache import NOBODY
from hermes.memory.offered import storable_parts
from hermes.scope import OWNER
from hermes.store.injections import InjectedPart
from hermes.types import Draft, Session
from hermes.web.drawing import page
from hermes.web.host import WebHost
from hermes.web.routing import host_of

ASKING, WEB = "web-ask", "web"
MAX_QUESTION_CHARS = 2000
ANSWER_SECONDS = 120.0
TOO_LATE = "The model did not answer in time; what memory found is below."


class AnsweredQuestion(Struct, frozen=True):
    """An answer, or the reason for a missing one, with the evidence that memory found."""

    text: str
    problem: str = ""
    parts: Sequence[InjectedPart] = ()
    missed: str = ""
    by: str = ""
    """The model that answered; "" if memory answered without one."""


async def ask_memory(host: WebHost, question: str) -> AnsweredQuestion:
    """Recall memories for a question and answer it. Memory does not learn the question."""
    session, draft = Session(ASKING, WEB, host.now), Draft("user", question, author_is_owner=True)
    async with host.turns.agents.use(session, ASKING, OWNER, NOBODY) as agent:
        reading = await read_memory(agent, [draft])
        model, is_offline = agent.model, isinstance(agent.model, OfflineModel)
        if isinstance(model, OfflineModel):
            whole = reading.found.missed is None
            model = replace(model, fate=NOT_KEPT, recalled=reading.found.lines, is_whole=whole)
        transcript = ScratchTranscript(reading.prompt, [draft], host.now, reading.recalled)
        ending = await _run(Responder(model, Toolbox([]), 1), transcript)
    parts = storable_parts(reading.found.recalled.parts)
    answer = AnsweredQuestion("", TOO_LATE, parts, reading.found.missed or "", "" if is_offline else model.name)
    if isinstance(ending, Replied):
        return replace(answer, text=ending.text, problem="")
    return replace(answer, problem=ending.message) if isinstance(ending, Failed) else answer


async def _run(speaker: Responder, transcript: ScratchTranscript) -> TurnEvent | None:
    """Return the last event of the answer; None after a timeout."""
    last: TurnEvent | None = None
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            async with aclosing(converse(speaker, transcript, "", asyncio.Event())) as events:
                async for event in events:
                    last = event
    except TimeoutError:
        return None
    return last


async def show_asking(request: Request) -> Response:
    host, question = host_of(request), request.query_params.get("q", "").strip()
    if len(question) > MAX_QUESTION_CHARS:
        raise UsageError(f"a question has at most {MAX_QUESTION_CHARS:,} characters", hint="Ask for less at once")
    answered = await ask_memory(host, question) if question else None
    return page(request, "ask.html", q=question, answered=answered, trouble=await host.trouble())


def question_routes() -> list[Route]:
    return [Route("/memory/ask", show_asking)]
