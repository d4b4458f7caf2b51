"""Mirrors the built-in notes to a provider: changes since the last mirrored state become outbox rows.

People edit notes by hand, so changes are found by comparison: after each change of ours, and when a conversation
opens. That also covers a crash between writing the file and the row.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.memory.notes import Notes, NotesFile, find_entries
from hermes.memory.outbox import Destination, Outbox
from hermes.memory.values import Address, Conversation, Notebook, Speaker
from hermes.scope import OWNER, Group, Guest, Owner, Scope
from hermes.store.memory_rows import get_value, set_value
from hermes.store.sessions import NOTES

MIRRORED = "mirrored"
MAX_NOTE_CHARS = 16_000
"""Limits an entry of a note that a provider receives."""
Action = Literal["add", "replace", "remove"]


class NoteChange(Struct, frozen=True):
    """A changed entry of a note, from `old` to `text`; either may be ""."""

    target: NotesFile
    action: Action
    old: str
    text: str


class Mirrored(Struct, frozen=True):
    """Notes, with the notebook that identifies them to a provider."""

    notes: Notes
    notebook: Notebook

    @classmethod
    def of(cls, notes: Notes, conversation: Conversation) -> Mirrored:
        """Return the notes of a conversation."""
        return cls(notes, notebook_of(notes.scope, conversation))

    @property
    def place(self) -> str:
        return f"{NOTES}{self.notes.scope.name}"

    def kept_as(self, target: NotesFile) -> str:
        """Return the name under which the mirrored state of a note is stored."""
        return target if self.notes.scope == OWNER else f"{target}:{self.notes.scope.name}"


def notebook_of(scope: Scope, conversation: Conversation) -> Notebook:
    """Return the notebook of a scope's notes. A guest is identified by the ids of the conversation."""
    match scope:
        case Owner():
            return Notebook(Speaker(is_owner=True))
        case Guest(platform, user_id):
            return Notebook(conversation.person or Speaker(user_id), platform)
        case Group(session_key):
            return Notebook(None, conversation.platform, session_key)


def mirror_notes(
    tx: Tx, outbox: Outbox, mirrored: Mirrored, address: Address | None, first: NoteChange | None, *, now: float
) -> int:
    """Queue the changes of the notes since the last mirrored state, and return their number.

    A provider without a mirrored state starts with the notes as they are; only `first`, the change just made, is sent.
    Files are read inside the transaction, so that the later of two processes compares with the state recorded by the
    earlier one.
    """
    read = mirrored.notes.read_all().texts  # unreadable notes are reported elsewhere and compared later
    found = [
        change
        for target in read
        for change in _compare(tx, outbox.provider, mirrored.kept_as(target), target, read[target], first)
    ]
    destination = Destination(mirrored.place, mirrored.notebook, address)
    for change in found:
        data = {"target": change.target, "action": change.action, "old": change.old[:MAX_NOTE_CHARS]}
        text, whose = change.text[:MAX_NOTE_CHARS], mirrored.notebook.person
        outbox.put(tx, destination, "note", secrets.token_hex(8), text, data, whose, now=now)
    return len(found)


def _compare(
    tx: Tx, provider: str, kept_as: str, target: NotesFile, text: str, first: NoteChange | None
) -> Iterator[NoteChange]:
    here = [entry.text for entry in find_entries(text)]
    before = get_value(tx, provider, MIRRORED, kept_as)
    if before != here:
        set_value(tx, provider, MIRRORED, kept_as, here)
    if before is not None:
        yield from diff_entries(target, before, here)
    elif first is not None and first.target == target:
        yield first


def diff_entries(target: NotesFile, before: Sequence[str], here: Sequence[str]) -> Iterator[NoteChange]:
    for _, b1, b2, h1, h2 in SequenceMatcher(None, before, here, autojunk=False).get_opcodes():
        old, new = list(before[b1:b2]), list(here[h1:h2])
        if old == new:
            continue
        both = min(len(old), len(new))
        for was, text in zip(old[:both], new[:both], strict=True):
            yield NoteChange(target, "replace", was, text)
        for was in old[both:]:
            yield NoteChange(target, "remove", was, "")
        for text in new[both:]:
            yield NoteChange(target, "add", "", text)
