"""Search reach: the rows that a search may see, as a condition of each of its queries, so that nothing else is counted,
ranked or shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.scope import DIRECT, Group, Guest, Owner, Scope
from hermes.store.hidden import LEFT_OUT, LEFT_OUT_IDS
from hermes.store.schema import TableShape, kept_rows
from hermes.types import ECHO


class Narrowed(Struct, frozen=True):
    """Filters of a search: a session, a source, and times in Unix seconds."""

    session_id: str | None = None
    source: str | None = None
    since: float | None = None
    until: float | None = None


EVERYWHERE = Narrowed()
OF_SESSIONS = {"session_id": "s.id = :session_id", "source": "s.source = :source"}
OF_TIME = {"since": "t.timestamp >= :since", "until": "t.timestamp < :until"}


class SearchReach(Struct, frozen=True):
    """The reach of a search as SQL: messages `t`, their side table `x`, their sessions `s`."""

    rows: str
    """The FROM clause."""
    where: str
    values: Mapping[str, str | float]
    """Values of the named parameters in all conditions."""
    sessions: str | None
    """Query for the ids of the reached sessions; None for all."""
    said: str
    """Condition on `t` and `x` for messages of reached sessions that may be known."""
    shown: str
    """Condition on `t` for messages that may be results; others are still used as context of a result."""
    time: str
    """Condition on `t` for the reached time; "" for any."""
    hidden: str | None
    """Query for the ids of messages that must not be known; None for none."""


class Reaches:
    """The reach of searches in one store."""

    def __init__(self, messages: TableShape, sessions: TableShape) -> None:
        self._sessions = f"({sessions.select}) s"
        self._rows = (
            "messages t LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
            f"JOIN {self._sessions} ON s.id = t.session_id"
        )
        # Tool results and replies that only quote are excluded; an older index may contain them.
        said = f"t.role <> 'tool' AND coalesce({messages.field('finish_reason')}, '') <> '{ECHO}'"
        self._said = f"{kept_rows(messages)} AND {said}"

    def of_person(self, scope: Scope, narrowed: Narrowed) -> SearchReach:
        """Return the reach of a person who searches for themselves."""
        return self._reach(scope, narrowed, self._said, "1", None)

    def of_memory(self, scope: Scope, roles: Sequence[str]) -> SearchReach:
        """Return the reach of the agent's memory: messages of `roles`, without incognito ones."""
        shown = " OR ".join(f"t.role = '{role}'" for role in roles)
        return self._reach(scope, EVERYWHERE, f"{self._said} AND NOT {LEFT_OUT}", f"({shown})", LEFT_OUT_IDS)

    def _reach(self, scope: Scope, narrowed: Narrowed, said: str, shown: str, hidden: str | None) -> SearchReach:
        given = {name: value for name in (*OF_SESSIONS, *OF_TIME) if (value := getattr(narrowed, name)) is not None}
        within, values = _within(scope)
        of_sessions = [*within, *(OF_SESSIONS[name] for name in given if name in OF_SESSIONS)]
        sessions = f"SELECT s.id FROM {self._sessions} WHERE {' AND '.join(of_sessions)}" if of_sessions else None
        of_time = [OF_TIME[name] for name in given if name in OF_TIME]
        where = " AND ".join([said, *of_sessions, *of_time])
        return SearchReach(self._rows, where, {**values, **given}, sessions, said, shown, " AND ".join(of_time), hidden)


def _within(scope: Scope) -> tuple[list[str], dict[str, str]]:
    """Return the conditions on sessions `s` within a scope, with their values. Sessions without a user belong to the
    owner."""
    direct = ", ".join(f"'{kind}'" for kind in DIRECT)
    match scope:
        case Owner():
            return [], {}
        case Guest(platform, user_id):
            own = ["s.source = :platform", "s.user_id = :user_id", f"s.chat_type IN ({direct})"]
            return own, {"platform": platform, "user_id": user_id}
        case Group(session_key):
            own = ["s.session_key = :session_key", f"coalesce(s.chat_type, '') NOT IN ({direct})"]
            return own, {"session_key": session_key}
