"""`hermes chat`: a conversation in the terminal, one question, or a line-by-line conversation from a pipe.

The output of `hermes chat --json`: one line per event, and for a single question a last line with its outcome.
Scripts rely on this format: docs/scripting.md describes it, and fields are never removed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from importlib import import_module
from typing import Annotated, Literal

import typer
from msgspec import Struct, to_builtins

from hermes.app import App
from hermes.cli.commands import run_command
from hermes.cli.conversation import CLOSE_TIMEOUT_SECONDS, TerminalConversation, find_live
from hermes.cli.first_start import offer_start, offer_to_memory
from hermes.cli.model import HOW_TO_SEE
from hermes.cli.outbox import start_deliverer
from hermes.cli.output import can_redraw, note, print_error, printable, say
from hermes.cli.piped import ask_with_input, read_lines
from hermes.cli.project_file import ProjectFile, State, TrustAnswer, choose_project_file
from hermes.cli.start import load_app, on_signals, start_home_log
from hermes.errors import HermesError, NotFoundError, UsageError
from hermes.events import Failed, MemoryUpdated, Notice, Replied, Stopped, TurnEvent, Waiting
from hermes.scope import TERMINAL
from hermes.settings import MEMORY_NOTICES
from hermes.slash.context import Again, Say
from hermes.slash.models import choose_model
from hermes.store.held_lease import WAITING

TWO_SESSIONS = "-c and -s name two sessions"
NO_SESSION = "there is no terminal session to resume yet"
INTERRUPTED_EXIT_CODE = 130


class TokenUsage(Struct, frozen=True):
    """Token counts as reported by the endpoint."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Ended(Struct, frozen=True):
    """The last line for a single question. `reply` is partial if the turn was stopped or failed."""

    reason: Literal["replied", "stopped", "failed", "refused"]
    """`refused` means that no turn was started."""
    exit_code: int
    session_id: str | None = None
    reply: str = ""
    usage: TokenUsage | None = None
    """Usage reported by the endpoint; None if it reports none."""
    error: str | None = None


def outcome_of(last: TurnEvent | HermesError) -> Ended:
    """Return the outcome from a turn's last event, or from the error that prevented the turn."""
    match last:
        case Replied(session_id=session_id, text=text):
            has_usage = last.prompt_tokens is not None or last.completion_tokens is not None
            used = TokenUsage(last.prompt_tokens, last.completion_tokens) if has_usage else None
            return Ended("replied", 0, session_id, text, used)
        case Stopped(session_id=session_id, text=text):
            return Ended("stopped", INTERRUPTED_EXIT_CODE, session_id, text)
        case Failed(session_id=session_id, message=message, text=text):
            return Ended("failed", 1, session_id, text, error=message)
        case HermesError():
            return Ended("refused", last.exit_code, error=last.line())
        case _:
            raise AssertionError(f"a turn ends with its reply, a stop or a failure, not with {last}")


def event_line(event: TurnEvent | Ended) -> str:
    """Return an event as one line of JSON; `type` is its class name."""
    return json.dumps({"type": type(event).__name__, **to_builtins(event)}, ensure_ascii=False)


ONE_SHOT_CLOSE_SECONDS = 2.0
"""Time limit, after the reply to a single question, for delivering unsynced messages to memory."""


def chat(
    ctx: typer.Context,
    question: Annotated[
        str | None,
        typer.Option("-q", "--question", help="Ask one question, print the reply and exit; - reads it from a pipe."),
    ] = None,
    session: Annotated[str | None, typer.Option("-s", "--session", help="Resume this session.")] = None,
    latest: Annotated[bool, typer.Option("-c", "--continue", help="Resume the latest terminal session.")] = False,
    model: Annotated[str | None, typer.Option("-m", "--model", help="Use this model in the session.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> int:
    """Talk to the agent. Input from a pipe is a conversation: each line is a message, each reply a line. With -q, piped
    text is added to the question."""
    if session is not None and latest:
        raise UsageError(TWO_SESSIONS, hint="Give one of them")
    try:
        app = load_app(ctx)
        typed: list[str] = []
        if question is None and not json:
            typed = offer_start(app)
            app = load_app(ctx)
        typed += offer_to_memory(app, may_ask=question is None and not json)
        asked = None if question is None else ask_with_input(question)
        return asyncio.run(_chat(app, asked, session, latest, model, json, typed))
    except HermesError as error:
        if json and question is not None:
            say(event_line(outcome_of(error)))
        raise


async def _chat(
    app: App,
    question: str | None,
    session: str | None,
    latest: bool,
    model: str | None,
    as_json: bool,
    typed: Sequence[str],
) -> int:
    async with await app.open_store() as store:
        start_home_log(app)
        conversation = TerminalConversation(app, store, for_one_turn=question is not None)
        async with _ending(
            conversation, ONE_SHOT_CLOSE_SECONDS if question is not None else CLOSE_TIMEOUT_SECONDS, as_json
        ):
            await _resume_requested(conversation, session, latest)
            is_live = question is None and not as_json and sys.stdin.isatty() and sys.stdout.isatty()
            if conversation.session_id is None:
                conversation.project = choose_project_file(app.home, _ask_about if is_live else None)
            if model is not None and (
                remark := await choose_model(await conversation.place(), model, how_to_see=HOW_TO_SEE)
            ):
                note(remark)
            if question is None:
                if as_json or not sys.stdin.isatty():
                    return await _read_lines(conversation, as_json)
                talking = import_module("hermes.cli.talk")  # imported late: only a terminal needs it
                code: int = await talking.talk(conversation, typed)
                return code
            last = await _ask(conversation, question, as_json)
        ended = outcome_of(last)
        if as_json:
            say(event_line(ended))
        return ended.exit_code


@asynccontextmanager
async def _ending(conversation: TerminalConversation, seconds: float, as_json: bool) -> AsyncIterator[None]:
    """Close the conversation even on errors. A background process delivers what memory has not received in time."""
    try:
        yield
    finally:
        delivered = await conversation.end(seconds)
        for event in conversation.pending_events:
            _print_event(conversation, event, as_json)
        if not delivered:
            start_deliverer(conversation.app)


def _ask_about(file: ProjectFile, state: State) -> TrustAnswer:
    """Ask about a file. Imported late: few conversations need it."""
    answer: TrustAnswer = import_module("hermes.cli.trust").wants(file, state)
    return answer


async def _resume_requested(conversation: TerminalConversation, session: str | None, latest: bool) -> None:
    """Resume the requested session. Otherwise the first message begins a new one."""
    store = conversation.store
    if session is not None:
        await conversation.resume(await store.read(lambda tx: find_live(store, tx, session)))
    elif latest:
        listed = await store.read(lambda tx: store.sessions.recent(tx, limit=1, source=TERMINAL))
        if not listed:
            hint = "`-s ID` resumes one of another kind; `hermes sessions list` shows them"
            raise NotFoundError(NO_SESSION, hint=hint)
        await conversation.resume(listed[0].session)


async def _ask(conversation: TerminalConversation, text: str, as_json: bool) -> TurnEvent:
    """Run one turn and return its last event. Only the reply goes to standard output."""
    if not as_json and can_redraw():  # at a terminal the reply is streamed
        # imported late: pipes need none
        printed = import_module("hermes.cli.screen").PrintedReply(conversation.app)
        return await _turn(conversation, Say(text), as_json, printed.show)
    last = await _turn(conversation, Say(text), as_json)
    if isinstance(last, Replied) and not as_json:
        say(last.text)
        sys.stdout.flush()  # before memory is synced
    return last


async def _read_lines(conversation: TerminalConversation, as_json: bool) -> int:
    """Run a message per line and print a reply per line. A failed turn prints an empty line, and the exit code is 1."""
    code = 0
    async for line in read_lines(sys.stdin.fileno()):
        text = line.strip()
        if not text:
            continue
        said: Say | Again = Say(text)
        if line.startswith("/"):
            try:
                with _stop_on_interrupt() as stop:
                    answered = await run_command(conversation, text, stop)
            except HermesError as error:
                print_error(error)
                code = 1
                continue
            if answered.text:
                note(answered.text)
            if answered.over or stop.is_set():
                code = INTERRUPTED_EXIT_CODE if stop.is_set() else code
                break
            if answered.say is None:
                continue
            said = answered.say
        last = await _turn(conversation, said, as_json)
        if not as_json:
            say(" ".join(last.text.split()) if isinstance(last, Replied) else "")
            sys.stdout.flush()
        code = code or outcome_of(last).exit_code
        if isinstance(last, Stopped):
            break
    return code


async def _turn(
    conversation: TerminalConversation,
    said: Say | Again,
    as_json: bool,
    show: Callable[[TurnEvent], None] = lambda _: None,
) -> TurnEvent:
    """Run one turn. Notices go to standard error, or with `as_json` all events to standard output."""
    with _stop_on_interrupt() as stop:
        async with aclosing(conversation.take_turn(said, stop)) as events:
            async for event in events:
                show(event)
                _print_event(conversation, event, as_json)
    return event


def _print_event(conversation: TerminalConversation, event: TurnEvent, as_json: bool) -> None:
    if as_json:
        say(event_line(event))
        sys.stdout.flush()
    else:
        _print_notice(conversation, event)


@contextmanager
def _stop_on_interrupt() -> Iterator[asyncio.Event]:
    """Stop the turn on Ctrl-C or SIGTERM, so that the partial reply is stored. A second signal ends the program."""
    stop = asyncio.Event()

    def interrupt(_: int) -> None:
        stop.set()
        restore()

    with on_signals(("SIGINT", "SIGTERM", "SIGHUP"), interrupt) as restore:
        yield stop


def _print_notice(conversation: TerminalConversation, event: TurnEvent) -> None:
    match event:
        case Notice(text):
            note(printable(text))
        case Waiting():
            note(WAITING)
        case Failed(message=message):
            note(f"hermes: {message}")
        case Stopped():
            note("hermes: stopped")
        case MemoryUpdated() if conversation.app.settings.get(MEMORY_NOTICES):
            note(printable(event.line))
        case _:
            pass
