"""`hermes sessions`: list, read, search, name, export and delete sessions.

`hermes sessions delete`: show what will be deleted, ask, and delete it.

`hermes sessions usage`: the tokens a session has used, as `/usage` shows them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec import to_builtins

from hermes.app import App
from hermes.cli.dialog import agree
from hermes.cli.output import note, one_line, print_json, print_table, printable, say, saying, session_head, show_time
from hermes.cli.searching import LimitOption, SourceOption, search_sessions
from hermes.cli.start import AsJson, load_app, read_store, show_store, with_store, write_store
from hermes.db.engine import Tx
from hermes.db.leases import new_owner
from hermes.errors import StoreError, UsageError
from hermes.files import replacing
from hermes.llm.tokens import view_tokens
from hermes.owner.sessions import Snapshot, describe_removal, plan_removal, read_snapshot, remove_session
from hermes.settings import COLOR
from hermes.store.export import message_to_json, to_json, to_jsonl, to_markdown, with_compressions
from hermes.store.hidden import TAKEN_BACK
from hermes.store.ids import snapshot_session
from hermes.store.memory_rows import hide_title
from hermes.store.sessions import Listed
from hermes.store.store import Store
from hermes.store.usage import SessionUsage, describe_length, describe_usage, read_usage
from hermes.types import Compression, Json, LiveView, Message, Session

FORGETS_LATER = "Memory forgets it once it can be reached; `hermes memory outbox list` shows open requests."
FORGET_TIMEOUT_SECONDS = 10.0
"""Time limit for telling memory to forget; a background process does the rest."""
SessionArgument = Annotated[str, typer.Argument(metavar="SESSION", help="An id, the start of an id, or a title.")]


def delete_session(
    ctx: typer.Context,
    name: SessionArgument,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    everywhere: Annotated[bool, typer.Option("--everywhere", help="Have memory providers forget it too.")] = False,
    json: AsJson = False,
) -> None:
    """Delete a session with its messages, snapshots, queued work and search entries. Shows first what will be
    deleted."""
    host = load_app(ctx)

    found = read_store(host, lambda store, tx: plan_removal(store, tx, store.sessions.find(tx, name).id))
    informed = found.told
    if not json:
        say(f"This deletes {describe_removal(found.deletion)}.")
        for provider in informed:
            asked = f"{provider} is asked to forget it; `hermes memory outbox list` shows requests that failed."
            stays = f"Messages synced to {provider} stay there; --everywhere has them forgotten too."
            say(asked if everywhere else stays)
    agree("Delete it for good?", "deleting", "deleted", yes)

    done = with_store(host, lambda store: remove_session(host, store, found, everywhere=everywhere))
    unasked = done.unasked
    try:
        with_store(host, Store.tidy)
    except StoreError as error:
        note(f"Some deleted data remains in the files until it is overwritten: {error.message}")
    if everywhere and informed:
        _deliver_deletion(host, [provider for provider in informed if provider not in unasked])
    if json:
        print_json({"deleted": to_builtins(done.deletion), "stays_with": unasked if everywhere else informed})
        return
    say("Deleted.")
    for provider in unasked:
        say(f"{provider} cannot forget on request: messages synced to it stay there.")


def _deliver_deletion(host: App, asked: Sequence[str]) -> None:
    """Deliver the deletion to the chosen provider now, since no chat may run here for a long time. Other providers
    receive it when they are chosen again."""
    from hermes.cli.outbox import (
        MAX_LANES,
        start_deliverer,
    )  # imported late: other session commands need no providers
    from hermes.owner.memory import OwnMemory

    async def run(store: Store) -> tuple[str, bool]:
        memory = OwnMemory(host, store, new_owner(), lanes=MAX_LANES)
        memory.start_deliveries()
        return memory.provider.name if memory.provider else "", await memory.finish(FORGET_TIMEOUT_SECONDS)

    with saying("Asking memory to forget it; its server may have to start first"):
        chosen, all_synced = with_store(host, run)
    for provider in asked:
        if provider != chosen:
            note(f"{provider} is not the chosen memory provider: it forgets this when it is chosen again.")
    if not all_synced:
        start_deliverer(host)
        note(FORGETS_LATER)


def session_usage(ctx: typer.Context, name: SessionArgument, json: AsJson = False) -> None:
    """Show the tokens that a session has used, by model, and its present size."""
    session, view, counted = read_store(load_app(ctx), lambda store, tx: _read(store, tx, name))
    tokens = view_tokens(view)
    if json:
        length = {"session_id": session.id, "compressions": view.epoch, "view_tokens": tokens}
        print_json({**length, **to_builtins(counted)})
        return
    say(session_head(session))
    say(f"{describe_length(counted, view.epoch)}; the model sees ~{tokens:,} tokens of it now")
    for line in describe_usage(counted):
        say(printable(line))


def _read(store: Store, tx: Tx, name: str) -> tuple[Session, LiveView, SessionUsage]:
    session = store.sessions.find(tx, name)
    return session, store.compressions.view(tx, session.id), read_usage(tx, session.id)


app = typer.Typer(
    help="List, read, search, name, export and delete sessions.", no_args_is_help=True, rich_markup_mode=None
)

INCOGNITO = "kept out of memory"
"""Mark of messages that were sent incognito or forgotten later."""
UndoneOption = Annotated[bool, typer.Option("--undone", help="Include messages that were undone, marked.")]


@app.command("list")
def list_sessions(
    ctx: typer.Context,
    limit: LimitOption = 20,
    source: SourceOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Include sessions that continue under another id.")] = False,
    json: AsJson = False,
) -> None:
    """List sessions, the most recently active first."""
    host = load_app(ctx)

    def look(store: Store, tx: Tx) -> list[Listed]:
        return store.sessions.recent(tx, limit=limit, source=source, everything=everything)

    listed = read_store(host, look)
    if json:
        print_json([{**to_builtins(entry.session), "last_active": entry.last_active} for entry in listed])
    elif not listed:
        note("no sessions yet")
    else:
        rows = [
            (
                entry.session.id,
                entry.session.source,
                show_time(entry.last_active),
                str(entry.session.message_count),
                entry.session.title or one_line(entry.preview, 60),
            )
            for entry in listed
        ]
        print_table(("id", "source", "last active", "messages", "title"), rows, color=host.settings.get(COLOR))


@app.command("show")
def show_session(
    ctx: typer.Context,
    name: SessionArgument,
    live: Annotated[bool, typer.Option("--live", help="Only messages the model sees now.")] = False,
    undone: UndoneOption = False,
    json: AsJson = False,
) -> None:
    """Show a session's messages, oldest first: all of them, or with --live those the model sees. Accepts snapshots
    too."""
    host = load_app(ctx)
    if snapshot_session(name) is not None:
        _print_view(read_store(host, lambda store, tx: store.compressions.snapshot(tx, name)), json)
    elif live:
        session, view = read_store(host, lambda store, tx: _find_view(store, tx, name))
        if not json:
            say(session_head(session))
        _print_view(view, json)
    else:
        show_store(host, lambda store, tx: _print_history(store, tx, name, undone, json))


@app.command("snapshots")
def list_snapshots(ctx: typer.Context, name: SessionArgument, json: AsJson = False) -> None:
    """List the snapshots taken before each compression. `hermes sessions show ID` reads one."""
    host = load_app(ctx)
    taken = read_store(host, lambda store, tx: _read_snapshots(store, tx, name))
    if json:
        print_json([to_builtins(snapshot) for snapshot in taken])
    elif not taken:
        note("this session was never compressed")
    else:
        rows = [
            (
                snapshot.id,
                show_time(snapshot.created_at),
                f"{snapshot.messages_before} → {snapshot.messages_after}",
                f"~{snapshot.tokens_before:,} → ~{snapshot.tokens_after:,}",
            )
            for snapshot in taken
        ]
        print_table(("id", "when", "messages", "tokens"), rows, color=host.settings.get(COLOR))


app.command("search")(search_sessions)
app.command("usage")(session_usage)


@app.command("title")
def title_session(
    ctx: typer.Context,
    name: SessionArgument,
    title: Annotated[
        str | None, typer.Argument(help="The new title; without it, the current title is printed.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the title.")] = False,
) -> None:
    """Print a session's title, or change it."""
    if title is not None and not title.strip():
        raise UsageError("a title cannot be empty", hint="--clear removes it")

    def change(store: Store, tx: Tx) -> str | None:
        session = store.sessions.find(tx, name)
        if title is None and not clear:
            return session.title
        store.sessions.set_title(tx, session.id, None if clear else title)
        if title is not None and store.incognito.is_on(tx, session.id):
            hide_title(tx, session.id, title)
        return None if clear else title

    say(printable(write_store(load_app(ctx), change) or "(no title)"))


@app.command("export")
def export_sessions(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="SESSION...", help="Which sessions.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every session of this profile.")] = False,
    form: Annotated[Literal["jsonl", "md"], typer.Option("--format", help="JSON lines or Markdown.")] = "jsonl",
    undone: UndoneOption = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file instead of standard output.")] = None,
    force: Annotated[bool, typer.Option("-f", "--force", help="Replace an existing file.")] = False,
) -> None:
    """Export sessions with every message in order."""
    if bool(names) == everything:
        raise UsageError("name the sessions to export, or use --all", hint="`hermes sessions list` shows them")
    render = to_jsonl if form == "jsonl" else to_markdown

    def write(store: Store, tx: Tx, put: Callable[[str], object]) -> int:
        listed = store.sessions.recent(tx, limit=-1, everything=True) if everything else []
        sessions = [one.session for one in listed] or [store.sessions.find(tx, name) for name in names or []]
        for session in sessions:
            messages, marked = _read_messages(store, tx, session.id, undone)
            for line in render(session, messages, store.compressions.all(tx, session.id), marked):
                put(f"{line}\n")
        return len(sessions)

    if output is None:
        show_store(load_app(ctx), lambda store, tx: write(store, tx, sys.stdout.write))
        return
    if output.is_file() and not force:
        raise UsageError(f"{output} exists already", hint="--force replaces it")
    with replacing(output) as file:
        count = show_store(load_app(ctx), lambda store, tx: write(store, tx, file.write))
    note(f"{count} sessions written to {output}")


app.command("delete")(delete_session)


def _read_snapshots(store: Store, tx: Tx, name: str) -> list[Snapshot]:
    """Return the snapshots of the named session, oldest first."""
    rows = store.compressions.all(tx, store.sessions.find(tx, name).id)
    return [read_snapshot(store, tx, row) for row in rows]


def _find_view(store: Store, tx: Tx, name: str) -> tuple[Session, LiveView]:
    session = store.sessions.find(tx, name)
    return session, store.compressions.view(tx, session.id)


def _read_messages(store: Store, tx: Tx, session_id: str, undone: bool) -> tuple[Iterator[Message], frozenset[int]]:
    """Return a session's messages, with `undone` also retracted ones, and the ids of all retracted messages."""
    read = store.messages.with_undone if undone else store.messages.history
    return read(tx, session_id), frozenset(message.id for message in store.messages.undone(tx, session_id))


def _print_history(store: Store, tx: Tx, name: str, undone: bool, as_json: bool) -> None:
    session = store.sessions.find(tx, name)
    compressions = store.compressions.all(tx, session.id)
    messages, marked = _read_messages(store, tx, session.id, undone)
    following = store.sessions.live_id(tx, session.id)
    if as_json:
        session_json = to_json(session, messages, compressions, marked)
        print_json({**session_json, "continued_in": following if following != session.id else None})
        return
    say(session_head(session))
    left_out = store.incognito.ids(tx, session.id)

    def mark(message: Message) -> str:
        taken_back = f" · {TAKEN_BACK}" if message.id in marked else ""
        return f"{taken_back} · {INCOGNITO}" if message.id in left_out else taken_back

    _print_messages(messages, compressions, mark)
    if marked and not undone:
        note(f"({len(marked)} messages were taken back; --undone shows them)")
    if following != session.id:
        note(f"(an older version continued this session as {following})")


def _print_messages(
    messages: Iterator[Message], compressions: list[Compression], mark_of: Callable[[Message], str]
) -> None:
    for one in with_compressions(messages, compressions):
        if isinstance(one, Compression):
            say(f"\n--- the model sees the messages above as a summary ({one.snapshot_id}) ---")
        else:
            say(_message_text(one, mark_of(one)))


def _print_view(view: LiveView, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "session_id": view.session_id,
                "epoch": view.epoch,
                "head": [message_to_json(message) for message in view.head],
                "summary": view.summary,
                "tail": [message_to_json(message) for message in view.tail],
            }
        )
        return
    for message in view.head:
        say(_message_text(message))
    if view.summary is not None:
        say(f"\n[summary]\n{printable(view.summary)}")
    for message in view.tail:
        say(_message_text(message))


def _message_text(message: Message, mark: str = "") -> str:
    speaker = f"tool {message.tool_name}" if message.role == "tool" and message.tool_name else message.role
    calls: list[Json] = [f"  → {call.name}({call.arguments})" for call in message.tool_calls]
    body = [message.content] if message.content else []
    return printable("\n".join([f"\n[{speaker} · {show_time(message.timestamp)}{mark}]", *body, *calls]))
