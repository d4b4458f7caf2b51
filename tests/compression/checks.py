"""Invariants of compression, checked from the log and the store alone. Each check returns the violations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hermes.db.engine import Tx
from hermes.store.store import Store
from hermes.types import Message

LINE = re.compile(
    r"\[(?P<bracket>[^\]]*)\] hermes\.compression: context compression "
    r"(?P<word>started|done|failed|skipped|busy): session=(?P<session>\S+) op=(?P<op>\S+)"
)


@dataclass(frozen=True, slots=True)
class Line:
    """A start or an end line."""

    bracket: str
    word: str
    session: str
    op: str


def read_lines(text: str) -> list[Line]:
    """The compression lines of a log, in order."""
    return [Line(found["bracket"], found["word"], found["session"], found["op"]) for found in LINE.finditer(text)]


def check_lines(lines: Iterable[Line]) -> list[str]:
    """Each operation has one start and one end line, for one session, the one in the bracket."""
    wrong: list[str] = []
    by_op: dict[str, list[Line]] = {}
    for line in lines:
        by_op.setdefault(line.op, []).append(line)
        if line.bracket != line.session:
            wrong.append(f"op {line.op}: session {line.bracket} works on session {line.session}")
    for op, found in by_op.items():
        if len(found) != 2 or found[0].word != "started" or found[1].word == "started":
            wrong.append(f"op {op} has the lines {[line.word for line in found]}")
        if len({line.session for line in found}) > 1:
            wrong.append(f"op {op} began with session {found[0].session} and ended with {found[-1].session}")
    return wrong


def check_one_at_a_time(lines: Sequence[Line]) -> list[str]:
    """No session has two compressions at a time. One that finds another running and reports `busy` is fine."""
    busy = {line.op for line in lines if line.word == "busy"}
    at_work: dict[str, str] = {}
    wrong: list[str] = []
    for line in lines:
        if line.op in busy:
            continue
        if line.word == "started":
            if line.session in at_work:
                wrong.append(f"session {line.session}: {line.op} began while {at_work[line.session]} was at work")
            at_work[line.session] = line.op
        else:
            at_work.pop(line.session, None)
    return wrong


async def check_store(store: Store, said: dict[str, list[str]], lines: Iterable[Line] = ()) -> list[str]:
    """The store holds exactly the sessions of `said` with all their messages; each view and snapshot is right."""
    done = [line.session for line in lines if line.word == "done"]

    def check(tx: Tx) -> list[str]:
        ids = {str(row["id"]) for row in tx.execute("SELECT id FROM sessions")}
        wrong = [f"session {key} came or went" for key in sorted(ids ^ set(said))]
        for session_id, texts in said.items():
            wrong += _check_session(store, tx, session_id, texts)
            rows = len(store.compressions.all(tx, session_id))
            if done and rows != done.count(session_id):
                wrong.append(f"session {session_id}: {rows} compressions, but {done.count(session_id)} ended well")
        return wrong

    return await store.read(check)


def _check_session(store: Store, tx: Tx, session_id: str, texts: list[str]) -> list[str]:
    history = list(store.messages.history(tx, session_id))
    wrong: list[str] = []
    if [message.content or "" for message in history] != texts:
        wrong.append(f"session {session_id}: what was said is not all there, once, in order")
    view = store.compressions.view(tx, session_id)
    if any(message.session_id != session_id for message in view.messages):
        wrong.append(f"session {session_id} sees messages of another")
    latest = store.compressions.latest(tx, session_id)
    horizon = latest.horizon_message_id if latest else 0
    if list(view.tail) != [message for message in history if message.id > horizon]:
        wrong.append(f"session {session_id}: a message after the horizon is missing or out of order")
    return wrong + _check_snapshots(store, tx, session_id, history)


def _check_snapshots(store: Store, tx: Tx, session_id: str, history: list[Message]) -> list[str]:
    """Everything that compressions removed is in the snapshots: together with the view they give the whole history."""
    wrong: list[str] = []
    shown = {message.id for message in store.compressions.view(tx, session_id).messages}
    last_horizon = 0
    for row in store.compressions.all(tx, session_id):
        before = store.compressions.snapshot(tx, row.snapshot_id)
        shown |= {message.id for message in before.messages}
        expected = [message for message in history if last_horizon < message.id <= row.upto_message_id]
        if list(before.tail) != expected:
            wrong.append(f"{row.snapshot_id} is not what its compressor saw")
        if row.horizon_message_id < last_horizon:
            wrong.append(f"{row.snapshot_id}: the horizon moved back")
        last_horizon = row.horizon_message_id
    if shown != {message.id for message in history}:
        wrong.append(f"session {session_id}: the snapshots do not give the history back")
    return wrong


async def check_late(store: Store, session_id: str, late: Sequence[str]) -> list[str]:
    """Messages that arrived while a compression ran are in the view, unchanged and in order."""
    view = await store.view(session_id)
    seen = [message.content for message in view.tail if message.content in late]
    return [] if seen == list(late) else [f"session {session_id}: of the late messages only {seen} are seen"]
