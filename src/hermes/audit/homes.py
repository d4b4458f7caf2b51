"""Which of the sessions that older versions made of one conversation is the one where people talk today (its home)."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.audit.case import Case, is_open, may_reopen
from hermes.audit.damage import ORPHANED, ROTATED, Bind, End, Reopen, RepairStep
from hermes.types import Session


def find_home(case: Case, members: Sequence[Session], bound: Session) -> Session:
    """Where the conversation of a bound session lives.

    The binding is believed, unless a person's words went to another session after everything that the bound one has.
    From a session that a compression ended it leads on to the last child that holds something.
    """
    newest = case.said(bound).newest
    elsewhere = [
        member for member in members if member != bound and may_reopen(member) and case.said(member).went_on > newest
    ]
    if elsewhere:
        return max(elsewhere, key=lambda member: case.said(member).went_on)
    if bound.end_reason != ROTATED:
        return bound
    following = last_continuation(case, bound)
    return bound if case.said(bound).went_on > case.said(following).newest else following


def last_continuation(case: Case, session: Session) -> Session:
    """The last descendant that holds messages and that no clean-up put aside; the session itself when none does."""
    seen = {session.id}
    while (following := next_continuation(case, session)) is not None and following.id not in seen:
        session = following
        seen.add(session.id)
    return session


def next_continuation(case: Case, session: Session) -> Session | None:
    """The child in which a session that a compression ended goes on: it holds messages and no clean-up put it aside."""
    if session.end_reason != ROTATED:
        return None
    children = [child for child in case.children(session) if child.end_reason != ORPHANED and case.said(child).newest]
    return children[-1] if children else None


def move_in(
    case: Case, members: Sequence[Session], home: Session, key: str, loser_reason: str
) -> tuple[RepairStep, ...]:
    """The steps after which `key` means `home`, which is open, and no other member is, but for those others use."""
    steps: list[RepairStep] = [Bind(key, home.id)]
    if not is_open(home):
        steps.append(Reopen(home.id))
    for member in members:
        if member != home and is_open(member) and set(case.keys_of(member)) <= {key}:
            steps.append(End(member.id, loser_reason))
    return tuple(steps)
