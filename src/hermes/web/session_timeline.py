"""The timeline of a session: messages, the wait for each reply, compressions, and the present request to the model.

A timeline of facts as bars, rendered here so that it needs no script.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby

from markupsafe import Markup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hermes.db.engine import Tx
from hermes.db.queue_items import unsettled
from hermes.errors import NotFoundError
from hermes.llm.tokens import message_tokens
from hermes.owner.sessions import PartName, Snapshot, ViewPart, read_parts, read_snapshot
from hermes.settings import CONTEXT_LENGTH
from hermes.store.compressions import Failures, read_failures
from hermes.store.people import People
from hermes.store.store import Store
from hermes.types import Compression, Message, Session
from hermes.web.chat import read_count, session_path
from hermes.web.drawing import draw, page, shorten, show_day, show_moment
from hermes.web.routing import host_of
from hermes.web.transcript import ShownMessage, find_own, read_transcript

MAX_WAITS, MAX_COMPRESSIONS = 50, 20
MAX_TEXT_CHARS, MAX_SUMMARY_CHARS = 2_000, 20_000
MAX_SNAPSHOT_MESSAGES = 200
PARTS: Mapping[PartName, str] = {
    "system": "System prompt",
    "memory": "Recalled by memory",
    "kept": "First messages, kept whole",
    "summary": "Summary of what was compressed",
    "said": "Messages of people",
    "replies": "Replies",
    "tools": "Tool calls and results",
}
"""Titles of the parts of a request."""


class SeenCompression(Struct, frozen=True):
    """A compression with its summary."""

    epoch: int
    summary: str
    snapshot: Snapshot


class TimelineEntry(Struct, frozen=True):
    """One message. `waited_seconds` is the time until a reply, `recall_seconds` the part of it that memory took;
    `compressions` are those that end with this message."""

    id: int
    at: float
    role: str
    text: str
    tool: str = ""
    tokens: int = 0
    memories: int = 0
    waited_seconds: float | None = None
    recall_seconds: float | None = None
    is_incognito: bool = False
    compressions: Sequence[SeenCompression] = ()


class SessionWait(Struct, frozen=True):
    """A queued entry of a session: for memory, for the agent, or for a chat."""

    id: int
    queue: str
    state: str
    since: float
    attempts: int
    reason: str


class SessionTimeline(Struct, frozen=True):
    """A page of a session's timeline, the oldest entry first."""

    session: Session
    parts: Sequence[ViewPart]
    entries: Sequence[TimelineEntry]
    waits: Sequence[SessionWait]
    has_earlier: bool
    failures: Failures = Failures()
    """Failed compressions since the last successful one."""

    @property
    def tokens(self) -> int:
        return sum(one.tokens for one in self.parts)

    @property
    def days(self) -> list[tuple[str, list[TimelineEntry]]]:
        return [(day, list(group)) for day, group in groupby(self.entries, lambda one: show_day(one.at))]


def read_timeline(store: Store, people: People, tx: Tx, session_id: str, before: int | None = None) -> SessionTimeline:
    """Return the newest page of one of the owner's sessions, or the page before a message."""
    seen = read_transcript(store, people, tx, session_id, before)
    made = _compressions(store, tx, [one.message for one in seen.shown], before)
    said_at: float | None = None
    entries = []
    for one in seen.shown:
        entries.append(_entry(one, said_at, made[one.message.id]))
        said_at = one.message.timestamp if one.message.role == "user" else None if _is_reply(one.message) else said_at
    waits = [
        SessionWait(one.id, one.queue, one.state, one.created_at, one.attempts, one.reason or "")
        for one in unsettled(tx, session_id, limit=MAX_WAITS)
    ]
    parts, failures = read_parts(store, tx, seen.session), read_failures(tx, session_id)
    return SessionTimeline(seen.session, parts, entries, waits, seen.has_earlier, failures)


def _compressions(
    store: Store, tx: Tx, messages: Sequence[Message], before: int | None
) -> Mapping[int, Sequence[SeenCompression]]:
    """Return the compressions of a page, by the last message that each covers."""
    found: dict[int, list[SeenCompression]] = defaultdict(list)
    rows = store.compressions.all(tx, messages[0].session_id) if messages else []
    here = [one for one in rows if messages[0].id <= one.horizon_message_id and _is_before(one, before)]
    for row in here[-MAX_COMPRESSIONS:]:
        covered = max(one.id for one in messages if one.id <= row.horizon_message_id)
        found[covered].append(
            SeenCompression(row.epoch, row.summary[:MAX_SUMMARY_CHARS], read_snapshot(store, tx, row))
        )
    return found


def _is_before(row: Compression, message_id: int | None) -> bool:
    return message_id is None or row.horizon_message_id < message_id


def _entry(one: ShownMessage, said_at: float | None, compressions: Sequence[SeenCompression]) -> TimelineEntry:
    message, brought = one.message, one.injection
    tool = message.tool_name or (one.call.name if one.call else "") or ", ".join(c.name for c in message.tool_calls)
    waited = message.timestamp - said_at if said_at is not None and _is_reply(message) else None
    return TimelineEntry(
        message.id,
        message.timestamp,
        message.role,
        (message.content or "")[:MAX_TEXT_CHARS],
        tool,
        message_tokens(message),
        0 if brought is None else brought.used,
        None if waited is None else round(max(0.0, waited), 3),
        None if brought is None else round(brought.seconds, 3),
        one.is_incognito,
        compressions,
    )


def _is_reply(message: Message) -> bool:
    return message.role == "assistant" and not message.tool_calls


async def show_timeline(request: Request) -> Response:
    host, session_id = host_of(request), request.path_params["session"]
    before = read_count(request, "before") if "before" in request.query_params else None
    seen = await host.read(partial(read_timeline, session_id=session_id, before=before))
    window = host.app.settings.get(CONTEXT_LENGTH) if host.app.settings.is_given(CONTEXT_LENGTH) else None
    return page(
        request, "session_timeline.html", seen=seen, here=session_path(session_id), before=before, names=PARTS,
        window=window,
    )  # fmt: skip


async def show_snapshot(request: Request) -> Response:
    """Show the request to the model just before a compression."""
    host, session_id = host_of(request), request.path_params["session"]
    epoch = request.path_params["epoch"]

    def look(store: Store, people: People, tx: Tx) -> tuple[Snapshot, list[ShownMessage], str | None]:
        find_own(store, people, tx, session_id)
        row = next((one for one in store.compressions.all(tx, session_id) if one.epoch == epoch), None)
        if row is None:
            raise NotFoundError(f"this session has no compression {epoch}", hint="Its timeline shows them")
        view = store.compressions.snapshot(tx, row.snapshot_id)
        calls = {call.id: call for message in view.messages for call in message.tool_calls}
        shown = [ShownMessage(one, calls.get(one.tool_call_id or "")) for one in view.messages]
        return read_snapshot(store, tx, row), shown, view.summary

    snapshot, messages, summary = await host.read(look)
    shown = messages[-MAX_SNAPSHOT_MESSAGES:]
    return page(
        request, "snapshot.html", epoch=epoch, here=session_path(session_id), snapshot=snapshot, shown=shown,
        left_out=len(messages) - len(shown), summary=summary,
    )  # fmt: skip


def routes() -> list[Route]:
    one = "/sessions/{session:path}/timeline"
    return [Route(f"{one}/snapshots/{{epoch:number}}", show_snapshot), Route(one, show_timeline)]


WIDTH = 1000
MIN_BAR = 12.0
DAY_SECONDS = 86_400.0


class HeldSpan(Struct, frozen=True):
    """A text and the time when it held; None for an open or unknown end."""

    text: str
    since: float | None
    until: float | None
    is_shown: bool = False


class Bar(Struct, frozen=True):
    """A rendered span."""

    x: float
    width: float
    text: str
    when: str
    is_shown: bool


def draw_timeline(spans: Sequence[HeldSpan], now: float) -> Markup:
    """Return spans as bars, the oldest above; "" if there is nothing to compare."""
    moments = [moment for one in spans for moment in (one.since, one.until) if moment is not None]
    if not moments or (len(spans) < 2 and spans[0].until is None):
        return Markup("")
    start, end = min(moments), max(*moments, now)
    scale = WIDTH / max(end - start, 1.0)
    show = show_day if end - start > 2 * DAY_SECONDS else show_moment
    bars = []
    for one in spans:
        x = min(0.0 if one.since is None else (one.since - start) * scale, WIDTH - MIN_BAR)
        last = end if one.until is None else one.until
        width = max(MIN_BAR, (last - start) * scale - x)
        when = f"{show(one.since) or 'before'} – {show(one.until) or 'today'}"
        bars.append(Bar(x, width, shorten(one.text, 120), when, one.is_shown))
    return Markup(draw("timeline.html", bars=bars, width=WIDTH))
