"""Parsing of a question into search words, in one workspace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import BindParameter, bindparam, select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import peers
from hermes.memory_server.embedder import SearchQuestion, Vector
from hermes.memory_server.engine.sentences import asks_for_secret
from hermes.ranking.dates import Dates, asks_when, find_dates
from hermes.ranking.names import MAX_CACHED_TEXTS, MAX_SPELLINGS, leave_out, spellings
from hermes.ranking.traits import CONFIDENTIAL, UNWANTED, speaks_of_oneself
from hermes.ranking.words import split_words, telling_words


def _naming(names: int) -> PreparedStatement:
    given: list[BindParameter[str]] = [bindparam(f"n{number}") for number in range(names)]
    return PreparedStatement(
        select(peers.c.id, peers.c.name).where(
            peers.c.workspace_id == bindparam("workspace_id"), peers.c.name.in_(given)
        )
    )


NAMED = {names: _naming(names) for names in (12, 36, MAX_SPELLINGS)}
"""Statements that find which of several names are peers, by the number of names: fewer names are faster."""


@dataclass(frozen=True, slots=True)
class SearchWords:
    """A question as a search uses it. Names of peers are removed from its text, because they say who it is about, not
    what.
    """

    text: str
    words: tuple[str, ...]
    vector: Vector
    named: frozenset[int]
    """The peers that the question names."""
    dates: Dates
    asks_when: bool
    of_oneself: bool
    """True if the question names nobody, and its asker asks about themselves."""
    withheld: int
    """Traits of messages that are left out: those that a person asked not to remember, and secrets unless the question
    asks for one.
    """


def understand(tx: Tx, workspace_id: int, question: SearchQuestion) -> SearchWords:
    """Split a question into its words and the peers of the workspace that it names."""
    named = _named(tx, workspace_id, question.text)
    text = leave_out(question.text, [*named.values()])
    words = split_words(text)
    return SearchWords(
        text,
        tuple(telling_words(words)),
        question.vector if text == question.text or question.direction is None else question.direction(text),
        frozenset(named),
        find_dates(question.text),
        asks_when(question.text),
        not named and speaks_of_oneself(text, words),
        find_withheld(question.text),
    )


@lru_cache(maxsize=MAX_CACHED_TEXTS)
def find_withheld(question: str) -> int:
    """Return the traits of messages that a question does not bring."""
    return UNWANTED if asks_for_secret(question) else UNWANTED | CONFIDENTIAL


def without_names(tx: Tx, workspace_id: int, text: str) -> str:
    """Return a question without the names of peers."""
    return leave_out(text, [*_named(tx, workspace_id, text).values()])


def _named(tx: Tx, workspace_id: int, text: str) -> dict[int, str]:
    names = spellings(text)
    if not names:
        return {}
    size = next(size for size in NAMED if size >= len(names))
    given = {f"n{number}": name for number, name in enumerate(names + names[-1:] * (size - len(names)))}
    return {row.id: row.name for row in NAMED[size].rows(tx, workspace_id=workspace_id, **given)}
