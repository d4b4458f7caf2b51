"""Messages of a session: written in order, split if long, and exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from hermes.honcho.attempt import Attempt
from hermes.honcho.failures import NOT_FOUND_STATUS, Failure, Refusal, Unanswered
from hermes.honcho.keys import MAX_MESSAGE_CHARS
from hermes.honcho.names import in_path, session_path
from hermes.honcho.wire import items_of
from hermes.memory.provider import DeadLetter, Delivered, Entry, Later, Outcome
from hermes.types import OWN_MARK, Json

KEY, SESSION, STOPPED = "hermes_key", "hermes_session", "hermes_stopped"
"""Metadata of a message: its key, its conversation, and whether its author was cut off."""
TALK_OF = "hermes_talk_of"
"""Metadata of a session of two agents: the name of the people's session beside it."""
WHOLE, PIECE = "hermes_whole", "hermes_piece"
"""Metadata of a split message: the key of the whole message, and the piece's number, from 1."""
MESSAGES_PER_REQUEST = 100
"""Messages in one request."""
MAX_REQUEST_CHARS = 1_000_000
NOTHING = Delivered("it had no text")
NO_REASONING: Json = {"reasoning": {"enabled": False}}
"""Message settings for the agent's replies and for files: the server concludes nothing from them."""


class Written(Struct, frozen=True):
    """An entry prepared for writing."""

    entry: Entry
    peer: str
    pieces: tuple[str, ...]
    is_own: bool = False

    def to_json(self) -> list[Json]:
        entry, count = self.entry, len(self.pieces)
        at = datetime.fromtimestamp(entry.at, UTC).isoformat()
        about: dict[str, Json] = {} if entry.session_id is None else {SESSION: entry.session_id}
        if isinstance(entry.data, dict) and entry.data.get("stopped"):
            about[STOPPED] = True
        if self.is_own:
            about[OWN_MARK] = True
        is_fact = entry.kind != "reply" and not (isinstance(entry.data, dict) and entry.data.get("file"))
        settings: dict[str, Json] = {} if is_fact else {"configuration": NO_REASONING}
        return [
            {"content": text, "peer_id": self.peer, "created_at": at, "metadata": {**about, **named}, **settings}
            for number, text in enumerate(self.pieces, 1)
            for named in [{KEY: entry.key} if count == 1 else _piece(entry.key, number)]
        ]


def _piece(key: str, number: int) -> dict[str, Json]:
    return {KEY: f"{key}.{number}", WHOLE: key, PIECE: number}


async def write_messages(attempt: Attempt, entries: Sequence[Entry]) -> list[Outcome]:
    """Return outcomes for the first entries, possibly not all. Raises Failure if the session could not be created."""
    target = attempt.target
    assert target.session is not None
    written = [_written(attempt, entry) for entry in entries]
    members = attempt.observing({target.ai_peer, *(one.peer for one in written)})
    about = {} if target.talk_of is None else {TALK_OF: target.talk_of}
    await attempt.link.members.join(target.workspace, target.session, members, attempt.until, about)
    outcomes: list[Outcome] = []
    for run in _runs(written):
        outcomes += await _write_run(attempt, target.session, run)
        if isinstance(outcomes[-1], Later):
            break
    return outcomes


def _written(attempt: Attempt, entry: Entry) -> Written:
    peer = attempt.target.ai_peer if entry.kind == "reply" else attempt.peer_of(entry.speaker)
    text = entry.text.replace("\0", "")
    pieces = tuple(split_text(text, attempt.target.max_chars)) if text.strip() else ()
    return Written(entry, peer, pieces, attempt.target.is_own)


def _runs(written: Sequence[Written]) -> Iterator[list[Written]]:
    """Yield groups of entries, one per request. An entry with no or several pieces forms its own group."""
    run: list[Written] = []
    for one in written:
        is_full = len(run) == MESSAGES_PER_REQUEST or sum(len(other.pieces[0]) for other in run) > MAX_REQUEST_CHARS
        if run and (is_full or len(one.pieces) != 1):
            yield run
            run = []
        if len(one.pieces) == 1:
            run.append(one)
        else:
            yield [one]
    if run:
        yield run


async def _write_run(attempt: Attempt, session: str, run: list[Written]) -> list[Outcome]:
    """Write entries in one request. After a refusal each is tried alone, so that only the invalid one becomes a dead
    letter."""
    try:
        if len(run) == 1:
            return [await _write_one(attempt, session, run[0])]
        return await _write_together(attempt, session, run)
    except Failure as failure:
        if isinstance(failure, Refusal) and failure.status == NOT_FOUND_STATUS:
            attempt.link.members.forget()  # the session is not there any more
            return [Later(str(failure))]
        outcome = failure.outcome()
    if len(run) == 1 or isinstance(outcome, Later):
        return [outcome]
    outcomes: list[Outcome] = []
    for one in run:
        outcomes += await _write_run(attempt, session, [one])
        if isinstance(outcomes[-1], Later):
            break
    return outcomes


async def _write_together(attempt: Attempt, session: str, run: list[Written]) -> list[Outcome]:
    musts = {one.entry.key: attempt.must_look(one.entry) for one in run}
    if waits := [must for must in musts.values() if isinstance(must, Later)]:
        return [max(waits, key=lambda later: later.after or 0.0)]
    doubtful = [one.entry for one in run if musts[one.entry.key]]
    there = await _find(attempt, session, doubtful) if doubtful else {}
    new = [one for one in run if one.entry.key not in there]
    if new:
        messages = [message for one in new for message in one.to_json()]
        ids = await _write(attempt, session, [one.entry for one in new], messages)
        there |= dict(zip((one.entry.key for one in new), ids, strict=True))
    return [Delivered(there[one.entry.key]) for one in run]


async def _write_one(attempt: Attempt, session: str, one: Written) -> Outcome:
    if not one.pieces:
        return NOTHING
    if len(one.pieces) > 1:
        return await _write_pieces(attempt, session, one)
    try:
        return (await _write_together(attempt, session, [one]))[0]
    except Refusal as refusal:
        # Under another name or in other words our server knows the key: it was written when both were different.
        if not attempt.link.takes_keys or one.entry.tried_at is None or not isinstance(refusal.outcome(), DeadLetter):
            raise
        there = await _find(attempt, session, [one.entry])
        if one.entry.key not in there:
            raise
        return Delivered(there[one.entry.key])


async def _write_pieces(attempt: Attempt, session: str, one: Written) -> Outcome:
    """Write the pieces that are missing. They are written in order, so the last one on the server marks the
    progress."""
    must = attempt.must_look(one.entry)
    if isinstance(must, Later):
        return must
    done = await _count_pieces(attempt, session, one.entry) if one.entry.tried_at is not None else 0
    messages = one.to_json()
    for start in range(done, len(messages), MESSAGES_PER_REQUEST // 4):
        await _write(attempt, session, [one.entry], messages[start : start + MESSAGES_PER_REQUEST // 4])
    return Delivered(f"in {len(messages)} pieces")


async def _find(attempt: Attempt, session: str, entries: Sequence[Entry]) -> dict[str, str]:
    """Return the ids of messages that the server has already, by entry key."""
    filters = {"OR": [{"metadata": {KEY: entry.key}} for entry in entries]}
    items = await list_messages(attempt, session, f"size={MESSAGES_PER_REQUEST}", filters)
    found = {str(message["metadata"].get(KEY)): str(message["id"]) for message in items}
    attempt.doubts.mark_absent(entry for entry in entries if entry.key not in found)
    return {entry.key: found[entry.key] for entry in entries if entry.key in found}


async def _count_pieces(attempt: Attempt, session: str, entry: Entry) -> int:
    items = await list_messages(attempt, session, "size=1&reverse=true", {"metadata": {WHOLE: entry.key}})
    count = items[0]["metadata"].get(PIECE) if items else 0
    if not isinstance(count, int):
        raise Unanswered("the server's response lacks the number of the piece")
    return count


async def list_messages(attempt: Attempt, session: str, page: str, filters: Json) -> list[Json]:
    """Return a page of a session's messages. Raises Failure."""
    response = await attempt.ask("POST", session_path(session, f"messages/list?{page}"), {"filters": filters})
    items = items_of(response, "messages")
    if not all(isinstance(one.get("metadata"), dict) for one in items):
        raise Unanswered("the server's list of messages is invalid")
    return items


async def delete_message(attempt: Attempt, session: str, message: str) -> None:
    """Delete a message by its id, if the server supports that. Raises Failure."""
    await attempt.ask_if_there("DELETE", f"ext/{session_path(session, f'messages/{in_path(message)}')}")


async def _write(attempt: Attempt, session: str, entries: Sequence[Entry], messages: Sequence[Json]) -> list[str]:
    """Write messages of these entries, and return their ids in order. Raises Failure."""
    rows = (await attempt.write(entries, session_path(session, "messages"), {"messages": messages})).value
    if not isinstance(rows, list) or len(rows) != len(messages) or not all(isinstance(one, dict) for one in rows):
        raise Unanswered("the server's answer lacks the ids of the new messages")
    return [str(one.get("id", "")) for one in rows]


CONTINUATION_MARK = "[continued] "
"""Prefix of every piece but the first, if the limit leaves room for it."""


def split_text(text: str, limit: int) -> list[str]:
    """Split a text into pieces of at most `limit` characters: after a paragraph, else after a word, else anywhere.
    Without the marks, the joined pieces equal the text."""
    limit = min(limit, MAX_MESSAGE_CHARS)
    mark = CONTINUATION_MARK if limit >= 2 * len(CONTINUATION_MARK) else ""
    pieces, start, before = [], 0, ""
    while len(text) - start > limit - len(before):
        cut = _find_cut(text[start : start + limit - len(before)])
        pieces.append(f"{before}{text[start : start + cut]}")
        start, before = start + cut, mark
    return [*pieces, f"{before}{text[start:]}"]


def _find_cut(window: str) -> int:
    """Return the end of the first piece. A paragraph end counts only in the second half, which limits the number of
    pieces."""
    paragraph = window.rfind("\n\n", len(window) // 2)
    if paragraph >= 0:
        return paragraph + 2
    if window[-1].isspace():
        return len(window)
    words = window.rsplit(None, 1)
    return len(window) - len(words[1]) if len(words) == 2 else len(window)
