"""`hermes sessions search`: full-text search over all messages, best match first."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated

import typer

from hermes.cli.output import note, print_json, show_time
from hermes.cli.start import AsJson, load_app, with_store
from hermes.cli.table import print_table
from hermes.db.engine import Tx
from hermes.errors import UsageError
from hermes.ranking.words import STEM_CHARS, is_pair, split_words, telling_words
from hermes.scope import OWNER
from hermes.settings import COLOR
from hermes.store.export import message_to_json
from hermes.store.reach import Narrowed
from hermes.store.search import HistoryHit
from hermes.store.store import Store
from hermes.store.words import snippet

DAY = timedelta(days=1)
DATE_CHARS = len("2026-01-31")
OTHER_COLUMNS = 62
"""Width of the session, time and role columns."""
MIN_EXCERPT_COLUMNS = 30
MIN_STEM_CHARS = 3
LimitOption = Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000_000, help="Maximum number of results.")]
SourceOption = Annotated[str | None, typer.Option("--source", help="Only sessions of this source: cli, telegram, …")]
Since = Annotated[str | None, typer.Option("--since", metavar="DATE_CHARS", help="Only messages from this date on.")]
Until = Annotated[
    str | None, typer.Option("--until", metavar="DATE_CHARS", help="Only messages up to the end of this date.")
]


def search_sessions(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(help='Words, a question or a date; "quoted words" must occur exactly.')],
    limit: LimitOption = 10,
    session: Annotated[str | None, typer.Option("--session", help="Only in this session.")] = None,
    source: SourceOption = None,
    since: Since = None,
    until: Until = None,
    json: AsJson = False,
) -> None:
    """Search all messages, best match first."""
    host = load_app(ctx)
    text = " ".join(words)
    start, end = _moment(since), _moment(until, whole_day=True)

    async def work(store: Store) -> list[HistoryHit]:
        await store.index(_progress("indexing"))

        def find(tx: Tx) -> list[HistoryHit]:
            within = store.sessions.find(tx, session).id if session else None
            narrowed = Narrowed(within, source, start, end)
            return store.search.find(tx, text, OWNER, limit=limit, narrowed=narrowed)

        return await store.read(find)

    hits = with_store(host, work)
    if json:
        print_json([{**message_to_json(hit.message), "source": hit.source, "title": hit.title} for hit in hits])
    elif not hits:
        note(f"nothing found for '{text}'")
    else:
        rows = [
            (hit.message.session_id, show_time(hit.message.timestamp), hit.message.role, _excerpt(hit, text))
            for hit in hits
        ]
        columns = ("session", "when", "role", "text")
        print_table(columns, rows, color=host.settings.get(COLOR), marked=_pattern(text))


def _moment(written: str | None, *, whole_day: bool = False) -> float | None:
    """Parse a date or time. A bare date means its start, or with `whole_day` its end."""
    if written is None:
        return None
    text = written.strip()
    try:
        moment = datetime.fromisoformat(text)
        return (moment + DAY if whole_day and len(text) <= DATE_CHARS else moment).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        hint = "Write it as 2026-01-31 or 2026-01-31T14:00; years 1 and 9999 are too far off"
        raise UsageError(f"'{written}' is not a date that can be searched for", hint=hint) from error


def _excerpt(hit: HistoryHit, text: str) -> str:
    """Return the matching part of a message, as long as the terminal allows."""
    if not sys.stdout.isatty():
        return hit.snippet
    room = max(MIN_EXCERPT_COLUMNS, shutil.get_terminal_size().columns - OTHER_COLUMNS)
    return snippet(hit.message.content or "", text, room)


def _pattern(text: str) -> str:
    """Return a pattern that matches the words of a query in any inflection."""
    words = [word.rstrip("*") for word in telling_words(split_words(text))]
    forms = [re.escape(word) if is_pair(word) else rf"\b{re.escape(_stem(word))}\w*" for word in words]
    return f"(?i){'|'.join(forms)}" if forms else ""


def _stem(word: str) -> str:
    return word[: min(STEM_CHARS, max(MIN_STEM_CHARS, len(word) - 1))]


def _progress(what: str) -> Callable[[int], None]:
    """Return a callback that prints progress at a terminal, from the second batch on."""
    total = 0

    def report(done: int) -> None:
        nonlocal total
        total += done
        if total > done and sys.stderr.isatty():
            sys.stderr.write(f"\r{what} … {total} messages ")
            sys.stderr.flush()

    return report
