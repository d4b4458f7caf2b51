"""The event stream of a session: new messages, the growing reply, and the state of memory.

Each event is HTML for parts of the page. Its id is the newest message in it, so a page that lost its connection resumes
from the store. Turns of other processes are found by polling the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from hermes.errors import NotFoundError, StoreError
from hermes.web.drawing import draw
from hermes.web.routing import host_of, read_number
from hermes.web.transcript import find_own, read_new
from hermes.web.turns import wait_for

STORE_POLL_SECONDS = 1.0
"""Interval between two reads of messages from other processes."""
MIN_DRAW_SECONDS = 0.08
"""Minimum interval between two renderings of a growing reply."""
KEEPALIVE_SECONDS = 15.0
MAX_FOLLOWERS = 50
"""Maximum number of open streams. A browser has few, because hidden pages close theirs."""
CROWDED = "Too many pages are open. Close some; this one still works when it is loaded again."


async def stream(request: Request) -> Response:
    host, session_id = host_of(request), request.path_params["session"]
    if host.turns.followers >= MAX_FOLLOWERS:
        return PlainTextResponse(CROWDED, 503)
    await host.read(lambda store, people, tx: find_own(store, people, tx, session_id))
    after = read_number(request.headers.get("last-event-id") or request.query_params.get("after", "")) or 0
    return StreamingResponse(_counted(request, session_id, after), media_type="text/event-stream")


async def _counted(request: Request, session_id: str, after: int) -> AsyncIterator[str]:
    turns = host_of(request).turns
    turns.followers += 1
    try:
        async with aclosing(_events(request, session_id, after)) as events:
            async for event in events:
                yield event
    finally:
        turns.followers -= 1


async def _events(request: Request, session_id: str, after: int) -> AsyncGenerator[str, None]:
    """Yield an event whenever something on the page has changed."""
    host, shown, quiet = host_of(request), "", 0.0
    loop = asyncio.get_running_loop()
    csrf, here = request.app.state.door.csrf, request.url.path.removesuffix("/stream")
    while not host.turns.ending.is_set():
        begun, turn = loop.time(), host.turns.turn(session_id)
        changed = host.turns.bell(session_id).next
        try:
            new = await host.read(partial(read_new, session_id=session_id, after=after))
            session = await host.read(lambda store, people, tx: find_own(store, people, tx, session_id))
        except NotFoundError:
            yield _event(draw("gone.html"), after)
            return
        except StoreError:  # reported at the next write
            new = []
        trouble = await host.trouble(session_id)
        parts = draw("live.html", turn=turn, here=here, csrf=csrf, title=session.title, trouble=trouble)
        if new:
            after = new[-1].message.id
        if new or parts != shown:
            added = draw("added.html", shown=new, here=here, csrf=csrf) if new else ""
            yield _event(added + parts, after)
            shown, quiet = parts, loop.time()
        elif loop.time() - quiet > KEEPALIVE_SECONDS:
            yield ": alive\n\n"
            quiet = loop.time()
        # A long reply takes long to render: the browser gets it less often.
        await asyncio.sleep(
            max(MIN_DRAW_SECONDS, 4 * (loop.time() - begun)) if new or (turn and not turn.is_over) else 0
        )
        await wait_for(changed, STORE_POLL_SECONDS)


def _event(html: str, last_id: int) -> str:
    data = "\n".join(f"data: {line}" for line in html.splitlines())
    return f"id: {last_id}\n{data}\n\n"
