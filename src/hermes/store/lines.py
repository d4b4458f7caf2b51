"""Lines: messages as the next request needs them, read from the start or on from a mark."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.store.compressions import Compressions
from hermes.store.messages import parse_calls
from hermes.store.rewrites import Rewrites, Stamp
from hermes.store.schema import TableShape, as_text, live_rows, unmended_rows
from hermes.store.sessions import Sessions
from hermes.types import Json, Line


class Mark(Struct, frozen=True):
    """How far the view of a session was read, and when."""

    session_id: str
    stamp: Stamp
    epoch: int
    last_id: int


class Reading(Struct, frozen=True):
    """What the model sees of a session up to `mark`; `tail` alone where it was read on from an earlier mark."""

    mark: Mark
    head: tuple[Line, ...]
    summary: str | None
    tail: tuple[Line, ...]


class Lines:
    """The live views of one store, line by line. Every method runs inside the caller's transaction."""

    def __init__(self, shape: TableShape, sessions: Sessions, compressions: Compressions, rewrites: Rewrites) -> None:
        optional = map(shape.field, ("tool_calls", "tool_call_id", "author_name"))
        fields = ", ".join(("t.id, t.role, t.content", *optional))
        source = f"{shape.table} t LEFT JOIN {shape.extra_table} x ON x.{shape.extra_key} = t.id"
        self._select = f"SELECT {fields} FROM {source} WHERE t.session_id = ?"
        self._live, self._unmended = live_rows(shape), unmended_rows(shape)
        self._sessions = sessions
        self._compressions = compressions
        self._rewrites = rewrites

    def stamp(self, tx: Tx) -> Stamp:
        """Now. What is read after this may be read on from, with a mark of this stamp."""
        return self._rewrites.stamp(tx)

    def whole(self, tx: Tx, session_id: str, stamp: Stamp) -> Reading:
        """What the model sees now; NotFoundError when there is no such session. `stamp` is of now or earlier."""
        self._sessions.require(tx, session_id)
        latest = self._compressions.latest(tx, session_id)
        horizon = latest.horizon_message_id if latest else 0
        head: tuple[Line, ...] = ()
        if latest is not None and latest.kept_ids:
            among = "t.id <= ? AND t.id IN (SELECT value FROM json_each(?))"
            head = tuple(self._read(tx, among, session_id, horizon, json.dumps(latest.kept_ids)))
        tail = tuple(self._read(tx, "t.id > ?", session_id, horizon))
        mark = Mark(session_id, stamp, latest.epoch if latest else 0, tail[-1].id if tail else horizon)
        return Reading(mark, head, latest.summary if latest else None, tail)

    def since(self, tx: Tx, mark: Mark) -> Reading | Stamp:
        """What came after `mark`; where anything else happened meanwhile, only the stamp of now: read the whole.

        It must be a transaction of the writer's connection.
        """
        stamp = self._rewrites.stamp(tx)
        if stamp != mark.stamp or self._compressions.epoch(tx, mark.session_id) != mark.epoch:
            return stamp
        tail = tuple(self._read(tx, "t.id > ?", mark.session_id, mark.last_id))
        last_id = tail[-1].id if tail else mark.last_id
        return Reading(Mark(mark.session_id, stamp, mark.epoch, last_id), (), None, tail)

    def _read(self, tx: Tx, which: str, *values: Json) -> Iterator[Line]:
        # Looking each row up among the mended ones takes as long as reading it, and most files have none.
        mended = tx.execute("SELECT 1 FROM hermes_mended LIMIT 1").fetchone() is not None
        cursor = tx.cursor()
        cursor.row_factory = None
        live = self._live if mended else self._unmended
        for key, role, content, calls, call_id, author in cursor.execute(
            f"{self._select} AND {which} AND {live} ORDER BY t.id", values
        ):
            text = content if type(content) is str else as_text(content)
            yield Line(key, role, text, parse_calls(calls) if calls else (), call_id, author)
