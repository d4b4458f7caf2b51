"""Idempotent writes: an item with a key is written once, however often it is sent, alone or in a list."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hermes.memory_server.db.database import Tx
from hermes.memory_server.engine.answers import KeyedRequest, KeySpace, check_same, find_answer, keep_answer
from hermes.memory_server.engine.conclusions import NewConclusion, create_conclusions
from hermes.memory_server.engine.messages import MessageDraft, append_messages
from hermes.memory_server.engine.sessions import ensure_session
from hermes.memory_server.engine.workspaces import get_workspace

CREATED_STATUS = 201


class WrittenStamp(NamedTuple):
    """The values that writing added to an item. With the request they give the response, so only they are stored."""

    public_id: str
    created_at: int


def append_once(
    tx: Tx, workspace: str, session: str, drafts: Sequence[MessageDraft], at: int, whole: KeyedRequest | None
) -> list[WrittenStamp]:
    """Append the messages that are new, in order, and return the stamps of all. `whole` is the key of the whole
    list.
    """

    def append(new: Sequence[int]) -> list[WrittenStamp]:
        appended = append_messages(tx, workspace, session, [drafts[number] for number in new], at)
        return [WrittenStamp(message.public_id, message.created_at) for message in appended]

    keys = [draft.asked for draft in drafts]
    if whole is None and not any(keys):
        return append(range(len(drafts)))
    row, _ = ensure_session(tx, workspace, session, at)
    return _write_once(tx, KeySpace(row.workspace_id, row.id), whole, keys, append, at)


def conclude_once(
    tx: Tx, workspace: str, given: Sequence[NewConclusion], at: int, whole: KeyedRequest | None
) -> list[WrittenStamp]:
    """Store the conclusions that are new, and return the stamps of all."""

    def conclude(new: Sequence[int]) -> list[WrittenStamp]:
        rows = create_conclusions(tx, workspace, [given[number] for number in new], at)
        return [WrittenStamp(row.public_id, row.created_at) for row in rows]

    keys = [new.asked for new in given]
    if whole is None and not any(keys):
        return conclude(range(len(given)))
    return _write_once(tx, KeySpace(get_workspace(tx, workspace).id), whole, keys, conclude, at)


def _write_once(
    tx: Tx,
    place: KeySpace,
    whole: KeyedRequest | None,
    keys: Sequence[KeyedRequest | None],
    write: Callable[[Sequence[int]], list[WrittenStamp]],
    at: int,
) -> list[WrittenStamp]:
    """Write the items with unknown keys, given by their numbers, and return the stamps of all."""
    first = find_answer(tx, place, whole, at) if whole is not None else None
    if first is not None:
        return [WrittenStamp(*stamp) for stamp in json.loads(first.answer)]
    stamps: dict[int, WrittenStamp] = {}
    same_as: dict[int, int] = {}
    by_key: dict[str, int] = {}
    for number, asked in enumerate(keys):
        if asked is None:
            continue
        earlier = by_key.setdefault(asked.key, number)
        if earlier != number:  # twice in one request
            check_same(keys[earlier], asked)
            same_as[number] = earlier
        elif (found := find_answer(tx, place, asked, at)) is not None:
            stamps[number] = WrittenStamp(*json.loads(found.answer))
    new = [number for number in range(len(keys)) if number not in stamps and number not in same_as]
    for number, stamp in zip(new, write(new) if new else (), strict=True):
        stamps[number] = stamp
        if (asked := keys[number]) is not None:
            keep_answer(tx, place, asked, CREATED_STATUS, json.dumps(stamp), at)
    written = [stamps[same_as.get(number, number)] for number in range(len(keys))]
    if whole is not None:
        keep_answer(tx, place, whole, CREATED_STATUS, json.dumps(written), at)
    return written
