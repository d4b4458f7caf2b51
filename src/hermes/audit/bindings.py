"""Keys that lead to the wrong session, children that no key leads to, and two open sessions for one key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from hermes.audit.case import MAX_ROTATION_SECONDS, UNKEYED, Case, is_open, may_reopen
from hermes.audit.damage import ORPHANED, ROTATED, SUPERSEDED, AuditNotice, Bind, Damage, End, Reopen, RepairStep
from hermes.types import Session


def find_bindings(case: Case) -> list[Damage]:
    """Return all damaged bindings; a session is in at most one damage."""
    found: list[Damage] = []
    named: set[str] = set()
    for find in (_find_misrouted, _find_cut_off, _find_orphans, _find_unkeyed, _find_twins):
        for damage in find(case):
            if named.isdisjoint(damage.sessions):
                found.append(damage)
                named.update(damage.sessions)
    return found


def find_history(case: Case, reported: Set[str]) -> Iterator[AuditNotice]:
    """Yield keys whose conversation changed its id but is complete, without sessions that have another finding
    (`reported`)."""
    for key, bound in sorted(case.routes.items()):
        if case.rotated_from(case.sessions[bound]) is not None:
            family = case.family(case.sessions[bound])
            if reported.isdisjoint(member.id for member in family):
                first = family[0].id
                detail = f"an older version changed the id of {key} from {first} to {bound}; it is whole"
                yield AuditNotice("route-to-child", (first, bound), detail)


def find_losses(case: Case) -> Iterator[AuditNotice]:
    """Yield keys with a session that began anew because a compression of the previous session was cut off."""
    left: dict[str, Session] = {}
    touched = (s for s in case.sessions.values() if s.end_reason == ROTATED or s.parent_session_id is not None)
    for session in sorted(touched, key=lambda session: (session.started_at, session.id)):
        key = session.session_key or getattr(case.rotated_from(session), "session_key", None)
        if key and _is_left_behind(case, session):
            left[key] = session
    for key, before in sorted(left.items()):
        today = case.sessions.get(case.routes.get(key, ""))
        if today is not None and before not in case.family(today) and today.started_at >= before.started_at:
            detail = (
                f"{key} began anew as {today.id}, because a compression of {before.id} was cut off: what was said "
                "before is not seen there"
            )
            fix = f"It is all there: `hermes sessions show {before.id}`"
            yield AuditNotice("began-anew", (before.id, today.id), detail, fix)


def _is_left_behind(case: Case, session: Session) -> bool:
    """Return True if a conversation broke off in a session: its compression was cut off, or the session that it created
    was not found."""
    holds = case.said(session).newest > 0
    if session.end_reason == ROTATED:
        return holds and not any(case.said(child).newest for child in case.children(session))
    return holds and session.end_reason in (None, ORPHANED, SUPERSEDED) and case.rotated_from(session) is not None


def _find_misrouted(case: Case) -> Iterator[Damage]:
    for key, bound_id in sorted(case.routes.items()):
        bound = case.sessions[bound_id]
        if is_open(bound) and bound.parent_session_id is None:
            continue  # no compression made it or ended it
        members = case.family(bound)
        if any(set(case.keys_of(member)) - {key} for member in members):
            continue  # two keys in one family: it may belong to either
        home = case.home(members, bound)
        if not may_reopen(home) or (home == bound and (is_open(home) or case.has_stranger(home))):
            continue
        named = tuple(dict.fromkeys([bound.id, home.id, *(m.id for m in members if is_open(m))]))
        steps = _move_in(case, members, home, key, SUPERSEDED if bound != home and is_open(bound) else ORPHANED)
        if home == bound and home.end_reason == ORPHANED:
            detail = (
                f"{key} leads to session {bound.id}, which a clean-up took for left behind and ended: the next message "
                "would begin anew, without what was said in it"
            )
            yield Damage("route-to-child", named, detail, steps)
        elif home == bound:
            yield Damage("orphan-child", named, _describe_unfollowed(case, key, bound, members), steps)
        elif _descends(case, home, bound):
            detail = (
                f"{key} still leads to session {bound.id}, which a compression ended; the conversation went on as "
                f"{home.id}, and no key leads there: the next message would not see what was said in it"
            )
            yield Damage("orphan-child", named, detail, steps)
        else:
            # If a person spoke in both, no repair can merge the two conversations.
            apart = f"; what was said in {bound.id} will be read there alone" if case.said(bound).went_on else ""
            detail = (
                f"{key} leads to session {bound.id}, which a compression made, but the conversation went on in "
                f"{home.id}: the next message would not see what was said there{apart}"
            )
            yield Damage("route-to-child", named, detail, steps)


def _move_in(
    case: Case, members: Sequence[Session], home: Session, key: str, loser_reason: str
) -> tuple[RepairStep, ...]:
    """Return the steps after which `key` leads to `home`, `home` is open, and other members are closed unless other
    keys lead to them."""
    steps: list[RepairStep] = [Bind(key, home.id)]
    if not is_open(home):
        steps.append(Reopen(home.id))
    for member in members:
        if member != home and is_open(member) and set(case.keys_of(member)) <= {key}:
            steps.append(End(member.id, loser_reason))
    return tuple(steps)


def _describe_unfollowed(case: Case, key: str, bound: Session, members: list[Session]) -> str:
    children = ", ".join(member.id for member in members if member != bound and case.rotated_from(member) == bound)
    if not children:
        return (
            f"a compression ended session {bound.id} and was cut off before it had made the next one; {key} leads to a "
            "session that is marked as ended: the next message would begin anew, without what was said in it"
        )
    if case.said(bound).went_on:
        return (
            f"a compression ended session {bound.id} in favour of {children}, but {key} stayed there and the "
            "conversation went on in it: the session is marked as ended although it lives"
        )
    return (
        f"a compression ended session {bound.id} in favour of {children}, which holds nothing; {key} still leads to "
        "the first: the next message would begin without what was said in it"
    )


def _descends(case: Case, session: Session, ancestor: Session) -> bool:
    seen: set[str] = set()
    above = case.rotated_from(session)
    while above is not None and above.id not in seen:
        if above == ancestor:
            return True
        seen.add(above.id)
        above = case.rotated_from(above)
    return False


def _find_cut_off(case: Case) -> Iterator[Damage]:
    """Yield sessions that an unfinished compression ended and whose key was dropped by a clean-up since."""
    latest: dict[str, Session] = {}
    for session in sorted(case.sessions.values(), key=lambda session: (session.started_at, session.id)):
        if session.session_key:
            latest[session.session_key] = session
    for key, session in latest.items():
        if session.end_reason != ROTATED or not _is_left_behind(case, session):
            continue
        if key in case.routes or case.has_stranger(session):
            continue
        detail = (
            f"a compression ended session {session.id} and was cut off before it had made the next one, and {key} "
            "leads nowhere: the next message would begin anew, without what was said in it"
        )
        empty = tuple(child for child in case.children(session) if is_open(child))
        steps: tuple[RepairStep, ...] = (
            Bind(key, session.id),
            Reopen(session.id),
            *(End(c.id, ORPHANED) for c in empty),
        )
        yield Damage("orphan-child", (session.id, *(child.id for child in empty)), detail, steps)


def _find_orphans(case: Case) -> Iterator[Damage]:
    for child in sorted(case.with_parents, key=lambda session: session.id):
        parent = case.rotated_from(child)
        if parent is None or not is_open(child) or case.keys_of(child) or not case.is_routed_source(child):
            continue
        if parent.ended_at is not None and child.started_at - parent.ended_at > MAX_ROTATION_SECONDS:
            continue  # more likely a branch that someone made of the old session
        if child.id in case.bound_elsewhere or (child.session_key or parent.session_key) in case.our_keys:
            continue  # our own binding says what is meant today
        yield _adopt_or_end(case, parent, child)


def _adopt_or_end(case: Case, parent: Session, child: Session) -> Damage:
    """Return the repair of a child without a key: it gets its conversation's key if that is free, otherwise it ends."""
    members = case.family(child)
    routed = [member for member in members if case.keys_of(member)]
    key = child.session_key or parent.session_key
    story = f"session {child.id}, which a compression made of {parent.id}, is open but no key leads to it"
    if routed:
        detail = f"{story}; the conversation goes on in {routed[-1].id}, and what was said here is not seen there"
        return Damage("orphan-child", (child.id, parent.id), detail, (End(child.id, ORPHANED),))
    home = case.home(members, case.last_continuation(members[0]))
    if key is not None and key not in case.routes and may_reopen(home):
        detail = f"{story}: the next message of {key} would begin anew, without what was said in it"
        named = tuple(dict.fromkeys([child.id, parent.id, *(m.id for m in members if is_open(m))]))
        return Damage("orphan-child", named, detail, _move_in(case, members, home, key, ORPHANED))
    steps: tuple[RepairStep, ...] = (End(child.id, SUPERSEDED if home == child else ORPHANED),)
    if home == parent and key not in case.routes:
        steps = (Reopen(parent.id), *steps)
    moved = f"; {key} means {case.routes[key]} now" if key in case.routes else "; which key it had is not known"
    seen = ": what was said in it is not seen" if case.said(child).newest else "; nothing was said in it"
    return Damage("orphan-child", (child.id, parent.id), f"{story}{moved}{seen}", steps)


def _find_unkeyed(case: Case) -> Iterator[Damage]:
    """Yield sessions without keys that are in use although a compression ended them: a client kept using their id."""
    ended = (session for session in case.sessions.values() if session.end_reason == ROTATED)
    for parent in sorted(ended, key=lambda session: session.id):
        said = case.said(parent).went_on
        if not said or case.is_routed_source(parent):
            continue
        family = case.family(parent)
        others = [member for member in family if member != parent and case.said(member).newest > said]
        if others or any(case.keys_of(member) for member in family):
            continue
        children = [child for child in case.children(parent) if is_open(child)]
        made = f"and made {', '.join(child.id for child in children)} of it" if children else "and was cut off"
        detail = (
            f"a compression ended session {parent.id} {made}, but whoever uses the first id went on in it: the session "
            "is marked as ended although it lives, and who is led on to another does not see what was said since"
        )
        steps: tuple[RepairStep, ...] = (Reopen(parent.id), *(End(child.id, ORPHANED) for child in children))
        yield Damage("orphan-child", (parent.id, *(child.id for child in children)), detail, steps)


def _find_twins(case: Case) -> Iterator[Damage]:
    for key, twins in sorted(_open_by_key(case).items()):
        if len(twins) == 1 or key in case.our_keys:
            continue  # our own binding says which one is meant
        bound = case.sessions.get(case.routes.get(key, ""))
        if bound is None or bound in twins:
            yield _end_all_but_one(case, key, twins, bound)
        elif not is_open(bound):  # the key may lead to an open session of another name on purpose
            yield _end_all_but_one(case, key, twins, None)


def _open_by_key(case: Case) -> dict[str, list[Session]]:
    """Return the open sessions that older versions created for each key, the oldest first."""
    by_key: dict[str, list[Session]] = {}
    if not case.has_older_traces:
        return by_key
    for session in sorted(case.sessions.values(), key=lambda found: (found.started_at, found.id)):
        alone = session.parent_session_id is None or case.parent(session) is not None
        if session.session_key and is_open(session) and alone and session.source not in UNKEYED:
            by_key.setdefault(session.session_key, []).append(session)
    return by_key


def _end_all_but_one(case: Case, key: str, twins: list[Session], bound: Session | None) -> Damage:
    latest = max(twins, key=lambda twin: (case.said(twin).newest, twin.started_at, twin.id))
    home = case.home(twins, bound) if bound is not None else latest
    ids = ", ".join(twin.id for twin in twins)
    detail = f"{key} has {len(twins)} open sessions ({ids}): what is said in one is not seen in the others"
    ends = (End(twin.id, SUPERSEDED) for twin in twins if twin != home)
    return Damage("two-live", tuple(twin.id for twin in twins), detail, (Bind(key, home.id), *ends))
