"""`hermes sessions usage`: the tokens a session has used, as `/usage` shows them."""

from __future__ import annotations

import typer
from msgspec import to_builtins

from hermes.cli.output import print_json, printable, say, session_head
from hermes.cli.session_deletion import SessionArgument
from hermes.cli.start import AsJson, load_app, read_store
from hermes.db.engine import Tx
from hermes.llm.tokens import view_tokens
from hermes.store.store import Store
from hermes.store.usage import SessionUsage, describe_length, describe_usage, read_usage
from hermes.types import LiveView, Session


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
