"""The built-in notes as a provider knows them: what changed since it was last told becomes rows of the outbox.

Notes are files that people edit by hand, so a change is found by comparing: after each change of ours, and when a
conversation is opened. A crash between the file and the row, and an edit by hand, are the same case.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.memory.entries import find_entries
from hermes.memory.notes import Notes, NotesFile
from hermes.memory.outbox import Outbox, Spot
from hermes.memory.values import Address, Conversation, Notebook, Speaker
from hermes.scope import OWNER, Group, Guest, Owner, Scope
from hermes.store.memory_rows import get_value, set_value
from hermes.store.sessions import NOTES

MIRRORED = "mirrored"
LONGEST_NOTE = 16_000
"""Characters of a note's entry that a provider is told."""
Action = Literal["add", "replace", "remove"]


class NoteChange(Struct, frozen=True):
    """One entry of a note that changed. `old` is what it was, `text` what it is; "" where there is none."""

    target: NotesFile
    action: Action
    old: str
    text: str


class Mirrored(Struct, frozen=True):
    """Notes, and the notebook that a provider knows them as."""

    notes: Notes
    notebook: Notebook

    @classmethod
    def of(cls, notes: Notes, conversation: Conversation) -> Mirrored:
        """The notes that are kept in a conversation."""
        return cls(notes, notebook_of(notes.scope, conversation))

    @property
    def place(self) -> str:
        return f"{NOTES}{self.notes.scope.name}"

    def kept_as(self, target: NotesFile) -> str:
        """The name under which it is kept what the provider was told of a note."""
        return target if self.notes.scope == OWNER else f"{target}:{self.notes.scope.name}"


def notebook_of(scope: Scope, conversation: Conversation) -> Notebook:
    """The notes of a scope as a provider knows them. A guest is known by the ids that the conversation has."""
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
    """Record what changed in the notes since the provider was last told; how many changes that are.

    A provider that was never told begins with the notes as they are: `first` is the change that was just made, if one
    was. The files are read inside the transaction, so that of two processes the later one compares with what the
    earlier one recorded.
    """
    read = mirrored.notes.read_all().texts  # one that cannot be read is said elsewhere, and compared when it can be
    found = [
        change
        for target in read
        for change in _compare(tx, outbox.provider, mirrored.kept_as(target), target, read[target], first)
    ]
    spot = Spot(mirrored.place, mirrored.notebook, address)
    for change in found:
        data = {"target": change.target, "action": change.action, "old": change.old[:LONGEST_NOTE]}
        text, whose = change.text[:LONGEST_NOTE], mirrored.notebook.person
        outbox.put(tx, spot, "note", secrets.token_hex(8), text, data, whose, now=now)
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
